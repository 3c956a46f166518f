#!/usr/bin/env python3
"""Mutation testing: scripts/mutants [--sample 12] [--seed 0] [--jobs N] [--json FILE] [MODULE ...].

Every mutant runs in a process of its own that gets the changed module from memory's side (`inside`), so that the
sources stay as they are whatever happens. It is killed when the fast tests nearest to the module fail or take too long.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE / "inside"), str(ROOT / "scripts" / "bench")]

import harness  # noqa: E402
import modules  # noqa: E402
import sitecustomize as inside  # noqa: E402
from operators import Mutant, mutants, shuffled  # noqa: E402

FAST = "not condor and not slow and not browser"
EQUIVALENT = HERE / "equivalent.toml"
SHARE_OF_MODULE, SHARE_OF_ALL = (11, 12), 0.85  # what must be killed
PATIENCE, LEAST = 5, 10.0  # a mutant may take this many times as long as the module itself, and some seconds
NOTHING = "none"  # the module of a trial that changes nothing
PRELOADED = ["pytest", "_pytest.assertion.rewrite", "hypothesis", "numpy", "scipy.sparse"]  # once for all mutants


@dataclass(frozen=True)
class Trial:
    """Tests to be run with one source of a module."""

    module: str
    source: str
    tests: tuple[Path, ...]
    limit: float = 600.0


@dataclass(frozen=True)
class End:
    """How a trial ended."""

    told: str | None  # what pytest wrote last; None when all tests passed
    seconds: float


@dataclass
class Running:
    """The process of a trial."""

    process: Any
    begin: float
    limit: float


@dataclass
class Outcome:
    """What became of a module's mutants."""

    module: str
    tests: tuple[Path, ...]
    equivalent: int = 0
    killed: int = 0
    survivors: list[Mutant] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.killed + len(self.survivors)

    @property
    def goal(self) -> int:
        return SHARE_OF_MODULE[0] * self.total // SHARE_OF_MODULE[1]

    @property
    def met(self) -> bool:
        return self.killed >= self.goal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the mutants of the modules named, or of the core; 1 if too many survive."""
    arguments = _arguments(argv)
    names = arguments.module or modules.core(ROOT)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # one process a core
        os.environ[variable] = "1"
    found = {name: mutants(name, modules.path_of(ROOT, name).read_text(encoding="utf-8")) for name in names}
    reviewed = read_equivalent(EQUIVALENT, found)
    tests = {path: modules.imports(path) for path in fast_tests(ROOT)}
    imported = modules.imports_of_packages(ROOT)
    outcomes = [Outcome(name, tuple(modules.nearest_tests(name, imported, tests))) for name in names if found[name]]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        pool = Pool(Path(folder), arguments.jobs, ROOT)
        limits = _limits(pool, outcomes)
        trials = []
        for outcome in outcomes:
            picked = shuffled(found[outcome.module], arguments.seed)
            chosen = [one for one in picked if one.key not in reviewed][: arguments.sample]
            outcome.equivalent = len([one for one in picked if one.key in reviewed])
            for one in chosen:
                trials.append((outcome, one, Trial(one.module, one.source, outcome.tests, limits[outcome.module])))
        print(f"{len(trials)} mutants; those that survive:", file=sys.stderr, flush=True)
        done = pool.run([trial for _, _, trial in trials], lambda number, end: _tell(trials[number][1], end))
        for number, end in sorted(done.items()):
            outcome, one, _ = trials[number]
            killed = end.told is not None
            outcome.killed += killed
            outcome.survivors += [] if killed else [one]
    print(table(outcomes))
    if arguments.json:
        text = json.dumps(to_json(outcomes), indent=1, ensure_ascii=False) + "\n"
        arguments.json.write_text(text, encoding="utf-8")
    return int(not (all(outcome.met for outcome in outcomes) and share(outcomes) >= SHARE_OF_ALL))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutants", allow_abbrev=False)
    parser.add_argument(
        "module", nargs="*", metavar="MODULE", help="default: the core, see scripts/mutation/modules.py"
    )
    parser.add_argument("--sample", type=int, default=12, metavar="N", help="mutants of each module (default: 12)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="draws other ones (default: 0)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    return parser.parse_args(argv)


def _tell(mutant: Mutant, end: End) -> None:
    if end.told is None:
        print(_diff(mutant), file=sys.stderr, flush=True)


def _diff(mutant: Mutant) -> str:
    path = modules.path_of(ROOT, mutant.module).relative_to(ROOT)
    return f"\n{path}:{mutant.line}\n- {mutant.before}\n+ {mutant.after}"


def read_equivalent(path: Path, found: dict[str, list[Mutant]]) -> set[tuple[str, str, str]]:
    """Read the mutants that a person has found to be no fault; one that is none any more must be taken out."""
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["mutant"] if path.exists() else []
    keys = {(each["module"], each["before"], each["after"]) for each in listed if each["reason"]}
    old = {key for key in keys if key[0] in found} - {one.key for group in found.values() for one in group}
    if old:
        raise SystemExit(f"{path.name} lists what is no mutant any more: {sorted(old)}")
    return keys


def fast_tests(root: Path) -> list[Path]:
    """Return the files in which pytest finds fast tests."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", FAST, "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return sorted({root / line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line})


class Pool:
    """Runs trials, some at a time, each in a forked process with what most tests need already imported."""

    def __init__(self, folder: Path, jobs: int, root: Path) -> None:
        self._folder = folder
        self._jobs = jobs
        self._root = root
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)

    def run(self, trials: Sequence[Trial], tell: Callable[[int, End], None] | None = None) -> dict[int, End]:
        """Return how each trial ended, by its number."""
        ended: dict[int, End] = {}
        running: dict[int, Running] = {}
        waiting = list(enumerate(trials))[::-1]
        try:
            while waiting or running:
                while waiting and len(running) < self._jobs:
                    number, trial = waiting.pop()
                    running[number] = self._start(number, trial)
                connection.wait([each.process.sentinel for each in running.values()], timeout=1)
                for number, each in list(running.items()):
                    over = time.monotonic() > each.begin + each.limit
                    if each.process.is_alive() and not over:
                        continue
                    _end(each)
                    told = self._told(number, each) if over or each.process.exitcode else None
                    ended[number] = End(told, time.monotonic() - each.begin)
                    del running[number]
                    shutil.rmtree(self._folder / str(number), ignore_errors=True)
                    if tell is not None:
                        tell(number, ended[number])
        finally:  # also after Ctrl-C
            for each in running.values():
                _end(each)
        return ended

    def _told(self, number: int, ended: Running) -> str:
        text = (self._folder / str(number) / "output").read_text(encoding="utf-8", errors="replace")
        return f"{text[-3000:]}\nended with {ended.process.exitcode}"

    def _start(self, number: int, trial: Trial) -> Running:
        place = self._folder / str(number)
        place.mkdir()
        (place / "source.py").write_text(trial.source, encoding="utf-8")
        process = self._context.Process(target=_test, args=(trial.module, trial.tests, place, self._root))
        process.start()
        return Running(process, time.monotonic(), trial.limit)


def _end(running: Running) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.process.pid, signal.SIGKILL)
    running.process.kill()
    running.process.join()


def _test(module: str, tests: Iterable[Path], place: Path, root: Path) -> None:
    """Run tests in this process, which is the forked one; its exit code is pytest's."""
    os.setsid()
    os.chdir(root)
    with (place / "output").open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.environ |= {
        inside.NAME: module,
        inside.CHANGED: str(place / "source.py"),
        "PYTHONPATH": os.pathsep.join([str(HERE / "inside"), str(root)]),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "hypothesis"),
    }
    if module.startswith("nnlib.loops"):  # or Numba would take, and keep, code that belongs to the other source
        os.environ["NUMBA_CACHE_DIR"] = str(place / "numba")
    sys.path.insert(0, str(root))
    inside.install()
    import pytest

    options = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # some plugins were imported before
    options += ["-x", "-q", "-m", FAST, "-p", "no:xdist", "-p", "no:cacheprovider", f"--basetemp={place / 'tmp'}"]
    sys.exit(int(pytest.main([*options, "--hypothesis-seed=0", *map(str, tests)])))


def _limits(pool: Pool, outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Run all these tests with the modules as they are, which must pass; return how long mutants may take."""
    files = sorted({path for outcome in outcomes for path in outcome.tests})
    trials = [Trial(NOTHING, "", (path,)) for path in files]
    done = pool.run(trials)
    for number, path in enumerate(files):
        if done[number].told is not None:
            raise SystemExit(f"{done[number].told}\n{path} fails without any change")
    seconds = {path: done[number].seconds for number, path in enumerate(files)}
    return {one.module: max(LEAST, PATIENCE * sum(seconds[path] for path in one.tests)) for one in outcomes}


def share(outcomes: Iterable[Outcome]) -> float:
    """Return which share of all mutants was killed."""
    counted = [(outcome.killed, outcome.total) for outcome in outcomes]
    return sum(killed for killed, _ in counted) / max(sum(total for _, total in counted), 1)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return one line a module, then the survivors."""
    return "\n".join(_lines(outcomes))


def _lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield f"{'module':36} mutants  killed  survived  equivalent"
    for one in outcomes:
        few = "" if one.met else f"  fewer than {one.goal}"
        yield f"{one.module:36} {one.total:7} {one.killed:7} {len(one.survivors):9} {one.equivalent:11}{few}"
    total, killed = sum(one.total for one in outcomes), sum(one.killed for one in outcomes)
    yield f"{'all':36} {total:7} {killed:7} {total - killed:9}  {share(outcomes):.1%}, goal {SHARE_OF_ALL:.0%}"
    for one in outcomes:
        for mutant in one.survivors:
            yield _diff(mutant)


def to_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the form in which benchmarks keep their results: one row for all, and what each module has."""
    total = harness.Row("mutants killed", 100 * share(outcomes), None, "%", 100 * SHARE_OF_ALL, higher=True)
    more = {
        "modules": [
            {
                "module": one.module,
                "killed": one.killed,
                "total": one.total,
                "goal": one.goal,
                "met": one.met,
                "survivors": [f"{mutant.line}: {mutant.before} -> {mutant.after}" for mutant in one.survivors],
            }
            for one in outcomes
        ]
    }
    return {**harness.to_json("mutants", [total]), **more}


if __name__ == "__main__":
    sys.exit(main())
