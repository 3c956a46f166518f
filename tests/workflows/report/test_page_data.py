"""What the report's page shows, as data: synthetic trials and tries of jobs, nothing on disk."""

from __future__ import annotations

import doctest
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import Metric, TrainSettings
from regiondag.accounting.prices import Price, PriceTable
from regiondag.condor.events.attempts import Attempt, Leg, Span
from regiondag.report import page_packing
from regiondag.report.bill import Bill, bill_of
from regiondag.report.page_data import _parameter, page_data
from regiondag.report.page_packing import Texts, round_value
from regiondag.report.summary import RegionSummary, Summary
from regiondag.run.history import Fault, History, Proposal, TrialOutcome
from regiondag.run.layout import NodeName
from regiondag.run.region_spec import RegionSpec
from regiondag.study.model import Search
from regiondag.study.space import Choice, Real
from regiondag.trials.dependence import PartialDependence
from regiondag.trials.rows import trials_of

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
    figures = {"test": {"ndcg@20": 0.1}, "popularity": {"ndcg@20": 0.05}}
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
    judged = {"stderr": 0.005, "customers": 1119, "compared": {"floor": {"ndcg@20": 0.07}}}
    curve = (0.1, 0.123456789)
    history.settle(TrialOutcome(0, "ok", "", 0.123456789, curve=curve, best_epoch=2, seconds=12.34, **judged))
    history.settle(TrialOutcome(1, "diverged", "the loss is nan in epoch 17"))
    history.settle(TrialOutcome(2, "pruned", "worse than the median", 0.05, curve=(0.05,)))
    history.won = (0, 3)
    history.faults = [Fault(1, "no GPU 0 on w1", job="6.0")]
    return trials_of(spec, history)


def data(attempts=(), regions=None, bill=None):
    summary = Summary("made up", "/runs/run-1", "ndcg@20", tuple(regions or [region()]), bill=bill or Bill())
    return shown(summary, [trials(row.slug) for row in summary.regions], attempts)


def shown(summary, trials, attempts=(), **more):
    """Return what the page shows at once and what it unpacks later, as one."""
    first, details = page_data(summary, trials, attempts, NOW, **more)
    return first | details


def test_a_region_without_trials_and_a_run_without_regions_are_shown_too():
    empty = shown(Summary("made up", "/run", "p@10", ()), [])
    assert (empty["regions"], empty["failures"], empty["timeline"]["rows"]) == ([], [], [])


def test_trials_stand_in_columns_of_one_length():
    all_of_it = data([attempt(leg(slot="slot1@gpu-7"))])
    [found], [columns] = all_of_it["regions"], all_of_it["trials"]
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
    assert _parameter(Choice("size", ("small", "large"), ordered=True))["ordered"] is True


def test_a_figure_stands_with_what_it_rests_on_and_what_it_has_to_beat():
    judged = region(
        customers=1248,
        intervals={"ndcg@20": (0.0912345678, 0.1087654321)},
        compared={"floor": {"ndcg@20": 0.0712345678}, "simple": {"ndcg@20": 0.09}, "chosen": {"ndcg@20": 0.08}},
        recipe="graph, low_pass 0.1",
    )
    all_of_it = data(regions=[judged])
    [found], [columns] = all_of_it["regions"], all_of_it["trials"]
    assert (found["customers"], found["serves"], found["searched_by"]) == (1248, "graph, low_pass 0.1", "")
    assert found["intervals"] == {"ndcg@20": [0.0912346, 0.108765]}
    assert [found[name] for name in ("test", "floor", "simple", "bestsellers")] == [
        {"ndcg@20": value} for value in (0.1, 0.0712346, 0.09, 0.05)
    ]
    assert (found["floor_name"], all_of_it["floor_name"]) == ("recent popularity", "recent popularity")
    two = data(regions=[judged, replace(judged, floor_name="logistic regression")])
    assert (two["regions"][1]["floor_name"], two["floor_name"]) == ("logistic regression", "the floor")
    assert columns["half"] == [pytest.approx(0.00981), None, None, None]  # 1.9621 * .005
    assert columns["customers"] == [1119, 0, 0, 0] and columns["floor"] == [0.07, None, None, None]
    assert data()["regions"][0]["serves"] == "rate 0.0123"  # of a network its hyperparameters


def test_a_program_s_standard_error_stands_beside_its_figure_without_an_interval():
    of_program = trials()
    errors = zip(of_program.rows, (0.00512345, None, 0, 0), strict=True)
    rows = [replace(row, customers=0, stderr=error) for row, error in errors]
    found = shown(Summary("made up", "/runs/run-1", "auc", (region(),)), [replace(of_program, rows=tuple(rows))])
    assert found["trials"][0]["error"] == [0.00512, None, 0, 0]
    assert found["trials"][0]["half"] == [None] * 4
    assert "error" not in data()["trials"][0]


def test_who_is_searched_for_by_another_says_by_whom_and_cautions_stand_at_the_top():
    served = trials("spain")
    served = replace(served, spec=replace(served.spec, served_by="germany"), rows=())
    rows = (region(), region("spain"))
    summary = Summary("made up", "/runs/run-1", "ndcg@20", rows, cautions=("few customers", "x" * 3000))
    found = shown(summary, [trials(), served])
    assert [row["searched_by"] for row in found["regions"]] == ["", "Germany"]
    needs = [text for text, _ in found["headline"]["needs"]]
    assert needs[0] == "few customers" and len(needs[1]) == 2000


def test_how_the_metric_depends_on_hyperparameters_stands_beside_the_trials_of_some_regions():
    one = PartialDependence("rate", (0.0001, 0.0123456789), (0.123456, 0.2), (0.1, 0.15), (0.15, 0.25))
    summary = Summary("made up", "/runs/run-1", "ndcg@20", (region(), region("spain")))
    found = shown(summary, [trials(), trials("spain")], depends={"spain": (one,)})
    rounded = {"values": [0.0001, 0.0123457], "mean": [0.1235, 0.2], "low": [0.1, 0.15], "high": [0.15, 0.25]}
    assert found["depends"] == [[], [{"name": "rate", **rounded}]]
    assert found["regions"][0]["left"] == "" and data()["depends"] == [[]]


def test_texts_are_kept_once():
    texts = Texts()
    assert [texts.number(text) for text in ("a", "", "b", "a")] == [1, 0, 2, 1]
    assert texts.all == ["", "a", "b"]
    found = data([attempt(leg(slot="slot1@gpu-7"))])
    columns = found["trials"][0]
    assert [found["texts"][place] for place in columns["status"]] == ["ok", "diverged", "pruned", "running"]
    assert found["texts"][columns["machine"][0]] == "gpu-7"


def test_everything_is_json_whatever_the_figures_are():
    shown = data(regions=[region(test={"loss": math.nan, "p@10": math.inf}, hours=math.nan)])
    assert json.loads(json.dumps(shown, allow_nan=False))["regions"][0]["test"] == {"loss": None, "p@10": None}


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_rounding_is_close_or_nothing(value):
    found = round_value(value)
    assert (found is None) == (not math.isfinite(value))
    assert found is None or math.isclose(found, value, rel_tol=1e-5)


def test_no_text_is_too_long_for_a_page():
    texts = Texts()
    texts.number("x" * 100_000)
    assert len(texts.all[1]) == 2000


def test_what_is_not_known_of_the_cost_is_said():
    shown = data((), [region(), region("france")], Bill("USD", {"germany": 2.0, "france": None}, 2.0))
    assert [row["cost"] for row in shown["regions"]] == [2.0, None] and shown["cost"] == 2.0


def test_costs_are_summed_up_by_region():
    tries = [attempt(leg(0, 3600)), attempt(leg(0, 1800), node=NodeName("france", 2))]
    dear = bill_of(tries, PriceTable(currency="EUR", other=Price(1, 2.0, 1.0)), NOW)
    assert (dear.currency, dear.regions) == ("EUR", {"germany": 2.0, "france": 1.0})
    shown = data(tries, [region(), region("france"), region("spain")], dear)
    assert [row["cost"] for row in shown["regions"]] == [2.0, 1.0, 0.0] and shown["cost"] == 3.0
    assert bill_of(tries, PriceTable(), NOW).currency == ""  # all is free: nothing to show
    assert bill_of([], PriceTable(), NOW) == Bill()


def test_doctests():
    assert doctest.testmod(page_packing).failed == 0
