"""Runs that stay in the repository, so that the comparison goes on from them on any machine.

A line has what one tuner gave on one problem after one budget, in the order of the seeds: by how much the true value of
the reported point is above the problem's reference, with four digits. The reference is the least value that was known
when the first run came in, and stays: where a run finds less, its number is negative.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from scripts.bench.common.harness import RESULTS
from scripts.bench.tuner.runs import Key, Run
from scripts.bench.tuner.tuners.face import BUDGETS

RECORD = RESULTS / "runs/tuner.json"


class Record:
    """A file of runs; those of another version of their tuner, or of a problem that has changed, are none."""

    def __init__(self, file: Path, versions: Mapping[str, str], fingerprint_of: Callable[[str], str]) -> None:
        raw = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        self._file, self._versions, self._fingerprint_of = file, versions, fingerprint_of
        self._tuners: dict[str, str] = raw.get("tuners", {})
        self._fingerprints: dict[str, str] = raw.get("problems", {})
        self._references: dict[str, float] = raw.get("references", {})
        self._lists: dict[str, list[float | None]] = raw.get("runs", {})

    def find(self, key: Key) -> Run | None:
        """Return a run that is there and long enough; what it cost is not kept."""
        if self._tuners.get(key.method) != self._versions.get(key.method, ""):
            return None
        if self._fingerprints.get(key.problem) != self._fingerprint_of(key.problem):
            return None
        reference, best = self._references[key.problem], dict[int, float]()
        for budget in BUDGETS:
            for value in self._lists.get(_line(key, budget), [])[key.seed : key.seed + 1]:
                if value is not None:
                    best[budget] = reference + value
        return Run(key, best, math.nan) if max(best, default=0) >= key.trials else None

    def add(self, runs: Iterable[Run], optimum_of: Callable[[str], float | None]) -> None:
        """Take the runs that are missing and write the file; what a newer version or problem makes void goes."""
        for run in runs:
            key, version = run.key, self._versions.get(run.key.method)
            if version is None or self.find(replace(key, trials=max(run.best))):
                continue
            if self._tuners.get(key.method) != version:
                self._drop(2, key.method)
                self._tuners[key.method] = version
            if self._fingerprints.get(key.problem) != self._fingerprint_of(key.problem):
                self._drop(1, key.problem)
                self._fingerprints[key.problem] = self._fingerprint_of(key.problem)
                optimum = optimum_of(key.problem)
                self._references[key.problem] = min(run.best.values()) if optimum is None else optimum
            for budget in set(run.best) & set(BUDGETS):
                values = self._lists.setdefault(_line(key, budget), [])
                values += [None] * (key.seed + 1 - len(values))
                values[key.seed] = float(f"{run.best[budget] - self._references[key.problem]:.4g}")
        kept = {"tuners": self._tuners, "problems": self._fingerprints, "references": self._references}
        text = json.dumps({**kept, "runs": self._lists}, indent=0, sort_keys=True)
        text = re.sub(r"\[[^][]*\]", lambda found: "".join(found[0].split()), text)  # a list takes a line
        self._file.write_text(f"{text}\n", encoding="utf-8")

    def _drop(self, place: int, name: str) -> None:
        self._lists = {line: values for line, values in self._lists.items() if line.split()[place] != name}


def _line(key: Key, budget: int) -> str:
    return f"{key.mode} {key.problem} {key.method} {budget}"
