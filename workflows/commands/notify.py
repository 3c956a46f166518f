"""`regiondag notify STUDY`: whom a study tells how its runs end; try it, and ask whether a night was missed."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import warn
from regiondag.errors import UsageError
from regiondag.run.layout import JOURNAL_FILE

if TYPE_CHECKING:
    from regiondag.run.study_folder import StudyFolder
    from regiondag.study.notify import Notify
    from regiondag.study.track import Track

HELP = "show or try whom a study tells how its runs end; ask whether a night was missed"
DESCRIPTION = """Show whom `notify` in study.yaml names, and what became of the newest run's message. The DAG's last
node sends one message a run, whatever the run came to; one that does not arrive never fails a run.

--test sends a message by every way and says what came back; exit code 1 if one did not go. --missed asks whether the
nightly job began at all of its times, and tells it to the same people if it did not: exit code 1 then. --track sends
the server of MLflow that `track` in study.yaml names what it lacks, of all runs; exit code 1 if something did not
go."""
EPILOG = """examples:
  regiondag notify shop
  regiondag notify shop --test
  regiondag notify shop --track
  regiondag notify shop --missed     # for the cron of another machine, in case that this one sleeps"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("study", type=Path, metavar="STUDY", help="a study's folder, or its study.yaml")
    parser.add_argument(
        "--out", type=Path, metavar="RUNS", help="where its runs lie (default: runs/ beside study.yaml)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--test", action="store_true", help="send a test message")
    what.add_argument("--track", action="store_true", help="send MLflow the trials and champions that it lacks")
    what.add_argument("--missed", action="store_true", help="tell of times at which no nightly update began")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(arguments: argparse.Namespace) -> int:
    """Show, try or ask."""
    from regiondag.config.load import load_notify, load_track
    from regiondag.run.study_folder import find_study

    study = find_study(arguments.study, arguments.out)
    if arguments.track:
        return _track(study, load_track(study.study), arguments.json)
    settings = load_notify(study.study)
    if arguments.missed:
        return _ask(study, settings, arguments.json)
    if not settings.channels:
        raise UsageError(f"{study.study}: `notify` names nobody; legal: command, webhook or email below it")
    return _test(study, settings, arguments.json) if arguments.test else _show(study, settings, arguments.json)


def _test(study: StudyFolder, settings: Notify, as_json: bool) -> int:
    from regiondag.notify.deliver import send_all
    from regiondag.notify.message import note_test

    answers = send_all(settings, note_test(study.name, time.time()))
    if as_json:
        print(json.dumps({name: {"sent": sent, "answer": text} for name, (sent, text) in answers.items()}))
    else:
        for name, (sent, text) in answers.items():
            print(f"{name}: {'' if sent else 'NOT sent: '}{text}")
    for place in (settings.webhook, *settings.headers.values()):
        if place.startswith("env:"):
            warn(f"{place}: DAGMan's scripts, which tell how runs end, have no variables of yours: use file:PATH")
    return 0 if all(sent for sent, _ in answers.values()) else 1


def _track(study: StudyFolder, settings: Track | None, as_json: bool) -> int:
    """Send all that the study's runs have and the server lacks, the oldest run first."""
    from math import inf

    from regiondag.notify.track import count_left, track_run

    if settings is None:
        raise UsageError(f"{study.study}: `track` names no server; legal: track: {{mlflow: https://HOST}}")
    left: dict[str, int] = {}
    for run in reversed(study.list_runs()):
        slugs = sorted(journal.parent.name for journal in run.path.glob(f"regions/*/{JOURNAL_FILE}"))
        for line in track_run(run, settings, slugs, inf, again=True):
            tell(f"{run.path.name}: {line}")
        left[run.path.name] = count_left(run, slugs)
    if as_json:
        print(json.dumps({"server": settings.mlflow, "left": left}))
    else:
        print(f"{settings.mlflow} has all of {len(left)} runs" if not any(left.values()) else _say_left(left))
    return 1 if any(left.values()) else 0


def _say_left(left: Mapping[str, int]) -> str:
    return "\n".join(f"{run}: {count} NOT sent" for run, count in left.items() if count)


def _ask(study: StudyFolder, settings: Notify, as_json: bool) -> int:
    from dataclasses import replace

    from regiondag.update.nightly import nightly_folder
    from regiondag.update.nights import find_missed, read_nights, say_missed, tell_missed, write_nights

    path, now = nightly_folder(study.study, study.name).nights, time.time()
    nights = read_nights(path)
    if not nights.schedule:
        raise UsageError(f"{path.parent}: no nightly job; first: regiondag update {study.study} --cron '30 3 * * *'")
    times = find_missed(nights, now)
    if times:
        untold = tell_missed(lambda: settings, study.name, [*nights.untold, *say_missed(times)], tell)
        write_nights(path, replace(nights, since=now, untold=tuple(untold)))
    if as_json:
        print(json.dumps({"schedule": nights.schedule, "missed": times}))
    else:
        print(*(say_missed(times) or [f"an update began at all times of {nights.schedule!r}"]), sep="\n")
    return 1 if times else 0


def _show(study: StudyFolder, settings: Notify, as_json: bool) -> int:
    from dataclasses import asdict

    from regiondag.notify.deliver import read_noted

    runs = study.list_runs()[:1]
    noted = read_noted(runs[0]) if runs else None
    if as_json:
        last = {"run": runs[0].path.name, **asdict(noted)} if noted else None
        print(json.dumps({**asdict(settings), "last": last}, ensure_ascii=False))
        return 0
    ways = {"command": " ".join(settings.command), "webhook": settings.webhook, "email": ", ".join(settings.email)}
    for name in settings.channels:
        print(f"{name}: {ways[name]}")
    print(f"events: {', '.join(settings.events)}")
    if noted:
        arrived = [name for name, ids in noted.sent.items() if ids]
        print(f"{runs[0].path.name}: told by {', '.join(arrived) or 'no way yet'}")
        for name, why in noted.failed.items():
            print(f"{runs[0].path.name}: NOT sent: {name}: {why}")
    return 0
