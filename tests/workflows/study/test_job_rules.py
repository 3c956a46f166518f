"""The rules by which jobs end that do not end by themselves."""

from __future__ import annotations

import pytest

from regiondag.study.job_rules import (
    BY_THE_USER,
    LEASE,
    MOST_RELEASES,
    PASSING,
    RELEASE_AFTER,
    gpus_after,
    memory_after,
    memory_steps,
)
from regiondag.study.model import JobRequest

GIB = 1 << 30


def test_memory_doubles_up_to_the_most():
    job = JobRequest(memory=4 * GIB, memory_max=20 * GIB)
    assert memory_steps(job, job.memory) == [8 * GIB, 16 * GIB, 20 * GIB]
    assert [memory_after(job, times) for times in range(5)] == [size * GIB for size in (4, 8, 16, 20, 20)]
    assert memory_steps(JobRequest(memory=4 * GIB, memory_max=8 * GIB), 4 * GIB) == [8 * GIB]


def test_gpus_are_halved_down_to_the_fewest():
    job = JobRequest(gpus=8, fewest_gpus=2)
    assert [gpus_after(job, times) for times in range(5)] == [8, 4, 2, 2, 2]
    assert [gpus_after(JobRequest(gpus=4), times) for times in range(3)] == [4, 4, 4]
    assert gpus_after(JobRequest(gpus=0), 1) == 0


@pytest.mark.parametrize("most", [None, 4 * GIB])
def test_memory_stays_where_no_more_may_be_asked_for(most):
    job = JobRequest(memory=4 * GIB, memory_max=most)
    assert memory_steps(job, job.memory) == []
    assert [memory_after(job, times) for times in range(3)] == [4 * GIB] * 3


def test_holds_that_may_pass_are_those_of_files_processes_and_transfers():
    """FailedToCreateProcess to IwdError, InvalidTransferGoAhead, HookPrepareJobFailure, FailedToCheckpoint."""
    assert set(PASSING) == {*range(6, 15), 18, 19, 36}
    assert BY_THE_USER == 1 and BY_THE_USER not in PASSING  # UserRequest


def test_what_the_readme_promises():
    """Released up to three times, after 1, 2 and 3 minutes; a machine that vanishes is given up after ten minutes."""
    assert (MOST_RELEASES, RELEASE_AFTER, LEASE) == (3, 60, 10 * 60)
