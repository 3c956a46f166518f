"""Event logs, recorded on real pools and made up: what became of each job, and nothing that breaks the reader.

The recordings are of a study of two regions on a pool with two simulated GPUs and EC2's attributes:
germany_t0000 was vacated, germany_t0001 held and released, germany_final left with 85 once (a checkpoint),
united-kingdom_t0000 was removed, united-kingdom_t0001 left with 75 once (tried again), united-kingdom_t0002 was vacated
fast.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regiondag.condor import client
from regiondag.condor.events.attempts import Attempt, Span
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.condor.events.job_log import read_job_log
from regiondag.condor.events.log import attempts_of, read_attempts
from regiondag.condor.events.text import Event, attributes_of, code_of, ending_of, parse_events, reason_of, resources_of
from regiondag.run.layout import NodeName, RunFolder

RECORDINGS = Path(__file__).parent / "recordings"
SUITES = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())

HEAD = "{code:03d} ({cluster:03d}.000.000) 2026-11-22 05:{minute:02d}:{second:02d} "


def event(code: int, text: str, second: int = 0, cluster: int = 7) -> str:
    head = HEAD.format(code=code, cluster=cluster, minute=second // 60, second=second % 60)
    return f"{head}{text}\n...\n"


SUBMITTED = event(0, "Job submitted from host: <127.0.0.1:1>\n    DAG Node: germany_t0003")
STARTED = event(1, "Job executing on host: <10.0.0.9:1?alias=gpu-1.local>\n\tSlotName: slot1_1@gpu-1.local", 10)


def attempt(*texts: str) -> Attempt:
    [one] = attempts_of(parse_events("".join((SUBMITTED, STARTED, *texts))))
    return one


def seconds(span: Span) -> float:
    assert span.end is not None
    return span.end - span.start


@pytest.fixture(params=SUITES)
def recorded(request) -> dict[str, list[Attempt]]:
    found: dict[str, list[Attempt]] = {}
    for one in read_attempts(RunFolder(RECORDINGS / request.param)):
        found.setdefault(str(one.node), []).append(one)
    return found


def endings(one: Attempt) -> list[tuple[str, bool]]:
    return [(leg.ending, leg.kept) for leg in one.legs]


def test_recorded_jobs_of_all_kinds(recorded):
    assert len(recorded) == 2 * (4 + 1)
    [vacated] = recorded["germany_t0000"]
    assert endings(vacated) == [("evicted", False), ("done", True)] and vacated.exit_code == 0
    [held] = recorded["germany_t0001"]
    assert endings(held) == [("held", False), ("done", True)]
    [hold] = held.holds
    assert (hold.code, hold.subcode) == (1, 0) and hold.reason.startswith("a look at its machine: 'why'?")
    assert 3 <= seconds(hold.held) <= 10
    [removed] = recorded["united-kingdom_t0000"]
    assert endings(removed) == [("removed", False)] and removed.removed.startswith("via condor_rm")
    assert removed.queued.end is not None and removed.exit_code is None
    first, second = recorded["united-kingdom_t0001"]
    assert (first.exit_code, second.exit_code) == (75, 0) and first.job != second.job
    [fast] = recorded["united-kingdom_t0002"]
    assert endings(fast) == [("evicted", False), ("done", True)]


def test_recorded_machines_times_and_usage(recorded):
    [final] = recorded["germany_final"]
    assert endings(final) == [("checkpointed", True), ("done", True)]
    assert final.legs[0].running.end == final.legs[1].running.start
    first = final.legs[0]
    assert first.slot.startswith("slot1_") and first.machine == first.slot.partition("@")[2]
    assert first.facts == {
        "gpu": "Tesla V100-PCIE-16GB", "driver": "12.4", "instance": "i-0123456789abcdef0",
        "instance_type": "g5.xlarge", "life_cycle": "spot",
    }  # fmt: skip
    for one in (one for tries in recorded.values() for one in tries):
        assert one.asked == {"cpus": 1, "gpus": 1, "memory_mb": 256, "disk_mb": 100}
        assert 1 <= one.used["memory_mb"] <= 256 and 0 < one.used["disk_mb"] <= 100
        assert one.legs[0].transfer_in is not None and seconds(one.legs[0].transfer_in) <= 5
        assert all(leg.running.end is not None for leg in one.legs)


@pytest.mark.parametrize("suite", SUITES)
def test_dagmans_own_log_tells_the_same_but_for_transfers(suite, tmp_path):
    shutil.copy(RECORDINGS / suite / "study.dag.nodes.log", tmp_path)
    alone, whole = read_attempts(RunFolder(tmp_path)), read_attempts(RunFolder(RECORDINGS / suite))
    assert [(one.node, one.job, one.exit_code, one.holds) for one in alone] == [
        (one.node, one.job, one.exit_code, one.holds) for one in whole
    ]
    for short, long in zip(alone, whole, strict=True):
        if long.node != NodeName("germany", None):  # a checkpoint shows in transfers only
            assert endings(short) == endings(long) and short.asked == long.asked
        assert all(leg.transfer_in is None for leg in short.legs)


@pytest.mark.parametrize("suite", SUITES)
def test_the_bindings_read_the_same_events(suite):
    logs = sorted((RECORDINGS / suite).glob("**/*.log"))
    assert len(logs) == 1 + 2 * (4 + 1)
    for log in logs:
        theirs = client.bindings(None).JobEventLog(str(log)).events(stop_after=0)
        expected = [(int(one.type), f"{one.cluster}.{one.proc}", one.timestamp) for one in theirs]
        assert [(one.code, one.job, int(one.time)) for one in parse_events(log.read_text())] == expected


@pytest.mark.parametrize("suite", SUITES)
def test_a_log_that_is_being_written(suite):
    """Whatever has been written so far: nothing breaks, and what is known does not change."""
    text = (RECORDINGS / suite / "study.dag.nodes.log").read_text()
    before: list[Event] = []
    for length in range(0, len(text), 97):
        events = list(parse_events(text[:length]))
        assert events[: len(before)] == before
        attempts_of(events)
        before = events


def test_one_region_alone():
    run = RunFolder(RECORDINGS / SUITES[0])
    assert {one.node.slug for one in read_attempts(run, "germany")} == {"germany"}
    assert read_attempts(run, "malta") == []


def test_no_log_at_all(tmp_path):
    assert read_attempts(RunFolder(tmp_path)) == []


def test_the_files_of_an_evicted_job_that_came_back():
    saved = attempt(
        event(40, "Started transferring input files", 9),
        event(40, "Finished transferring input files", 11),
        event(40, "Started transferring output files", 60),
        event(40, "Finished transferring output files", 65),
        event(4, "Job was evicted.\n\t(0) CPU times\n\t1234  -  Run Bytes Sent By Job\n\tPreempted", 65),
    )
    assert endings(saved) == [("evicted", True)] and saved.legs[0].reason == "Preempted"
    old = attempt(event(4, "Job was evicted.\n\t(0) CPU times\n\t1234  -  Run Bytes Sent By Job", 65))
    assert endings(old) == [("evicted", True)]  # DAGMan's own log: by what was sent alone


def test_what_was_done_since_a_checkpoint_is_lost():
    one = attempt(
        event(40, "Started transferring output files", 60),
        event(40, "Finished transferring output files", 65),
        event(4, "Job was evicted.\n\t(0) CPU times\n\t1234  -  Run Bytes Sent By Job", 100),
    )
    assert endings(one) == [("checkpointed", True), ("evicted", False)]
    assert [seconds(leg.running) for leg in one.legs] == [55, 35]


@pytest.mark.parametrize("suite", SUITES)
def test_a_job_that_runs_has_its_gpus(suite):
    """The table of what was asked for comes at the end of a leg: a long training would have no GPU until then."""
    text = (RECORDINGS / suite / "regions" / "germany" / "trials" / "0000" / "job.log").read_text()
    [running] = attempts_of(parse_events(text[: text.index("\n004 ") + 1]))
    assert running.legs[0].running.end is None and running.asked == {"gpus": 1}
    with_more = STARTED.replace("local\n...", "local\n\tGPUs = 4\n...")
    assert attempt(with_more).asked == {"gpus": 4} and attempt().asked == {}
    assert [leg.gpus for leg in attempt(with_more).legs] == [None, 4]


ASKED = "\tPartitionable Resources :    Usage  Request Allocated Assigned\n\t   Memory (MB) : {used} {asked} {asked}"


@pytest.mark.parametrize(("code", "subcode", "ending"), [(34, 102, "held"), (21, 104, "held"), (1022, 0, "evicted")])
def test_a_job_that_was_too_small_goes_back_to_the_queue_without_a_hold(code, subcode, ending):
    """HTCondor 25.2 and later, where the submit file has retry_request_memory."""
    title = f"Job was evicted. Code {code} Subcode {subcode}\n\t0  -  Run Bytes Sent By Job\n"
    one = attempt(
        event(4, f"{title}\tReason: Job has gone over cgroup memory limit\n{ASKED.format(used=256, asked=256)}", 60),
        STARTED.replace("05:00:10", "05:02:00"),
        event(
            5, f"Job terminated.\n\t(1) Normal termination (return value 0)\n{ASKED.format(used=400, asked=512)}", 200
        ),
    )
    assert endings(one) == [(ending, False), ("done", True)]
    assert one.asked == {"memory_mb": 512}
    if ending == "evicted":
        assert one.holds == ()
        return
    [hold] = one.holds
    assert (hold.code, hold.subcode, seconds(hold.held)) == (code, subcode, 0)
    assert hold.asked == {"memory_mb": 256} and "memory limit" in hold.reason


def test_a_hold_that_follows_its_eviction_is_one_hold():
    one = attempt(
        event(4, "Job was evicted. Code 34 Subcode 102\n\tReason: too much memory", 60),
        event(6, "Image size of job updated: 2", 60),
        event(12, "Job was held.\n\ttoo much memory\n\tCode 34 Subcode 102", 61),
        event(13, "Job was released.", 90),
    )
    assert endings(one) == [("held", False)] and [seconds(hold.held) for hold in one.holds] == [29]


@pytest.mark.parametrize(("later", "ending"), [(1, "held"), (30, "evicted")])
def test_what_comes_long_after_an_eviction_is_not_its_cause(later, ending):
    """A job that waits after an eviction may be held or removed for another reason."""
    size = event(6, "Image size of job updated: 2", 60)
    one = attempt(
        event(4, "Job was evicted.\n\tPreempted", 60),
        size,
        event(12, "Job was held.\n\tlunch\n\tCode 1 Subcode 0", 60 + later),
    )
    assert endings(one) == [(ending, False)] and [hold.code for hold in one.holds] == [1]


def test_a_machine_that_vanished():
    one = attempt(
        event(22, "Job disconnected, attempting to reconnect\n    Socket closed", 30),
        event(24, "Job reconnection failed\n    Job lease expired\n    Can not reconnect to slot1_1@gpu-1", 90),
        STARTED.replace("05:00:10", "05:02:00"),
        event(22, "Job disconnected, attempting to reconnect\n    Socket closed", 130),
        event(23, "Job reconnected to slot1_1@gpu-1", 140),
        event(7, "Shadow exception!\n\tError from slot1_1@gpu-1: out of disk\n\t0  -  Run Bytes Sent By Job", 150),
    )
    assert endings(one) == [("lost", False), ("lost", False)]
    assert seconds(one.legs[0].running) == 20  # until it was last heard of
    assert [leg.reason for leg in one.legs] == ["Job lease expired", "Error from slot1_1@gpu-1: out of disk"]


def test_a_start_without_an_end():
    one = attempt(STARTED.replace("05:00:10", "05:02:00"))
    assert endings(one) == [("lost", False), ("", True)] and one.legs[1].running.end is None


def test_a_signal_and_gpu_memory():
    one = attempt(
        event(
            5,
            "Job terminated.\n\t(0) Abnormal termination (signal 9)\n\tPartitionable Resources :    Usage  Request "
            'Allocated Assigned\n\t   Gpus (Average)       :     0.68        1         1 "CUDA0"\n'
            "\t   GPUsMemory (MB)      :     1234",
            20,
        )
    )
    assert (one.exit_code, one.signal) == (None, 9)
    assert one.used == {"gpus": 0.68, "gpu_memory_mb": 1234} and one.asked == {"gpus": 1}


def test_a_clock_that_jumps_back():
    one = attempt(event(5, "Job terminated.\n\t(1) Normal termination (return value 0)", 2))
    assert one.legs[0].running.seconds(0.0) == 0


def test_jobs_that_are_no_nodes_of_a_study_are_left_out():
    other = SUBMITTED.replace("germany_t0003", "; rm -rf").replace("007.", "008.")
    assert len(attempts_of(parse_events(other + SUBMITTED + event(1, "Job executing on host: <x>", cluster=9)))) == 1


def test_a_job_number_that_comes_again_is_another_try():
    ended = event(5, "Job terminated.\n\t(1) Normal termination (return value 0)", 20)
    first, second = attempts_of(parse_events(SUBMITTED + STARTED + ended + SUBMITTED))
    assert (first.exit_code, second.exit_code, second.legs) == (0, None, ())


def test_a_try_that_nobody_ended_ends_with_the_next_one():
    """The queue was lost, or the DAG went on from another manager: it would run for ever by its log."""
    held = event(12, "Job was held.\n\tby hand\n\tCode 1 Subcode 0", 20, cluster=8)
    started = STARTED.replace("(007", "(008").replace(":10 ", ":15 ")
    first = SUBMITTED.replace("(007", "(008") + started + held
    lost, next_try = attempts_of(parse_events(SUBMITTED + STARTED + first))
    assert [(leg.ending, leg.kept) for leg in lost.legs] == [("lost", False)]
    assert lost.queued.end is not None and lost.legs[0].running.end is not None
    assert next_try.holds[0].held.end is None
    _, again, last = attempts_of(parse_events(SUBMITTED + STARTED + first + SUBMITTED.replace("(007", "(009")))
    assert again.holds[0].held.end is not None and last.queued.end is None


def test_what_a_crash_tore_off_hides_nothing_else():
    torn = SUBMITTED[:50] + "\n" + STARTED.replace("(007", "(008")
    [first, second] = parse_events(SUBMITTED + torn)
    assert (first.code, second.code, second.job) == (0, 1, "8.0")


def test_a_reason_that_looks_like_an_event_is_a_reason():
    text = event(
        12, "Job was held.\n\t005 (007.000.000) 2026-11-22 05:00:00 Job terminated.\n\tCode 34 Subcode 102", 30
    )
    one = attempt(text)
    assert one.exit_code is None and one.holds[0].code == 34 and "Job terminated" in one.holds[0].reason


@given(st.text(), st.text())
def test_any_text_is_read_without_an_error(before, after):
    events = list(parse_events(before + SUBMITTED + after))
    attempts_of(events)
    for one in events:
        resources_of(one), reason_of(one)


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 4, 5, 6, 7, 9, 12, 13, 22, 23, 24, 40, 47]), st.integers(0, 3599)), max_size=40
    )
)
def test_events_in_any_order(pairs):
    """No order of events breaks the fold, and legs do not overlap in the log's own order."""
    texts = {0: "Job submitted from host: <x>\n    DAG Node: germany_t0003", 40: "Started transferring output files"}
    log = "".join(event(code, texts.get(code, "Something\n\ta reason"), second) for code, second in pairs)
    found = attempts_of(parse_events(SUBMITTED + log))
    assert len(found) == 1 + sum(code == 0 for code, _ in pairs)
    assert all(leg.running.end is not None for one in found for leg in one.legs[:-1])


@given(st.floats(0, 1e9), st.integers(0, 10**9), st.integers(0, 10**9), st.sampled_from(["", '"GPU-a0223334"', '"7"']))
def test_a_row_of_the_resources(used, asked, got, assigned):
    rows = [
        f"\t   Memory (MB)          : {used:8.2f} {asked:8} {got:9} {assigned}",
        f"\t   GPUs : {asked} {got} {assigned}",
    ]
    one = Event(5, "1.0", 0.0, "Job terminated.\n\tPartitionable Resources :    Usage  Request\n" + "\n".join(rows))
    found = resources_of(one)
    assert found["memory"].used == pytest.approx(used, abs=0.01) and found["memory"].asked == asked
    assert found["gpus"].used is None and found["gpus"].asked == asked


LOGS = [path.read_bytes() for path in sorted(RECORDINGS.glob("**/*.log"))]


NO_NUMBERS = [b"9" * 5000, b"9" * 400, b"-1", b"1e999", b"nan", b"inf", b"", "\u0663".encode(), b"1.2.3"]


@st.composite
def damaged_logs(draw) -> bytes:
    """A recording, cut, with bytes changed, blocks that come twice or not at all, and lines of other recordings."""
    text = bytearray(draw(st.sampled_from(LOGS)))
    places = st.floats(0, 1).map(lambda share: round(share * len(text)))
    for _ in range(draw(st.integers(1, 4))):
        first, last = sorted((draw(places), draw(places)))
        other = draw(st.sampled_from(LOGS))[first:last][:400]
        change = draw(st.sampled_from(["cut", "drop", "repeat", "insert", "bytes", "number"]))
        if change == "cut":
            del text[last:]
        elif change == "drop":
            del text[first:last]
        elif change == "repeat":
            text[last:last] = text[first:last]
        elif change == "insert":
            text[first:first] = other
        elif change == "bytes":
            text[first : first + 4] = draw(st.binary(max_size=4) | st.just(b"\n...\n"))
        else:
            numbers = list(re.finditer(rb"-?[\d.]+", text))
            if numbers:
                one = draw(st.sampled_from(numbers))
                text[slice(*one.span())] = draw(st.sampled_from(NO_NUMBERS))
    return bytes(text)


def assert_sane(found: list[Attempt]) -> None:
    """No time is negative, and what has ended has ended in all its parts."""
    for one in found:
        spans = [one.queued, *(hold.held for hold in one.holds)]
        for leg in one.legs:
            spans += [span for span in (leg.running, leg.transfer_in, leg.transfer_out) if span is not None]
        assert all(span.seconds(0.0) >= 0 and math.isfinite(span.seconds(2e9)) for span in spans)
        assert all(leg.running.end is not None for leg in one.legs[:-1])
        amounts = [*one.asked.values(), *one.used.values()]
        assert all(math.isfinite(amount) and amount >= 0 for amount in amounts)


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 400, "1e999", "nan", "-1"])
def test_numbers_that_no_job_has_are_passed_over(number):
    ended = f"Job terminated.\n\t(1) Normal termination (return value {number})\n" + ASKED.format(
        used=number, asked=512
    )
    one = attempt(
        event(6, f"Image size of job updated: 2\n\t{number}  -  MemoryUsage of job (MB)", 20),
        event(4, f"Job was evicted. Code {number} Subcode {number}\n\t{number}  -  Run Bytes Sent By Job", 30),
        STARTED.replace("local\n...", f"local\n\tGPUs = {number}\n..."),
        event(5, ended, 40),
    )
    assert (one.asked, one.used, one.holds) == ({}, {}, ())
    assert one.exit_code in (None, -1)


@settings(max_examples=25)
@given(damaged_logs())
def test_whatever_became_of_a_recording_it_is_read(tmp_path_factory, log):
    path = tmp_path_factory.mktemp("log") / "job.log"
    path.write_bytes(log)
    text = log.decode("utf-8", errors="replace")
    events = list(parse_events(text))
    found = attempts_of(events)
    assert_sane(found)
    assert all(one.queued.start >= 0 for one in found)
    for one in events:
        attributes_of(one), code_of(one), reason_of(one), ending_of(one)
    state = read_dag_log(path)
    assert state is None or state.cluster >= 0
    for job in {one.job for one in events}:
        assert read_job_log(path, job).removed.isprintable()


@settings(max_examples=50)
@given(st.data())
def test_a_log_read_up_to_anywhere_gives_the_events_that_are_complete(data):
    log = data.draw(st.sampled_from(LOGS))
    cut = log[: round(data.draw(st.floats(0, 1)) * len(log))]
    whole, some = (list(parse_events(text.decode("utf-8", errors="replace"))) for text in (log, cut))
    assert some == whole[: cut.count(b"\n...\n")]
    rest = log[cut.rfind(b"\n...\n") + 5 :] if some else log
    assert some + list(parse_events(rest.decode())) == whole


def test_the_work_grows_as_the_log_does(tmp_path):
    text = (RECORDINGS / SUITES[0] / "regions" / "germany" / "trials" / "0001" / "job.log").read_text()
    log = tmp_path / "regions" / "germany" / "trials" / "0001" / "job.log"
    log.parent.mkdir(parents=True)

    def seconds(events: int) -> float:
        log.write_text(text * (events // text.count("\n...\n")))
        start = time.process_time()
        assert len(read_attempts(RunFolder(tmp_path))) > events // 20
        return time.process_time() - start

    few = max(seconds(7_000) for _ in range(3))
    assert min(seconds(70_000) for _ in range(3)) < 40 * few  # of processor time; as squares grow it would be 100 times
