"""Make a run's records whole again from each other: what the journal lost from the trials' files, and the reverse.

Nothing is done before it is asked for: `plan_repair` says what would be, `Repair.apply` does it. What no other record
holds, such as a result that is gone, can only be restored from a copy or trained again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnlib.contract import (
    ENDED_WELL,
    RESULT_FILE,
    TRIAL_FILE,
    ContractError,
    Exit,
    Trial,
    read_result,
    sha256_of,
    trial_from_json,
)
from nnlib.util.files import copy_atomically, write_atomically
from regiondag.audit.lost_records import list_unproposed, name_trials
from regiondag.audit.older_copies import Marks, is_older, read_marks
from regiondag.condor.events.attempts import Attempt
from regiondag.condor.events.log import read_attempts, read_settled
from regiondag.errors import RegiondagError
from regiondag.node.choice import serve_region
from regiondag.node.journal_mark import note_repaired
from regiondag.node.post import JobEnd, read_end, settle_final, write_champion
from regiondag.run.history import History, TrialOutcome
from regiondag.run.journal import Journal, chain, find_breaks
from regiondag.run.layout import NodeName, RegionFolder, RunFolder
from regiondag.run.manifest import RunManifest
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.study.families import FAMILY, NETWORK, point_of
from regiondag.study.space import Value, without_inactive

Record = dict[str, Any]
SIGNALLED = -9  # how DAGMan tells of a signal; which one changes no outcome


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that can be made whole: which file, what would be done, and how."""

    path: Path
    text: str
    apply: Callable[[], None]


def plan_repair(run: RunFolder, manifest: RunManifest) -> Iterator[Repair]:
    """Yield what can be repaired, in the order in which it has to be: each is looked for when those before are done."""
    yield from _plan_inputs(run, manifest)
    settled, marks = read_settled(run), read_marks(run)
    for slug in manifest.regions:
        folder = run.region(slug)
        try:
            spec = read_spec(folder.spec)
        except RegiondagError:
            continue  # `verify` says so; nothing of the region can be understood without it
        yield from _plan_model(folder, spec)
        yield from _plan_journal(folder, spec, marks.settled.get(slug, {}) | settled.get(slug, {}), marks)
        yield from _plan_champion(folder, spec)


def _plan_inputs(run: RunFolder, manifest: RunManifest) -> Iterator[Repair]:
    """Yield inputs that are not as they were, where the file that they were copied from still is."""
    for name, source in manifest.sources.items():
        path, digest = run.path / name, manifest.sha256.get(name)
        if digest and path.resolve().is_relative_to(run.path.resolve()) and _digest(path) != digest == _digest(source):
            yield Repair(path, f"copy it again from {source}", _copying(Path(source), path))


def _plan_model(folder: RegionFolder, spec: RegionSpec) -> Iterator[Repair]:
    """Yield the model of the final training, where what serves is a copy of it."""
    place = folder.trial(NodeName(spec.slug, None))
    result, model = read_result(place / RESULT_FILE), place / spec.outputs.model
    if result and result.model and _digest(model) != result.model == _digest(folder.champion_model):
        yield Repair(model, "copy it again from the champion", _copying(folder.champion_model, model))


# --- the journal ---------------------------------------------------------------------------------------------


def _plan_journal(
    folder: RegionFolder, spec: RegionSpec, settled: Mapping[int | None, float], marks: Marks
) -> Iterator[Repair]:
    journal = Journal(folder.journal)
    lines = journal.lines()
    records, refused = _read_records(journal, lines)
    changed = [_unchanged(folder, spec, record) for record in records]
    records = [again or record for record, again in zip(records, changed, strict=True)]
    history = _fold(journal, records)
    node = NodeName(spec.slug, None)
    attempts = {attempt.node.number: attempt for attempt in read_attempts(folder.run, spec.slug)}  # the last of each
    lost = [number for number in list_unproposed(folder, history) if _is_own(folder, spec, number, TRIAL_FILE, marks)]
    proposed = [_proposal(folder, spec, number, attempts.get(number)) for number in lost]
    found = [record for record in proposed if record]
    history = _fold(journal, [*records, *found])
    ends = [
        _end(folder, spec, number, when, attempts.get(number))
        for number, when in sorted(settled.items(), key=lambda item: item[1])
        if number in history.proposals
        and history.last_outcome(number) is None
        and number not in history.reopened
        and _is_own(folder, spec, number, RESULT_FILE, marks)
    ]
    ended = [record for record in ends if record]
    said = [record for record in changed if record]
    won = [] if history.won or not ended else _winner(folder, history, len(ended))
    text = _describe(found, ended, said, len(refused))
    if not text and find_breaks(lines):
        text = "let each line name the one before it"
    if not text and is_older(marks.journals.get(spec.slug), lines):
        text = "let it count as it is, without last lines that no other record holds"
    if text:
        again = f"{text}; the journal as it is now is kept beside it"
        yield Repair(folder.journal, again, lambda: _rewrite(journal, records, [*found, *ended, *won]))
    end = _job_end(folder, node, attempts.get(None)) if None in settled and _read_trial(folder, node) else None
    if not end or history.last_outcome(None) is not None or None in history.reopened:
        return
    if read_end(folder, node, end, spec).ok:

        def settle() -> None:
            settle_final(folder, node, end)

        text = "say again how the final training ended, and make its model the champion"
        yield Repair(folder.journal, text, settle)


def _describe(found: Sequence[Record], ended: Sequence[Record], said: Sequence[Record], refused: int) -> str:
    """Say what would be written; nothing where nothing would."""
    proposed, lost, changed = (name_trials([record["trial"] for record in some]) for some in (found, ended, said))
    parts = (
        f"say again what was proposed as {proposed}" if found else "",
        f"say again how {lost} ended" if ended else "",
        f"say as their results do how {changed} ended" if said else "",
        f"leave out {refused} lines that are none of this journal" if refused else "",
    )
    return " and ".join(filter(None, parts))


def _is_own(folder: RegionFolder, spec: RegionSpec, number: int | None, name: str, marks: Marks) -> bool:
    """Return whether a file of a node may speak for it: it is what manager.log has the digest of, if any."""
    return not marks.differs(folder, NodeName(spec.slug, number), name)


def _winner(folder: RegionFolder, history: History, more: int) -> list[Record]:
    """Return the line that named the winning trial, by the champion that came of it."""
    try:
        winner = json.loads(folder.champion_metrics.read_text(encoding="utf-8"))["trial"]
        when = folder.decisions.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if winner not in history.proposals:
        return []
    return [{"event": "won", "time": round(when, 3), "trial": winner, "of": history.ended + more}]


def _read_records(journal: Journal, lines: Sequence[bytes]) -> tuple[list[Record], list[bytes]]:
    """Return the lines that are records of this run and region, each once, and the others."""
    records, refused, seen = [], [], set()
    for number, line in enumerate(lines, start=1):
        alone = History()
        try:
            journal.fold(alone, number, line)
        except RegiondagError:
            alone.strangers.append(number)
        if alone.strangers:
            refused.append(line)
            continue
        if line not in seen:
            records.append(json.loads(line))
        seen.add(line)
    return records, refused


def _fold(journal: Journal, records: Sequence[Record]) -> History:
    history = History()
    for number, record in enumerate(records, start=1):
        journal.fold(history, number, json.dumps(record).encode())
    return history


def _proposal(folder: RegionFolder, spec: RegionSpec, number: int, attempt: Attempt | None) -> Record | None:
    """Return the line that proposed a trial, by its trial.json; None where that cannot be read."""
    node = NodeName(spec.slug, number)
    trial = _read_trial(folder, node)
    if trial is None:
        return None
    path = folder.trial(node) / TRIAL_FILE
    when = attempt.queued.start if attempt else path.stat().st_mtime
    return {"event": "proposed", "time": round(when, 3), "trial": number, "point": _point(spec, trial)}


def _point(spec: RegionSpec, trial: Trial) -> dict[str, Value]:
    """Return the point of the space that a trial is of."""
    if trial.recipe is not None:
        return {FAMILY: trial.recipe.family} if trial.recipe.members else point_of(trial.recipe)
    said = {FAMILY: NETWORK, **asdict(trial.train), **trial.hyperparameters}
    known = {one.name: said[one.name] for one in spec.search.space if one.name in said}
    return without_inactive(spec.search.space, known)


def _end(
    folder: RegionFolder, spec: RegionSpec, number: int | None, when: float, attempt: Attempt | None
) -> Record | None:
    """Return the line that settled a trial, by what its job has left; None where nothing says how it ended."""
    node = NodeName(spec.slug, number)
    end = _job_end(folder, node, attempt)
    if number is None or end is None:
        return None
    return {"event": "settled", "time": round(when, 3), **asdict(read_end(folder, node, end, spec))}


def _unchanged(folder: RegionFolder, spec: RegionSpec, record: Record) -> Record | None:
    """Return the line that settled a trial as it was, where its result is the one that the line was made of."""
    number, digest = record.get("trial"), record.get("result")
    if record["event"] != "settled" or number is None or not digest:
        return None
    node = NodeName(spec.slug, number)
    result = read_result(folder.trial(node) / RESULT_FILE)
    if result is None or result.status not in ENDED_WELL or _digest(folder.trial(node) / RESULT_FILE) != digest:
        return None
    end = JobEnd(Exit.OK, 0, 0, job=record.get("job", ""))
    whole: Record = {**record, **json.loads(json.dumps(asdict(read_end(folder, node, end, spec))))}
    return whole if any(whole[name] != record.get(name) for name in ("status", "value", "metrics", "curve")) else None


def _job_end(folder: RegionFolder, node: NodeName, attempt: Attempt | None) -> JobEnd | None:
    """Return how the last job of a node ended, by its event log, or else by its result."""
    if attempt and attempt.exit_code is not None:
        return JobEnd(attempt.exit_code, 0, 0, job=attempt.job)
    if attempt and attempt.signal is not None:
        return JobEnd(SIGNALLED, 0, 0, job=attempt.job)
    result = read_result(folder.trial(node) / RESULT_FILE)
    return JobEnd(Exit.OK, 0, 0) if result and result.status in ENDED_WELL else None


def _rewrite(journal: Journal, records: Sequence[Record], new: Sequence[Record]) -> None:
    """Write the journal anew, each new record before the first known one that is later; keep the old one."""
    with journal.locked():
        whole = list(records)
        for record in new:
            later = (at for at, known in enumerate(whole) if known.get("time", 0.0) > record["time"])
            whole.insert(next(later, len(whole)), record)
        last = max((one.get("time", 0.0) for one in whole), default=0.0)
        whole.append({"event": "repaired", "time": last, "lines": len(new)})
        if journal.path.exists():
            shutil.copy2(journal.path, _free_name(journal.path))
        write_atomically(journal.path, chain(({"time": 0.0, **record} for record in whole), journal.run_id))
        note_repaired(RegionFolder(journal.path.parent))


def _free_name(path: Path) -> Path:
    numbers = iter(range(1, 10_000))
    return next(other for number in numbers if not (other := path.with_name(f"{path.name}.before-{number}")).exists())


# --- the champion --------------------------------------------------------------------------------------------


def _plan_champion(folder: RegionFolder, spec: RegionSpec) -> Iterator[Repair]:
    """Yield what serves, where the final training's files are left, or another region's champion."""
    journal = Journal(folder.journal)
    try:
        history = journal.read()
    except RegiondagError:
        return  # it is repaired first
    final = history.final
    if final is None or not final.ok:
        return
    node = NodeName(spec.slug, None)
    place = folder.trial(node)
    result, model = read_result(place / RESULT_FILE), place / spec.outputs.model
    if _is_champion_whole(folder):
        return
    if spec.served_by and not final.job:
        text = "give the region again what serves it"
        yield Repair(folder.champion_metrics, text, _serving(folder, spec))
    elif result and _digest(model) == result.model and _read_trial(folder, node):
        won = history.won[0] if history.won else None
        text = "make it again from the final training's files"
        yield Repair(folder.champion_metrics, text, _writing_champion(folder, node, final, spec, won))


def _serving(folder: RegionFolder, spec: RegionSpec) -> Callable[[], None]:
    def serve() -> None:
        serve_region(folder, spec, Journal(folder.journal))

    return serve


def _writing_champion(
    folder: RegionFolder, node: NodeName, final: TrialOutcome, spec: RegionSpec, won: int | None
) -> Callable[[], None]:
    return lambda: write_champion(folder, node, final, spec, won)


def _is_champion_whole(folder: RegionFolder) -> bool:
    try:
        facts = json.loads(folder.champion_metrics.read_text(encoding="utf-8"))
        return bool(facts["sha256"] == _digest(folder.champion_model))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _read_trial(folder: RegionFolder, node: NodeName) -> Trial | None:
    try:
        return trial_from_json((folder.trial(node) / TRIAL_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ContractError):
        return None


def _copying(source: Path, path: Path) -> Callable[[], None]:
    def copy() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        copy_atomically(source, path)

    return copy


def _digest(path: str | Path) -> str:
    try:
        return sha256_of(Path(path))
    except OSError:
        return ""
