"""What the watch keeps in mind: workers that never joined, and jobs that workers refused."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from regiondag.fleet.backoff import IN_A_ROW, Memory, advise, remember
from regiondag.fleet.demand import GpuRequest, Worker, WorkerSize, count_wanted
from regiondag.fleet.ec2 import Instance
from tests.workflows.fleet.conftest import REGION

SIZE = WorkerSize(1, 4, 16000)
JOB = GpuRequest(1, 1, 1000, job="7.0")
REFUSED = dataclasses.replace(JOB, refused=True)


def instance(name: str, *, draining: bool = False) -> Instance:
    return Instance(name, "g5.xlarge", f"{REGION}a", "running", "spot", 0.0, "peaceful" if draining else "")


def after(*looks: tuple[str, str]) -> Memory:
    """What is known after looks that saw these instances alive, and these in the pool; one with a ! drains."""
    memory = Memory()
    for alive, joined in looks:
        seen = [instance(name.rstrip("!"), draining=name.endswith("!")) for name in alive.split()]
        memory = remember(memory, seen, {name: Worker(name, 1, 1, 0) for name in joined.split()}, [])
    return memory


def halts(memory: Memory) -> bool:
    return advise(memory, [], SIZE, REGION).halt


def test_one_may_be_broken_two_in_a_row_are_not_chance():
    assert not halts(after(("a", ""), ("", "")))
    memory = after(("a", ""), ("", ""), ("b", ""), ("", ""))
    assert halts(memory)
    (note,) = advise(memory, [], SIZE, REGION).notes
    assert note.startswith("the last 2 workers that ended had never joined the pool, so no more are started until one")
    assert f"--region {REGION} --instance-id b | grep regiondag" in note
    assert halts(after(("a b", ""), ("", "")))


def test_one_that_boots_is_no_reason_and_one_that_joins_ends_it():
    assert not halts(after(("a b c", "")))
    assert halts(after(("a b c", ""), ("c", "")))
    assert not halts(after(("a b c", ""), ("c", ""), ("c", "c")))
    assert not halts(after(("a b", ""), ("", ""), ("c", "c"), ("c", "c"), ("", "")))
    assert not halts(after(("a", ""), ("b", "b"), ("", ""), ("c", ""), ("", "")))


def test_one_that_joined_long_ago_does_not_excuse_the_others():
    assert halts(after(("old", "old"), ("old a b", "old"), ("old", "old")))


def test_a_pool_that_forgets_its_workers_for_a_while_is_no_reason():
    assert not halts(after(("a b", "a b"), ("a b", ""), ("", "")))


def test_workers_that_were_asked_to_go_have_not_failed():
    assert not halts(after(("a b", ""), ("a! b!", ""), ("", "")))


def test_what_the_listing_left_out_once_has_not_ended():
    memory = after(("a b", ""), ("", ""), ("a b", ""))
    assert not halts(memory)
    assert memory.waiting == ("a", "b")


def known(*looks: tuple[str, list[GpuRequest]]) -> Memory:
    memory = Memory()
    for joined, requests in looks:
        memory = remember(memory, [], {name: Worker(name, 1, 1, 0) for name in joined.split()}, requests)
    return memory


def worth(memory: Memory, *requests: GpuRequest) -> list[str]:
    return [request.job for request in advise(memory, requests, SIZE, REGION).requests]


def test_jobs_that_two_workers_refused_are_worth_no_third():
    assert worth(known(("a", [REFUSED]), ("", [JOB])), JOB) == ["7.0"]
    memory = known(("a", [REFUSED]), ("", [JOB]), ("b", [REFUSED]), ("", [JOB]))
    other = GpuRequest(1, 1, 1000, job="8.0")
    assert worth(memory, JOB, other) == ["8.0"]
    (note,) = advise(memory, [JOB, other], SIZE, REGION).notes
    assert note.startswith("1 idle GPU jobs were refused by 2 or more workers that have ended since")


def test_one_worker_that_refuses_again_and_again_is_one():
    assert worth(known(*[("a", [REFUSED])] * 5, ("", [JOB])), JOB) == ["7.0"]


def test_jobs_that_a_worker_accepts_or_that_left_the_queue_start_anew():
    for between in (("c", [JOB]), ("", [])):
        assert worth(known(("a b", [REFUSED]), between, ("", [JOB])), JOB) == ["7.0"]


def test_workers_that_drain_neither_refuse_nor_accept():
    memory = remember(known(("a b", [REFUSED])), [], {"a": Worker("a", 1, 1, 0, draining=True)}, [JOB])
    assert worth(memory, JOB) == []


def test_what_a_worker_refuses_now_and_what_fits_nowhere_is_told_of_elsewhere():
    large = GpuRequest(2, 1, 1, job="9.0")
    memory = known(("a b", [REFUSED, dataclasses.replace(large, refused=True)]))
    assert worth(memory, REFUSED, large) == ["7.0", "9.0"]
    assert advise(memory, [REFUSED, large], SIZE, REGION).notes == ()


NAMES = st.frozensets(st.sampled_from("abcdef"))


@given(st.lists(st.tuples(NAMES, NAMES), max_size=12))
def test_no_instance_is_in_two_states(looks):
    memory, seen = Memory(), set()
    for alive, joined in looks:
        before = memory
        workers = {name: Worker(name, 1, 1, 0) for name in joined}
        memory = remember(memory, [instance(name) for name in sorted(alive)], workers, [])
        seen |= joined
        assert memory.joined == seen
        assert set(memory.waiting) == alive - seen
        assert not set(memory.gone) & (alive | seen)
        assert not memory.gone or seen == before.joined


@given(st.integers(1, 8), st.lists(st.integers(0, 8), min_size=1, max_size=40), st.integers(1, 5), st.booleans())
def test_what_is_paid_for_in_vain_has_an_end(maximum, queue, lifetime, join):
    """Workers never join, or refuse every job, and end after some looks; the queue's first jobs stay in it."""
    memory, alive, started = Memory(), {}, 0
    for jobs in queue:
        alive = {name: left - 1 for name, left in alive.items() if left > 1}
        workers = {name: Worker(name, 1, 1, 0) for name in alive} if join else {}
        requests = [
            GpuRequest(1, 1, 1, refused=bool(workers), job=str(number)) for number in range(8 if join else jobs)
        ]
        memory = remember(memory, [instance(name) for name in alive], workers, requests)
        advice = advise(memory, requests, SIZE, REGION)
        fitting = sum(not request.refused for request in advice.requests)
        number = (
            0 if advice.halt else count_wanted({1: fitting}, [1] * len(alive), 1, len(alive), 0, maximum) - len(alive)
        )
        alive |= {f"i-{started + one}": lifetime + 1 for one in range(number)}
        started += number
    assert started <= maximum + IN_A_ROW - 1
