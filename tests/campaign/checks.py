"""What a study left, beside what the undisturbed one left: trials lost or doubled, torn lines, other champions.

Knows nothing of the product's own code, which is what is tried here: Python's standard library alone.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NOT_ENDED = "did not end"  # how a problem begins that says so
OPEN = ("machine",)  # not an outcome: the trial is still to be run


@dataclass(frozen=True)
class Left:
    """What one region has at the end: the bytes of its journal, and its champion."""

    journal: bytes
    champion: str  # SHA-256 of the model's bytes, empty when there is none
    facts: Mapping[str, Any]  # champion/metrics.json


@dataclass(frozen=True)
class Checked:
    """What is wrong with one study; all zero and empty when nothing is."""

    lost: int = 0  # trials and final trainings without a good outcome
    doubled: int = 0  # outcomes beyond the first of a trial
    torn: int = 0  # lines of the journal that are no records
    other_champions: int = 0
    notes: tuple[str, ...] = ()

    def __add__(self, other: Checked) -> Checked:
        return Checked(
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.torn + other.torn,
            self.other_champions + other.other_champions,
            self.notes + other.notes,
        )


@dataclass(frozen=True)
class Studied:
    """One study and what its faults did to it."""

    study: int
    hit: tuple[tuple[str, str], ...]  # kind, and what was hit
    missed: tuple[str, ...]  # kinds that found nothing to hit before the study ended
    resubmitted: int  # by the campaign, as the study had ended without all champions
    seconds: float
    suite: str = ""  # whose HTCondor ran it
    pairs: int = 0  # cases of two faults at once
    cases: int = 0
    recoveries: tuple[tuple[str, float, str], ...] = ()  # kind, seconds until the next progress, why so long
    problems: tuple[str, ...] = ()  # not ended, no report, processes left ...
    checked: Checked = field(default_factory=Checked)

    @property
    def deviates(self) -> bool:
        """Whether anything is not as in the undisturbed study."""
        return bool(self.problems) or self.checked != Checked()

    @property
    def ended(self) -> bool:
        """Whether it came to its end."""
        return not any(text.startswith(NOT_ENDED) for text in self.problems)


def studied_from_json(raw: Mapping[str, Any]) -> Studied:
    """Read a study that was kept."""
    checked = Checked(**{**raw["checked"], "notes": tuple(raw["checked"]["notes"])})
    lists = {name: tuple(raw[name]) for name in ("missed", "problems")}
    pairs = {name: tuple(map(tuple, raw[name])) for name in ("hit", "recoveries")}
    return Studied(**{**raw, **lists, **pairs, "checked": checked})


def left_in(journal: Path) -> Left:
    """Read what a region has, from the folder of its journal."""
    champion = journal.parent / "champion"
    model, facts = champion / "model.nc", champion / "metrics.json"
    return Left(
        journal.read_bytes() if journal.exists() else b"",
        hashlib.sha256(model.read_bytes()).hexdigest() if model.exists() else "",
        json.loads(facts.read_text(encoding="utf-8")) if facts.exists() else {},
    )


def check_region(slug: str, left: Left, undisturbed: Left) -> Checked:
    """Compare one region with the same region of the undisturbed study."""
    records, torn = read_lines(left.journal)
    expected, _ = read_lines(undisturbed.journal)
    outcomes, good = outcomes_of(records), outcomes_of(expected)
    lost = [trial for trial in good if not any(_ok(record) for record in outcomes.get(trial, []))]
    doubled = Counter({trial: len(found) - 1 for trial, found in outcomes.items() if len(found) > 1})
    notes = [f"{slug}: no good outcome of trial {trial}: {_reasons(outcomes.get(trial, []))}" for trial in lost]
    notes += [f"{slug}: {count + 1} outcomes of trial {trial}" for trial, count in doubled.items()]
    notes += [f"{slug}: a torn line: {line[:80]!r}" for line in torn]
    notes += [f"{slug}: {text}" for text in other_records(records, expected)]
    same = bool(left.champion) and left.champion == undisturbed.champion and _same(left.facts, undisturbed.facts)
    if not same:
        notes.append(f"{slug}: the champion is another one: {left.champion[:12] or 'none'}")
    return Checked(len(lost), doubled.total(), len(torn), int(not same), tuple(notes))


def read_lines(journal: bytes) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Return the journal's records, and the lines that are none; a last line without its break is torn."""
    *lines, last = journal.split(b"\n")
    records, torn = [], [last] if last else []
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and "event" in record:
            records.append(record)
        else:
            torn.append(line)
    return records, torn


def outcomes_of(records: Sequence[Mapping[str, Any]]) -> dict[int | None, list[Mapping[str, Any]]]:
    """Return the outcomes of each trial, and of the final training under None."""
    found: dict[int | None, list[Mapping[str, Any]]] = {}
    for record in records:
        if record["event"] == "settled" and record["status"] not in OPEN:
            found.setdefault(record["trial"], []).append(record)
    return found


def other_records(records: Sequence[Mapping[str, Any]], expected: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say which proposals and outcomes are not those of the undisturbed study, or are there twice."""
    texts = []
    for event, key in (("proposed", "point"), ("settled", "value")):
        wanted = {record["trial"]: record[key] for record in expected if record["event"] == event}
        seen = [(r["trial"], r[key]) for r in records if r["event"] == event and r.get("status") not in OPEN]
        texts += [
            f"trial {t}: {event} {value}, undisturbed {wanted.get(t)}" for t, value in seen if wanted.get(t) != value
        ]
        if event == "proposed":
            counts = Counter(trial for trial, _ in seen)
            texts += [f"trial {trial}: proposed {count} times" for trial, count in counts.items() if count > 1]
    return texts


def _ok(record: Mapping[str, Any]) -> bool:
    return bool(record["status"] == "ok")


def _reasons(records: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"{record['status']} ({record.get('reason', '')})" for record in records) or "none at all"


def _same(facts: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Compare champions' facts; only the run's name and where it was trained may differ."""
    places = dict.fromkeys(("run", "host", "machine"), "")
    return {**facts, **places} == {**others, **places}
