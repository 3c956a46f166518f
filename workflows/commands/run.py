"""`regiondag run STUDY`: from study.yaml to the report, in one command that goes on where it was."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.columns import print_folded
from nnlib.util.terminal import is_quiet, tell
from regiondag.commands._verbs import number, warn
from regiondag.commands.report import show_summary, write_and_say_page

if TYPE_CHECKING:
    from regiondag.monitor.status import RunStatus
    from regiondag.monitor.watch_view import Watched
    from regiondag.pipeline.run_study import Wishes
    from regiondag.run.layout import RunFolder
    from regiondag.run.study_folder import StudyFolder

HELP = "do all that is left to do: import, generate, doctor, submit, watch, report"
DESCRIPTION = """Take a study from study.yaml to the report: import its table where that has changed, start a pool
where none runs, make a run directory, check it against the pool, submit it, watch it, and print its report. Each step
is one line.

Called again it goes on where it was, whatever ended the call before: Ctrl-C, kill, a reboot. A run in progress is
watched; one that is not finished is submitted again, which keeps what is done; when the table, a network or study.yaml
has changed since, the next run is made; and when nothing is new, the last result is shown.

Ctrl-C while it watches leaves the run alone.

Exit codes: 0 every region has its champion (with --detach: submitted), 1 some have none, and why is printed, 2
study.yaml or the table is wrong, 5 no pool, 6 the run would not work on this pool, 130 Ctrl-C."""
EPILOG = """examples:
  regiondag run shop
  regiondag run shop --detach
  regiondag run shop --json | jq .exit_code"""

LOOK_EVERY = 2.0  # seconds
LINE_EVERY = 10.0  # seconds, where stderr is no terminal
COST = 10  # a look may take so many times less than the time to the next


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("study", type=Path, metavar="STUDY", help="folder with a study.yaml, or that file")
    parser.add_argument("--new", action="store_true", help="make a new run of all regions, even with nothing new")
    parser.add_argument("--detach", action="store_true", help="submit, and do not wait for the end")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where run directories go (default: runs/ beside study.yaml)"
    )
    parser.add_argument(
        "--interval",
        type=number(float, 0.2, 3600),
        default=LOOK_EVERY,
        metavar="SECONDS",
        help=f"between two looks while it watches (default: {LOOK_EVERY:g})",
    )
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Run the study; tell how it can be seen again where it was left."""
    from regiondag.condor.events.log import read_attempts
    from regiondag.pipeline.run_study import Outlet, Wishes, run_study
    from regiondag.run.study_folder import StudyFolder, find_study

    found = find_study(arguments.study, arguments.out)
    study = StudyFolder(found.study, found.runs.resolve())
    wishes = Wishes(arguments.pool, anew=arguments.new, detach=arguments.detach, call=_call(arguments))
    screen = _Screen(arguments, study)
    try:
        outcome = run_study(study, wishes, Outlet(screen.step, tell, warn, screen.show))
    except KeyboardInterrupt:
        screen.leave()
        if screen.run is None:
            tell(f"\ninterrupted; to go on: {wishes.call}")
        else:
            _say_how_to_look(screen.run, wishes)
        return 130
    if arguments.json:
        print(json.dumps(dataclasses.asdict(outcome), ensure_ascii=False), flush=True)
    if outcome.summary is None:
        _say_how_to_look(outcome.folder, wishes)
        return outcome.exit_code
    if not arguments.json:
        show_summary(outcome.folder, outcome.summary)
    attempts = read_attempts(outcome.folder)
    write_and_say_page(outcome.folder, outcome.summary, attempts, sys.stderr if arguments.json else sys.stdout)
    return outcome.exit_code


def _call(arguments: argparse.Namespace) -> str:
    """Return how to say the same again."""
    words = ["regiondag", "run", str(arguments.study)]
    words += ["--out", str(arguments.out)] if arguments.out else []
    words += ["--pool", arguments.pool] if arguments.pool else []
    return shlex.join(words)


def _say_how_to_look(run: RunFolder, wishes: Wishes) -> None:
    from regiondag.pipeline.run_study import find_dagmans, stop_line

    dagmans = find_dagmans(run)
    if not dagmans:
        tell(f"{run.path.name} has ended; its report: {wishes.call}")
        return
    tell(
        f"""The run goes on by itself. To see it again, and its report:
  {wishes.call}
To stop it, until `regiondag run` goes on with it:
  {stop_line(dagmans, wishes.pool)}"""
    )


class _Screen:
    """What is said on stderr on the way."""

    def __init__(self, arguments: argparse.Namespace, study: StudyFolder) -> None:
        from regiondag.util.redraw import Redraw, can_redraw

        self.interval: float = arguments.interval
        self.study = study
        self.run: RunFolder | None = None  # that is watched
        self.watched: Watched | None = None
        self.redraw = Redraw(sys.stderr) if can_redraw(sys.stderr) else None
        self.said, self.said_at = "", 0.0

    def step(self, name: str, text: str) -> None:
        """Say what came of a step."""
        self.leave()
        self.run = None
        if not is_quiet():
            print_folded(f"==> {name}: {text}", sys.stderr, indent="    ")

    def leave(self) -> None:
        """Let the last picture stand."""
        if self.redraw:
            self.redraw.leave()

    def show(self, run: RunFolder, status: RunStatus) -> float:
        """Show where a run stands; return when to look again."""
        from nnlib.util.terminal import width_of
        from regiondag.monitor.watch_view import draw
        from regiondag.util.redraw import height_of

        begun = time.monotonic()
        if self.watched is None:
            self.watched = self._begin(run)
            tell("==> watch: Ctrl-C leaves it running")
        self.run, now = run, time.time()
        self.watched.look(status, now)
        if self.redraw and not is_quiet():
            size = width_of(sys.stderr), height_of(sys.stderr)
            self.redraw.show(draw(status, self.watched, now, *size))
        elif not is_quiet():
            self._say(status, self.watched, now)
        return max(self.interval, COST * (time.monotonic() - begun))

    def _begin(self, run: RunFolder) -> Watched:
        from regiondag.monitor.pace import read_pace
        from regiondag.monitor.watch_view import Watched

        return Watched(read_pace(other for other in self.study.list_runs() if other != run))

    def _say(self, status: RunStatus, watched: Watched, now: float) -> None:
        """Say a line where something has changed, now and then."""
        from regiondag.monitor.watch_view import headline

        counts = str([(one.done, one.failed, one.running, one.held, one.final) for one in status.regions])
        if status.over or (counts != self.said and now - self.said_at >= LINE_EVERY):
            warn(f"{time.strftime('%H:%M:%S', time.localtime(now))} {headline(status, watched, now)}")
            self.said, self.said_at = counts, now
