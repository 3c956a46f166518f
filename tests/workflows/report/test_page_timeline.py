"""What each slot did, as bars: synthetic tries of jobs, nothing on disk."""

from __future__ import annotations

import pytest

from regiondag.condor.events.attempts import Hold, Span
from regiondag.report.page_packing import Texts
from regiondag.report.page_timeline import (
    HELD,
    HELD_ROWS,
    IDLE,
    INPUT,
    LOST,
    OUTPUT,
    TRAINING,
    build_timeline,
    held_bars,
    idle_bars,
    leg_bars,
)
from regiondag.run.layout import NodeName
from tests.workflows.report.test_page_data import NOW, attempt, data, leg


def phases(bars):
    return [(bar.phase, bar.start, bar.end) for bar in bars]


def test_transfers_are_no_training():
    start = leg(110.0, 200.0, into=Span(100.0, 112.0), out=Span(190.0, 199.0))
    assert phases(leg_bars(attempt(start), start, NOW)) == [(INPUT, 100, 112), (OUTPUT, 190, 199), (TRAINING, 112, 190)]


def test_what_was_trained_and_did_not_come_back_is_lost():
    evicted, saved = leg(ending="evicted", kept=False), leg(ending="evicted", kept=True)
    assert phases(leg_bars(attempt(evicted), evicted, NOW)) == [(LOST, 100, 200)]
    assert phases(leg_bars(attempt(saved), saved, NOW)) == [(TRAINING, 100, 200)]


def test_what_still_runs_lasts_until_now():
    running = leg(end=None, ending="")
    [bar] = leg_bars(attempt(running), running, NOW)
    assert (bar.end, bar.ending) == (NOW, "running")


@pytest.mark.parametrize("into", [Span(90.0, 300.0), Span(250.0, 260.0), Span(150.0, None)])
def test_times_that_contradict_each_other_give_no_bar_of_negative_length(into):
    odd = leg(into=into, out=Span(10.0, 20.0))
    assert all(bar.end >= bar.start for bar in leg_bars(attempt(odd), odd, NOW))


def test_a_slot_is_idle_between_its_jobs_only():
    bars = [
        bar
        for one in (leg(100, 200), leg(150, 180), leg(230, 300), leg(300, 310))
        for bar in leg_bars(attempt(one), one, NOW)
    ]
    assert phases(idle_bars(reversed(bars))) == [(IDLE, 200, 230)]
    assert idle_bars([]) == []


def test_jobs_held_at_the_same_time_stand_in_rows_of_their_own():
    holds = [Hold(Span(start, end), 13, 2, "no such file") for start, end in ((0, 10), (5, 20), (10, 30))]
    assert [bar.row for bar in held_bars([attempt(holds=holds)], NOW)] == ["held jobs 1", "held jobs 2", "held jobs 1"]
    many = [Hold(Span(start, None), 13, 2, "") for start in range(50)]
    assert len({bar.row for bar in held_bars([attempt(holds=many)], NOW)}) == HELD_ROWS


def test_the_timeline_has_slots_in_order_and_times_from_its_start():
    tries = [
        attempt(leg(120, 130, "slot1_10@a")),
        attempt(leg(100, 110, "slot1_2@a"), leg(130, 150, "slot1_2@a"), node=NodeName("germany", None)),
        attempt(leg(105, 115, "slot1@b"), holds=[Hold(Span(90, 100), 13, 2, "no such file")]),
    ]
    texts = Texts()
    found = build_timeline(tries, {"germany": 0}, texts, NOW)
    assert found["rows"] == ["slot1_2@a", "slot1_10@a", "slot1@b", "held jobs 1"]
    assert found["start"] == 90
    assert list(zip(found["row"], found["phase"], found["from"], found["seconds"], found["trial"], strict=True)) == [
        (0, TRAINING, 10, 10, None),
        (0, IDLE, 20, 20, None),
        (0, TRAINING, 40, 20, None),
        (1, TRAINING, 30, 10, 0),
        (2, TRAINING, 15, 10, 0),
        (3, HELD, 0, 10, 0),
    ]
    assert found["region"] == [0, -1, 0, 0, 0, 0]
    assert texts.all[found["ending"][-1]] == "held (code 13.2)"


def test_jobs_of_regions_that_are_not_in_the_run_are_left_out():
    assert data([attempt(leg(), node=NodeName("elsewhere", 0))])["timeline"]["rows"] == []
