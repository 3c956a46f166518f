"""What the report's page shows, as data: synthetic trials and tries of jobs, nothing on disk."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import Metric, TrainSettings
from workflows.attempts import Attempt, Hold, Leg, Span
from workflows.journal import Fault, History, Proposal, Settled
from workflows.names import NodeName
from workflows.pricetable import Price, PriceTable
from workflows.regionspec import RegionSpec
from workflows.report import RegionSummary, Summary
from workflows.reportdata import (
    HELD,
    HELD_ROWS,
    IDLE,
    INPUT,
    LOST,
    OUTPUT,
    TRAINING,
    Bill,
    Texts,
    bill_of,
    cause,
    held_bars,
    idle_bars,
    leg_bars,
    page_data,
    rounded,
    timeline,
)
from workflows.space import Choice, Real
from workflows.study import Search
from workflows.trialtable import trials_of

NOW = 2000.0
NODE = NodeName("germany", 0)
SPACE = (Real("rate", 1e-4, 0.1, log=True), Choice("optimizer", ("adam", "sgd")))


def leg(start=100.0, end=200.0, slot="slot1_1@a", ending="done", kept=True, into=None, out=None, reason=""):
    machine = slot.partition("@")[2]
    return Leg(machine, slot, Span(start, end), into, out, ending, reason, kept)


def attempt(*legs, node=NODE, holds=(), exit_code=0, job="1.0"):
    return Attempt(node, job, Span(50.0, 300.0), tuple(legs), tuple(holds), exit_code)


def region(slug="germany", status="promoted", **more):
    counts = {"planned": 4, "run": 3, "ok": 1, "failed": 1, "pruned": 1}
    figures = {"test": {"ndcg@20": 0.1}, "challenger": {}, "popularity": {"ndcg@20": 0.05}}
    row = {
        "reason": "",
        "hyperparameters": {"rate": 0.0123456789},
        "validation": 0.1,
        "hours": 1.0,
        "model": "",
        **figures,
    }
    return RegionSummary(region=slug.title(), slug=slug, status=status, trials=counts, **{**row, **more})


def trials(slug="germany"):
    search = Search("bayes", SPACE, (4,))
    spec = RegionSpec("made up", slug.title(), slug, Metric("ndcg@20"), TrainSettings(), search, (), {})
    history = History()
    points = [
        {"rate": 0.01, "optimizer": "adam"},
        {"rate": 0.0123456789},
        {"rate": 0.1, "optimizer": "sgd"},
        {"rate": 1e-4},
    ]
    history.proposals = {number: Proposal(number, point) for number, point in enumerate(points)}
    history.settle(Settled(0, "ok", "", 0.123456789, curve=(0.1, 0.123456789), best_epoch=2, seconds=12.34))
    history.settle(Settled(1, "diverged", "the loss is nan in epoch 17"))
    history.settle(Settled(2, "pruned", "worse than the median", 0.05, curve=(0.05,)))
    history.won = (0, 3)
    history.faults = [Fault(1, "no GPU 0 on w1", job="6.0")]
    return trials_of(spec, history)


def data(attempts=(), regions=None, bill=None):
    summary = Summary("made up", "/runs/run-1", "ndcg@20", tuple(regions or [region()]))
    return page_data(summary, [trials(row.slug) for row in summary.regions], attempts, bill or Bill(), NOW)


def test_a_region_without_trials_and_a_run_without_regions_are_shown_too():
    empty = page_data(Summary("made up", "/run", "p@10", ()), [], (), Bill(), NOW)
    assert (empty["regions"], empty["failures"], empty["timeline"]["rows"]) == ([], [], [])


def test_trials_stand_in_columns_of_one_length():
    [found] = data([attempt(leg(slot="slot1@gpu-7"))])["regions"]
    columns = found["trials"]
    assert columns["trial"] == [0, 1, 2, 3]
    assert columns["value"] == [0.123457, None, 0.05, None]  # six digits
    assert columns["points"] == [[0.01, 0.0123457, 0.1, 0.0001], ["adam", None, "sgd", None]]
    assert columns["curves"] == [[0.1, 0.1235], [], [0.05], []]  # four
    assert columns["won"] == 0
    assert all(len(columns[name]) == 4 for name in ("status", "best_epoch", "seconds", "settled", "machine", "reason"))
    assert found["space"] == [
        {"name": "rate", "low": 1e-4, "high": 0.1, "log": True},
        {"name": "optimizer", "options": ["adam", "sgd"]},
    ]


def test_texts_are_kept_once():
    texts = Texts()
    assert [texts.number(text) for text in ("a", "", "b", "a")] == [1, 0, 2, 1]
    assert texts.all == ["", "a", "b"]
    shown = data([attempt(leg(slot="slot1@gpu-7"))])
    columns = shown["regions"][0]["trials"]
    assert [shown["texts"][place] for place in columns["status"]] == ["ok", "diverged", "pruned", "running"]
    assert shown["texts"][columns["machine"][0]] == "gpu-7"


def test_everything_is_json_whatever_the_figures_are():
    shown = data(regions=[region(test={"loss": math.nan, "p@10": math.inf}, hours=math.nan)])
    assert json.loads(json.dumps(shown, allow_nan=False))["regions"][0]["test"] == {"loss": None, "p@10": None}


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_rounding_is_close_or_nothing(value):
    found = rounded(value)
    assert (found is None) == (not math.isfinite(value))
    assert found is None or math.isclose(found, value, rel_tol=1e-5)


# --- timeline ----------------------------------------------------------------------------------------------


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
    found = timeline(tries, {"germany": 0}, texts, NOW)
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


# --- failures and costs ------------------------------------------------------------------------------------


def test_failures_are_grouped_by_what_is_the_same_in_their_reasons():
    assert cause("slot1_2@h: nan in epoch 17,\n  0xff3 1.5e-4") == cause("slot3_4@h: nan in epoch 3, 0xab 2e9")
    assert cause("disk full") != cause("disk gone")
    assert len(cause("x" * 10_000)) < 300


def test_digests_are_no_part_of_a_cause():
    assert (
        cause("sha256 is 3f9ab2c1d4e5, not 0badc0ffee12")
        == cause("sha256 is a11bb2c33ffe, not 4d2f00d5")
        == "sha# is #, not #"
    )
    assert cause("GPU-1f3e0b8a-77aa-4c1e-9d3b-0123456789ab is away") == "GPU-# is away"
    assert cause("feedback is defaced") == "feedback is defaced"  # words have no figures


def test_no_text_is_too_long_for_a_page():
    texts = Texts()
    texts.number("x" * 100_000)
    assert len(texts.all[1]) == 2000


def test_what_is_not_known_of_the_cost_is_said():
    shown = data((), [region(), region("france")], Bill("USD", {"germany": 2.0, "france": None}, 2.0))
    assert [row["cost"] for row in shown["regions"]] == [2.0, None] and shown["cost"] == 2.0


def test_failures_have_the_trials_and_machines_behind_them():
    node = NodeName("germany", 1)
    tries = [
        attempt(
            leg(ending="evicted", reason="spot notice 7", slot="slot1@a"),
            leg(slot="slot1@b"),
            node=node,
            exit_code=75,
            job="6.0",
        ),
        attempt(leg(slot="slot1@c"), node=node, exit_code=3),
        attempt(leg(ending="lost", slot="slot1@d"), holds=[Hold(Span(1, 2), 34, 102, "memory 12 MB")], exit_code=None),
    ]
    shown = data(tries, [region(), region("france", "failed", reason="bad data")])
    text = shown["texts"]
    found = {
        (group["kind"], group["cause"]): [
            (shown["regions"][place]["slug"], trial, text[machine])
            for place, trial, machine in zip(group["region"], group["trial"], group["machine"], strict=True)
        ]
        for group in shown["failures"]
    }
    assert found == {
        ("trial diverged", "the loss is nan in epoch #"): [("germany", 1, "c"), ("france", 1, "")],
        ("region failed", "bad data"): [("france", -1, "")],
        ("job evicted", "spot notice #"): [("germany", 1, "a")],
        ("job tried again after exit code 75", "no GPU # on w#"): [("germany", 1, "b")],
        ("job lost", ""): [("germany", 0, "d")],
        ("job held (code 34.102)", "memory # MB"): [("germany", 0, "d")],
    }
    assert shown["failures"][0]["kind"] == "trial diverged"  # the most frequent first
    assert shown["evictions"] == 2


def test_costs_are_summed_up_by_region():
    tries = [attempt(leg(0, 3600)), attempt(leg(0, 1800), node=NodeName("france", 2))]
    dear = bill_of(tries, PriceTable(currency="EUR", other=Price(1, 2.0, 1.0)), NOW)
    assert (dear.currency, dear.regions) == ("EUR", {"germany": 2.0, "france": 1.0})
    shown = data(tries, [region(), region("france"), region("spain")], dear)
    assert [row["cost"] for row in shown["regions"]] == [2.0, 1.0, 0.0] and shown["cost"] == 3.0
    assert bill_of(tries, PriceTable(), NOW).currency == ""  # all is free: nothing to show
    assert bill_of([], PriceTable(), NOW) == Bill()
