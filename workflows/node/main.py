"""What DAGMan's PRE and POST scripts run: `pre RUN NODE RETRY`,
`post RUN NODE RETURN RETRY MAX_RETRIES DAG_STATUS JOBID` and, for the last node, `post RUN report DAG_STATUS [SLUG]`:
the regions of its DAG, none for all of them.

Packed into the run directory, so that a run in progress never meets newer code. What is printed goes to manager.log.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from regiondag.errors import GiveUpError, RegiondagError, TryAgainError
from regiondag.run.layout import REPORT_NODE, SETTLED_BEFORE, NodeName, RunFolder, parse_node
from regiondag.run.manager_log import say

if TYPE_CHECKING:
    from regiondag.condor.events.attempts import Attempt
    from regiondag.report.bill import Bill
    from regiondag.report.summary import Summary

DAG_REMOVED = 4  # $DAG_STATUS while DAGMan obeys a condor_rm of itself
PAUSES = (5, 20, 60)  # seconds that POST waits for room on a full disk: the next try would train again


def main(argv: list[str] | None = None) -> int:
    """Run one script; the exit code is the script's."""
    words = sys.argv[1:] if argv is None else argv
    note = " ".join(words[:1] + words[2:])
    try:
        kind, run, node, *numbers = words
        code = _pre(RunFolder(Path(run)), node) if kind == "pre" else _post(RunFolder(Path(run)), node, numbers)
    except RegiondagError as error:
        say(f"{note}: exit {error.exit_code}: {error}")
        return error.exit_code
    except OSError as error:  # a full disk, a folder that may not be written: nobody's bug, and nothing is half done
        code = TryAgainError.exit_code
        say(f"{note}: exit {code}: {_why(error)}; when that is mended, submit the DAG again")
        return code
    except Exception:
        say(f"{note}: exit 1: {_bug()}")
        return 1
    say(f"{note}: exit {code}{'' if code else _mark(RunFolder(Path(run)), kind, node)}")
    return code


def _mark(run: RunFolder, kind: str, name: str) -> str:
    """Return what is noted of the records that a script has written; the report's are none."""
    from regiondag.node.journal_mark import mark

    if name == REPORT_NODE:
        return ""
    node = parse_node(name)
    return mark(run.region(node.slug), kind, node)


def _refuse_copy(run: RunFolder, node: NodeName) -> None:
    """Raise GiveUpError where the DAG is not this folder's: that of a copy names the scripts of the run it is of."""
    log = os.environ.get("_CONDOR_DAGMAN_LOG", "")
    theirs = Path(log).parent  # a run, or a region of one; any other folder has a DAG of the user's own
    if not log or not any(RunFolder(place).manifest.is_file() for place in (theirs, theirs.parent.parent)):
        return
    if any(theirs.samefile(own) for own in (run.path, run.region(node.slug).path)):
        return
    raise GiveUpError(
        f"the DAG in {theirs} is a copy's and would work on {run.path}; nothing was done: remove it from the queue, "
        f"then type: regiondag submit {run.path}"
    )


def _pre(run: RunFolder, name: str) -> int:
    from regiondag.run.journal import Journal

    node = parse_node(name)
    _refuse_copy(run, node)
    if node.number is None:
        from regiondag.node.pre_final import prepare_final as prepare
    else:
        from regiondag.node.pre import prepare_trial as prepare
    folder = run.region(node.slug)
    journal = Journal(folder.journal)
    try:
        ready = prepare(folder, node)
    except GiveUpError as error:
        with journal.locked():
            journal.note_stop(node.number, str(error))
        raise
    with journal.locked():
        journal.note_resumed(node.number)
    return 0 if ready else SETTLED_BEFORE


def _post(run: RunFolder, name: str, numbers: list[str]) -> int:
    if name == REPORT_NODE:
        from regiondag.report.write import write_report

        dag_status, *slugs = numbers
        attempts, bill = _attempts(run)
        summary = write_report(run, bill)
        say(_page(run, summary, attempts))
        done = all(region.finished for region in summary.regions if not slugs or region.slug in slugs)
        good = int(dag_status) == 0 and done
        _track(run, [region.slug for region in summary.regions], last=True)
        _tell_end(run, summary, slugs, good)
        return 0 if good else 1  # the last node's result is the DAG's own
    from regiondag.node.post import JobEnd, settle_final, settle_trial

    node = parse_node(name)
    settle = settle_final if node.number is None else settle_trial
    *counts, job = numbers
    exit_code, retry, max_retries, status = map(int, counts)
    submitted = job if re.fullmatch(r"[0-9]+\.[0-9]+", job) else ""
    end = JobEnd(exit_code, retry, max_retries, status == DAG_REMOVED, submitted)
    try:
        _wait_for_room(lambda: settle(run.region(node.slug), node, end), name)
    finally:
        _track(run, [node.slug])
    return 0


def _wait_for_room(settle: Callable[[], object], name: str) -> None:
    """Settle an end, again after a while where the disk is full. Raises OSError where it stays so."""
    for pause in PAUSES:
        try:
            settle()
            return
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            say(f"post {name}: {_why(error)}; tried again in {pause} s")
            time.sleep(pause)
    settle()


def _attempts(run: RunFolder) -> tuple[list[Attempt], Bill]:
    """Return what became of the run's jobs and what they took; the report stands without."""
    from regiondag.condor.events.log import read_attempts
    from regiondag.report.bill import Bill, read_bill

    try:
        attempts = read_attempts(run)
        return attempts, read_bill(attempts, None, time.time())
    except Exception as error:
        say(f"the report has no costs: {_why(error)}")
        return [], Bill()


def _page(run: RunFolder, summary: Summary, attempts: Sequence[Attempt]) -> str:
    """Write the report's page, and say what became of it: whatever goes wrong with it is no failure of the DAG."""
    try:
        from regiondag.report.page import read_packed_shell, write_page

        return f"wrote {write_page(run, summary, read_packed_shell(), attempts=attempts)}"
    except RegiondagError as error:
        return f"the report has {error}"
    except Exception as error:
        return f"the report has no page: {_why(error)}"


def _tell_end(run: RunFolder, summary: Summary, slugs: Sequence[str], good: bool) -> None:
    """Tell whom study.yaml names; whatever goes wrong with it is no failure of the DAG."""
    try:
        from regiondag.notify.deliver import tell_end

        own = tuple(region for region in summary.regions if not slugs or region.slug in slugs)
        for line in tell_end(run, replace(summary, regions=own), good, time.time()):
            say(line)
    except Exception as error:
        say(f"notify: {_why(error)}")


def _track(run: RunFolder, slugs: Sequence[str], last: bool = False) -> None:
    """Give MLflow what has ended, where study.yaml names one; whatever goes wrong with it is no failure of the DAG."""
    if not run.track.exists():
        return
    try:
        from regiondag.notify.track import track_post

        for line in track_post(run, slugs, last, time.time()):
            say(line)
    except Exception as error:
        say(f"mlflow: {_why(error)}")


def _why(error: Exception) -> str:
    """Return why something beside the work itself failed: in a line, unless that is a bug."""
    if isinstance(error, OSError):
        from nnlib.util.os_errors import describe  # scripts start faster without

        return describe(error)
    return str(error) if isinstance(error, RegiondagError) else _bug()


def _bug() -> str:
    import traceback  # scripts start faster without

    return f"a bug\n{traceback.format_exc()}"
