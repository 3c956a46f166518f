"""The event log of DAGMan's own job: whole, torn, of a DAGMan that crashed."""

from __future__ import annotations

import pytest

from regiondag.condor.events.dag_log import DagState, read_dag_log

HEAD = "{:03d} ({:03d}.000.000) 2026-11-22 05:00:{:02d} "


def event(code, text, second=0, cluster=7):
    return f"{HEAD.format(code, cluster, second)}{text}\n...\n"


SUBMITTED = event(0, "Job submitted from host: <127.0.0.1:1>")
STARTED = event(1, "Job executing on host: <127.0.0.1:1>", 1)
ENDED = event(5, "Job terminated.\n\t(1) Normal termination (return value 4)", 9)


def state(tmp_path, text) -> DagState | None:
    path = tmp_path / "study.dag.dagman.log"
    path.write_text(text, encoding="utf-8")
    return read_dag_log(path)


def test_none_before_it_is_submitted(tmp_path):
    assert read_dag_log(tmp_path / "none") is None
    assert state(tmp_path, "") is None


@pytest.mark.parametrize(
    ("text", "status", "exit_code", "signal"),
    [
        (SUBMITTED, "idle", None, None),
        (SUBMITTED + STARTED, "running", None, None),
        (SUBMITTED + STARTED + event(12, "Job was held.\n\tno room\n\tCode 1 Subcode 0", 2), "held", None, None),
        (SUBMITTED + STARTED + ENDED, "ended", 4, None),
        (SUBMITTED + STARTED + ENDED[:-4], "running", None, None),
        (SUBMITTED + event(9, "Job was aborted.\n\tby hand", 3), "removed", None, None),
        (SUBMITTED + event(5, "Job terminated.\n\t(0) Abnormal termination (signal 11)", 3), "ended", None, 11),
        (SUBMITTED + STARTED[:20] + ENDED, "ended", 4, None),  # a full disk tore it
        (SUBMITTED + STARTED + event(28, "Job ad information event triggered.", 4), "running", None, None),
    ],
)
def test_states(tmp_path, text, status, exit_code, signal):
    found = state(tmp_path, text)
    assert found is not None
    assert (found.cluster, found.status, found.exit_code, found.signal) == (7, status, exit_code, signal)
    assert (found.ended is None) is (status not in ("ended", "removed")) and found.started is not None


def test_the_last_submission_counts(tmp_path):
    found = state(tmp_path, SUBMITTED + ENDED + event(0, "Job submitted from host: <x>", 30, cluster=9))
    assert found is not None and (found.cluster, found.status, found.ended) == (9, "idle", None)
