"""When a run will end."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import Status
from regiondag.monitor.pace import Pace, Progress, read_pace, seconds_left
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import dagman_file

TEN = Pace(tuple(10.0 * n for n in range(1, 11)))  # an outcome each ten seconds
BEGUN = Progress(total=10, began=1000.0, first=0, last=1000.0, done=0)


@pytest.mark.parametrize(
    ("share", "at"), [(0, 0), (0.05, 5), (0.1, 10), (0.25, 25), (0.5, 50), (1, 100), (2, 100), (-1, 0)]
)
def test_a_pace_says_when_a_share_had_come(share, at):
    assert TEN.at(share) == pytest.approx(at)


def test_before_anything_has_come_an_earlier_run_tells():
    assert seconds_left(BEGUN, 1000.0, TEN) == pytest.approx(100)
    assert seconds_left(BEGUN, 1004.0, TEN) == pytest.approx(96)
    assert seconds_left(BEGUN, 1500.0, TEN) == pytest.approx(90)  # never less than after the next outcome
    assert seconds_left(BEGUN, 1000.0) is None


def test_a_search_that_is_twice_as_long_takes_twice_as_long():
    assert seconds_left(replace(BEGUN, total=20), 1000.0, TEN) == pytest.approx(200)


def test_what_is_seen_now_counts_more_and_more():
    slow = replace(BEGUN, last=1100.0, done=5)  # half of it took as long as all did then
    left = seconds_left(slow, 1100.0, TEN)
    assert left == pytest.approx(50 * (100 + 25) / (50 + 25))
    assert 50 < left < 100


def test_without_an_earlier_run_its_own_pace_tells():
    third = replace(BEGUN, last=1030.0, done=3)
    assert seconds_left(third, 1030.0) == pytest.approx(70)
    assert seconds_left(third, 1036.0) == pytest.approx(64)
    assert seconds_left(replace(third, first=2), 1030.0) == pytest.approx(210)  # two were there when we came


def test_looks_are_remembered_where_something_has_come():
    one = BEGUN.moved(10, 1, 1010.0)
    assert (one.done, one.last) == (1, 1010.0) and one.moved(10, 1, 1020.0) is one
    again = one.moved(10, 0, 1030.0)  # a trial that is run again
    assert (again.first, again.done, again.last) == (0, 0, 1030.0)


@given(
    st.lists(st.floats(0, 1e6), max_size=30).map(sorted),
    st.integers(1, 50),
    st.integers(0, 50),
    st.integers(0, 50),
    st.floats(0, 1e5),
    st.floats(0, 1e5),
)
def test_any_pace_gives_a_time_that_can_be(times, total, first, done, seen, since):
    first, done = sorted((min(first, total), min(done, total)))
    progress = Progress(total, 0.0, first, seen, done)
    left = seconds_left(progress, seen + since, Pace(tuple(times)))
    assert left is None or 0 <= left < 1e12


def play(run, started, settled, final=None, code=0):
    """Write down when the trials of both regions ended."""
    log = "000 (001.000.000) 2026-11-01T10:00:00Z Job submitted from host: <127.0.0.1:1>\n...\n"
    log += (
        f"005 (001.000.000) 2026-11-01T10:05:00Z Job terminated.\n\t(1) Normal termination (return value {code})\n...\n"
    )
    dagman_file(run.study_dag, "dagman.log").write_text(log)
    for slug in ("united-kingdom", "germany"):
        journal = Journal(run.region(slug).journal)
        with pytest.MonkeyPatch.context() as patch, journal.locked():
            for trial, when in enumerate(settled):
                patch.setattr("time.time", lambda when=when: started + when)
                journal.append("settled", **asdict(TrialOutcome(trial, Status.OK, value=0.1)))
            if final is not None:
                patch.setattr("time.time", lambda: started + final)
                journal.append("settled", **asdict(TrialOutcome(None, Status.OK, value=0.1)))


STARTED = 1793527200.0  # 2026-11-01 10:00:00 UTC


def test_the_pace_of_an_earlier_run_is_in_its_journals(run):
    play(run, STARTED, (10, 20), 40)
    pace = read_pace([run])
    assert pace.regions["germany"].times == pytest.approx((10, 20, 40))
    assert pace.whole.times == pytest.approx((10, 10, 20, 20, 40, 40))


@pytest.mark.parametrize(("settled", "code"), [((10, 20), 1), ((-10, 20), 0), ((), 0)])
def test_a_run_that_failed_or_was_submitted_again_or_is_empty_tells_nothing(run, settled, code):
    play(run, STARTED, settled, code=code)
    assert read_pace([run]) is None


def test_no_run_and_one_that_is_damaged_tell_nothing(run):
    assert read_pace([]) is None and read_pace([run]) is None
    play(run, STARTED, (10,), 20)
    run.manifest.write_text("{")
    assert read_pace([run]) is None
