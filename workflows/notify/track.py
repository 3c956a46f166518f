"""Give each ended training to MLflow, once: what the server has is noted beside the trials, the rest is sent later.

A POST gives at most a few seconds, and none for a while after a failure; the last node's, and
`regiondag notify STUDY --track`, send all that is left.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nnlib.contract import RESULT_FILE
from nnlib.util.files import append_lines, locked, write_atomically
from regiondag.errors import RegiondagError
from regiondag.notify.mlflow import PATIENCE, NotTrackedError, RefusedError, Server
from regiondag.notify.send import NotSentError
from regiondag.notify.tracked import TrackedRun, describe_training, list_ended, name_model
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder, RunFolder
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.study.track import Track, track_from_json

POST_SECONDS, LAST_SECONDS = 5.0, 30.0  # what a node's POST gives to it, and the last node's
CALM = 30.0  # seconds that the server may be silent where nobody waits
PAUSE = 60.0  # seconds after a failure in which no node's POST tries
BEGUN, SENT, REFUSED = "begun", "sent", "refused"


@dataclass(frozen=True, slots=True)
class Contact:
    """How it last went with the server."""

    server: str = ""
    experiment: str = ""  # its id there
    failed: str = ""  # why
    time: float = 0.0  # Unix time


def read_track(run: RunFolder) -> Track | None:
    """Return where a run is tracked; None for nowhere. RegiondagError for a damaged file."""
    try:
        return track_from_json(run.track.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RegiondagError(f"{run.track} is damaged: {error}; nothing of this run is tracked") from error


def track_post(run: RunFolder, slugs: Iterable[str], last: bool, now: float) -> list[str]:
    """Send what some regions have and the server lacks; return what to note in manager.log.

    It ends in time whatever the server does, and raises nothing but RegiondagError.
    """
    settings = read_track(run)
    if settings is None:
        return []
    contact = _read_contact(run)
    if not last and contact.failed and 0 <= now - contact.time < PAUSE:
        return []
    said: list[str] = []
    seconds = LAST_SECONDS if last else POST_SECONDS

    def work() -> None:
        try:
            said.extend(track_run(run, settings, slugs, time.monotonic() + seconds))
        except RegiondagError as error:
            said.append(f"mlflow: {error}")

    thread = threading.Thread(target=work, daemon=True)  # a name server, or an answer a byte a second, knows no limit
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _note_failure(run, settings, f"no end within {seconds:g} s")
        return [*said, f"mlflow: no end within {seconds:g} s; what is not sent is sent later"]
    return said


def track_run(run: RunFolder, settings: Track, slugs: Iterable[str], deadline: float, again: bool = False) -> list[str]:
    """Send what some regions have and the server lacks, until `deadline` (of the monotonic clock).

    With `again` also what the server has refused. Returns what is to be said; nothing where there was nothing to send.
    """
    said: list[str] = []
    sent, session = 0, _Session(run, settings, CALM if again else PATIENCE)
    try:
        for slug in slugs:
            for run_sent in _track_region(run.region(slug), session, deadline, again, said.append):
                sent += run_sent
    except (NotTrackedError, NotSentError) as error:
        _note_failure(run, settings, str(error))
        said.append(f"mlflow: NOT sent: {error}; it is sent later")
    finally:
        session.close()
    return [f"mlflow: {sent} sent"] * (sent > 0) + said


def count_left(run: RunFolder, slugs: Iterable[str]) -> int:
    """Return how many ends of trainings the server lacks."""
    left = 0
    for folder in map(run.region, slugs):
        steps = _read_steps(folder.tracked)
        ended = list_ended(Journal(folder.journal).read(), folder.path.name, run.path.name)
        left += sum(steps.get(key) != SENT for key, *_ in ended)
    return left


class _Session:
    """The server and the study's experiment there, both asked for when the first training is to be sent."""

    def __init__(self, run: RunFolder, settings: Track, patience: float) -> None:
        self._run, self._settings, self._patience = run, settings, patience
        self._server: Server | None = None
        self._experiment = ""

    def send(self, training: TrackedRun, study: str, name: str, begun: bool) -> None:
        """Send one training; `begun`: it may be that an earlier try came half through. `name` is that of its model."""
        server = self._server = self._server or Server(self._settings, self._patience)
        if not self._experiment:
            before = _read_contact(self._run)
            known = before.server == self._settings.mlflow and not before.failed
            self._experiment = (before.experiment if known else "") or server.find_experiment(study)
            if not known or not before.experiment:
                _write_contact(self._run, Contact(self._settings.mlflow, self._experiment))
        run_id = server.find_run(self._experiment, training.key) if begun else ""
        run_id = run_id or server.create_run(self._experiment, training)
        server.fill_run(run_id, training)
        if training.model and self._settings.models:
            server.add_model(name, run_id, training.model)

    def close(self) -> None:
        if self._server:
            self._server.close()


def _track_region(
    folder: RegionFolder, session: _Session, deadline: float, again: bool, say: Callable[[str], None]
) -> Iterator[bool]:
    """Send a region's trainings, one after another; yield of each whether it went."""
    if not folder.journal.exists():  # it is searched for with others
        return
    try:
        with locked(folder.tracked.with_suffix(".lock"), wait=False):
            steps = _read_steps(folder.tracked)
            done = {SENT} if again else {SENT, REFUSED}
            history = Journal(folder.journal).read()
            ended = list_ended(history, folder.path.name, folder.run.path.name)
            left = [end for end in ended if steps.get(end[0]) not in done]
            spec = read_spec(folder.spec) if left else None
            for key, node, outcome, when in left:
                if spec is None or time.monotonic() >= deadline:
                    return
                point = history.proposals[node.number].point if node.number in history.proposals else {}
                settings, tags = _look_up(folder, spec, node, outcome, dict(point))
                training = describe_training(key, node, outcome, when, spec.metric.name, settings, tags)
                if "champion" in tags:
                    training = replace(training, model=folder.champion_model)
                if key not in steps:
                    _note_step(folder.tracked, key, BEGUN)
                try:
                    session.send(training, spec.study, name_model(spec.study, spec.slug), key in steps)
                except RefusedError as error:
                    _note_step(folder.tracked, key, REFUSED)
                    say(f"mlflow: {node}: refused: {error}")
                    yield False
                    continue
                _note_step(folder.tracked, key, SENT)
                yield True
    except BlockingIOError:
        return  # another script sends what this region has


def _look_up(
    folder: RegionFolder, spec: RegionSpec, node: NodeName, outcome: TrialOutcome, settings: dict[str, object]
) -> tuple[dict[str, object], dict[str, str]]:
    """Return a training's hyperparameters, and tags that say of what it is and where its files lie."""
    tags = {"study": spec.study, "region": spec.name, "run": folder.run.path.name}
    if outcome.result:
        tags |= {"result": str((folder.trial(node) / RESULT_FILE).absolute()), "result.sha256": outcome.result}
    if node.number is None and outcome.ok:
        facts = _read_object(folder.champion_metrics)
        settings = facts.get("hyperparameters") or {}
        path = str(folder.champion_model.absolute())
        tags |= {"champion": "true", "artifact": path, "artifact.sha256": str(facts.get("sha256", ""))}
    return settings, tags


def _read_steps(path: Path) -> dict[str, str]:
    """Return how far each training came; a torn line is passed over, and then looked for on the server."""
    steps: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    for line in lines:
        try:
            raw = json.loads(line)
            steps[str(raw["key"])] = str(raw["step"])
        except (ValueError, KeyError, TypeError):
            continue
    return steps


def _note_step(path: Path, key: str, step: str) -> None:
    append_lines(path, json.dumps({"key": key, "step": step}, ensure_ascii=False) + "\n")


def _read_contact(run: RunFolder) -> Contact:
    raw = _read_object(run.tracked)
    try:
        return Contact(str(raw["server"]), str(raw["experiment"]), str(raw["failed"]), float(raw["time"]))
    except (KeyError, ValueError, TypeError):
        return Contact()


def _note_failure(run: RunFolder, settings: Track, why: str) -> None:
    """Note it; the experiment is asked for anew then, as another server may stand there."""
    _write_contact(run, Contact(settings.mlflow, "", why, round(time.time(), 3)))


def _write_contact(run: RunFolder, contact: Contact) -> None:
    write_atomically(run.tracked, json.dumps(asdict(contact), indent=1, ensure_ascii=False) + "\n")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}
