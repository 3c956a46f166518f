"""How many workers a queue asks for."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.fleet.demand import GpuRequest, WorkerSize, count_missing, count_wanted, fits

REQUESTS = st.dictionaries(st.integers(1, 10), st.integers(0, 50), max_size=5)
FREE = st.lists(st.integers(0, 8), max_size=12)
GPUS = st.integers(1, 8)


def packed_one_by_one(requests: dict[int, int], free: list[int], each: int) -> int:
    """The same, job by job and machine by machine: largest first, into the fullest that has room."""
    machines, added = [gpus for gpus in free if gpus > 0], 0
    for gpus in sorted(Counter(requests).elements(), reverse=True):
        if gpus > each:
            continue
        rooms = [room for room in machines if room >= gpus]
        if not rooms:
            machines.append(each)
            rooms = [each]
            added += 1
        machines.remove(min(rooms))
        machines.append(min(rooms) - gpus)
    return added


@given(REQUESTS, FREE, GPUS)
def test_counting_packs_as_well_as_one_job_after_the_other(requests, free, each):
    assert count_missing(requests, free, each) == packed_one_by_one(requests, free, each)


@given(st.integers(0, 100), FREE, GPUS)
def test_jobs_of_one_gpu_divide_evenly(jobs, free, each):
    assert count_missing({1: jobs}, free, each) == max(0, -(-(jobs - sum(free)) // each))


POWERS = st.sampled_from([1, 2, 4, 8])


@given(st.dictionaries(POWERS, st.integers(0, 50), max_size=4), st.lists(st.integers(0, 8), max_size=12), POWERS)
def test_what_is_added_is_enough(requests, free, each):
    """So no further worker is started when these have booted. Other sizes than powers of two may ask for one more."""
    added = count_missing(requests, free, each)
    assert count_missing(requests, [*free, *[each] * added], each) == 0


@given(REQUESTS, FREE, GPUS)
def test_what_is_added_is_not_too_much(requests, free, each):
    added = count_missing(requests, free, each)
    served = sum(count for gpus, count in requests.items() if gpus <= each)
    assert added <= served


@given(REQUESTS, FREE, GPUS, st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_wanted_stays_within_bounds_and_never_stops_what_runs(requests, free, each, running, low, more):
    number = count_wanted(requests, free, each, running, low, low + more)
    assert number >= max(running, low)
    assert number <= max(running, low + more)


@given(FREE, GPUS, st.integers(0, 5))
def test_an_empty_queue_asks_for_nothing(free, each, running):
    assert count_wanted({}, free, each, running, 0, 10) == running


@pytest.mark.parametrize(
    ("requests", "free", "each", "added"),
    [
        ({1: 4}, [], 4, 1),
        ({1: 5}, [], 4, 2),
        ({1: 5}, [1], 4, 1),
        ({3: 2}, [2], 4, 2),  # two machines: 3 + 3 do not fit on one
        ({3: 1, 1: 1}, [], 4, 1),
        ({2: 1}, [1, 1], 2, 1),  # one GPU here and one there are not two
        ({8: 3}, [], 4, 0),  # nobody can serve these
    ],
)
def test_examples(requests, free, each, added):
    assert count_missing(requests, free, each) == added


def test_a_job_must_fit_in_every_respect():
    size = WorkerSize(gpus=1, cpus=4, memory_mb=16_000)
    assert fits(GpuRequest(1, 4, 14_000), size)
    for request in (GpuRequest(2, 1, 1), GpuRequest(1, 5, 1), GpuRequest(1, 1, 15_000)):
        assert not fits(request, size)
