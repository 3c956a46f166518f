from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

from nnlib.contract import Recipe
from regiondag.run.history import History, Proposal, TrialOutcome
from regiondag.run.region_spec import RegionSpec
from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real
from regiondag.trials import rows as trialtable
from regiondag.trials.rows import RunTrials, trials_of
from regiondag.trials.table import CSV_COLUMNS, list_headings, sort_rows, summary_line, to_csv, to_rows, when_narrow
from regiondag.util.text import shorten

SPACE = (
    Choice("optimizer", ("adam", "sgd")),
    Real("learning_rate", 0.001, 0.1, log=True),
    Integer("hidden", 8, 64, log=True),
    Real("momentum", 0.0, 0.9, when=(("optimizer", ("sgd",)),)),
    Choice("kind", (1,)),
)


def region_trials(outcomes, name="Germany", metric="ndcg@5", minimize=False, space=SPACE, points=None):
    """Return the trials of one region; an outcome is a value, a status, or None while it runs."""
    from nnlib.contract import Metric, TrainSettings

    search = Search("bayes", space, (len(outcomes) or 1,))
    spec = RegionSpec("tiny", name, "slug", Metric(metric, minimize), TrainSettings(), search, ("final",), {})
    history = History()
    for number, outcome in enumerate(outcomes):
        history.proposals[number] = Proposal(number, points[number] if points else point(number))
        if isinstance(outcome, str):
            history.settle(TrialOutcome(number, outcome, f"it {outcome}", seconds=float(number)), 1e9 + number)
        elif outcome is not None:
            history.settle(TrialOutcome(number, "ok", value=outcome, curve=(0.0, outcome), best_epoch=2), 1e9 + number)
    return trials_of(spec, history)


def point(number):
    """Return a point of `SPACE` as it is proposed: momentum exists with sgd alone."""
    sgd = {"momentum": number % 10 / 10} if number % 2 else {}
    return {"optimizer": "sgd" if number % 2 else "adam", "learning_rate": 0.001 * 1.03**number, "hidden": 8 + number,
            "kind": 1, **sgd}  # fmt: skip


def run_of(*regions):
    return RunTrials("tiny", "run-tiny-1", regions)


def test_absent_hyperparameters_are_dashes_and_empty_fields():
    trials = run_of(region_trials([0.5, 0.25]))
    assert list_headings(trials.rows)[3:9] == ["ndcg@5", "optimizer", "learning_rate", "hidden", "kind", "momentum"]
    assert [row[8] for row in to_rows(trials.rows)] == ["-", "0.1"]
    first, second = to_csv(trials).splitlines()[1:]
    assert first.endswith(",adam,0.001,8,1,") and second.endswith(",sgd,0.00103,9,1,0.1")


def test_what_a_worker_wrote_is_no_formula_and_names_are_exact():
    trials = region_trials([-0.5, "diverged"], name="=1+1")
    rows = replace(trials.rows[1], reason="=HYPERLINK(1)")
    first, second = to_csv(run_of(replace(trials, rows=(trials.rows[0], rows)))).splitlines()[1:]
    assert first.split(",")[2] == "=1+1" and ",-0.5," in first and ",'=HYPERLINK(1)," in second


def test_values_of_different_metrics_are_not_compared():
    losses = region_trials([3.0, 1.0], "A", "loss", minimize=True)
    ranks = region_trials([0.1, "diverged", 0.9], "B", "p@10")
    rows = sort_rows(run_of(losses, ranks).rows, "value")
    assert [(row.region, row.value) for row in rows] == [("A", 1.0), ("A", 3.0), ("B", 0.9), ("B", 0.1), ("B", None)]
    assert [row[3:5] for row in to_rows(rows)] == [["1", "-"], ["3", "-"], ["-", "0.9"], ["-", "0.1"], ["-", "-"]]


@pytest.mark.parametrize(
    ("outcome", "ok", "failed"),
    [(0.5, True, False), (None, False, False), ("pruned", False, False), ("diverged", False, True),
     ("machine", False, True), ("removed", False, True), ("ok", False, True)],
)  # fmt: skip
def test_what_counts_as_failed(outcome, ok, failed):
    [row] = region_trials([outcome]).rows
    assert (row.ok, row.failed) == (ok, failed)


def test_the_longest_come_first():
    rows = region_trials([None, "diverged", "machine"]).rows  # of 1 and 2 seconds
    assert [row.trial for row in sort_rows(rows, "seconds")] == [2, 1, 0]
    assert [row.trial for row in sort_rows(rows, "trial")] == [0, 1, 2]


def test_the_best_come_first_and_what_failed_last():
    rows = region_trials([0.25, "diverged", 0.75, 0.5]).rows
    assert [row.trial for row in sort_rows(rows, "value")] == [2, 3, 0, 1]
    assert [row.cost for row in rows] == [-0.25, 0.0, -0.75, -0.5]
    assert [row.cost for row in region_trials([0.25], minimize=True).rows] == [0.25]


def test_a_table_in_full():
    won = replace(region_trials([0.123456], points=[{"deep": True}]).rows[0], won=True, seconds=1.25)
    failed = region_trials(["diverged"], points=[{}]).rows[0]
    assert list_headings([won, failed]) == [
        "region",
        "trial",
        "status",
        "ndcg@5",
        "deep",
        "epochs",
        "seconds",
        "reason",
    ]
    assert to_rows([won, replace(failed, reason="a\x1bb")]) == [
        ["Germany", "0", "ok (won)", "0.1235", "true", "2", "1.2", ""],
        ["Germany", "0", "diverged", "-", "-", "-", "0.0", "a\\x1bb"],
    ]


POINTS = [
    {"family": "popularity", "popularity_half_life": 10.0, "popularity_own": 0.5},
    {"family": "popularity", "popularity_half_life": 40.0, "popularity_own": 0.5},
    {"family": "graph", "graph_low_pass": 0.123456, "graph_ask_half_life": 10000.0},
    {"family": "network", "hidden": 64},
    {"family": "blend"},
]
BLEND = Recipe("blend", members=(Recipe("graph"), Recipe("popularity")), weights=(1.0, 0.5))


def judged_trials(name="all regions"):
    """Two popularities, a graph, a network whose job measured its own floor, and a blend, on 1,119 customers."""
    spec, history = region_trials([]).spec, History()
    outcomes = [
        (0.08, {"recipe": Recipe("popularity")}),
        (0.09, {"recipe": Recipe("popularity")}),
        (0.12, {"recipe": Recipe("graph")}),
        (0.11, {"compared": {"floor": {"ndcg@5": 0.0875}}}),
        (0.13, {"recipe": BLEND}),
    ]
    for number, (value, more) in enumerate(outcomes):
        history.proposals[number] = Proposal(number, POINTS[number])
        history.settle(TrialOutcome(number, "ok", value=value, stderr=0.00471, customers=1119, seconds=1.0, **more))
    return trials_of(replace(spec, name=name), history)


def test_a_value_stands_with_what_it_rests_on_and_has_to_beat():
    rows = judged_trials().rows
    assert [row.floor for row in rows] == [0.09, 0.09, 0.09, 0.0875, 0.09]
    assert list_headings(rows) == [
        *("region", "trial", "status", "ndcg@5", "error", "customers", "recent popularity"),
        *("family", "settings", "seconds", "reason"),
    ]
    assert [cells[3:9] for cells in to_rows(rows)[2:]] == [
        ["0.12", "0.0047", "1119", "0.09", "graph", "low_pass 0.123, ask_half_life 10000"],
        ["0.11", "0.0047", "1119", "0.0875", "network", "hidden 64"],
        ["0.13", "0.0047", "1119", "0.09", "blend", "blend of 1 graph, 0.5 popularity"],
    ]
    csv = to_csv(run_of(judged_trials())).splitlines()
    assert csv[0].split(",")[15:18] == ["stderr", "customers", "floor"]
    assert csv[3].split(",")[15:18] == ["0.00471", "1119", "0.09"]


def test_popularity_of_other_customers_is_no_floor():
    trials = judged_trials()
    history = History()
    history.settle(TrialOutcome(0, "ok", value=0.08, customers=1119, recipe=Recipe("popularity")))
    history.settle(TrialOutcome(1, "ok", value=0.12, customers=7))
    history.settle(TrialOutcome(2, "diverged", customers=1119))
    assert [row.floor for row in trials_of(trials.spec, history).rows] == [0.08, None, None]


def test_the_title_tells_of_the_floor_that_all_trials_of_a_region_have():
    rows = judged_trials().rows
    one = replace(judged_trials(), rows=(*rows[:3], rows[4]))
    assert summary_line(run_of(one)).endswith("0 waiting or running; recent popularity 0.090 (1,119)")
    assert "popularity" not in summary_line(run_of(one, judged_trials("Peru")))


def test_the_floor_of_trials_has_its_name():
    trials, history = judged_trials(), History()
    history.settle(TrialOutcome(0, "ok", value=0.1, customers=7, compared={"floor": {"ndcg@5": 0.08}}))
    [row] = trials_of(replace(trials.spec, floor=Recipe("logistic")), history).rows
    assert (row.floor, row.floor_name) == (0.08, "logistic regression")
    rows = [replace(row, floor=0.09, floor_name="logistic regression") for row in trials.rows]
    assert list_headings(rows)[6] == "logistic regression" and "logistic regression" in when_narrow(rows).drop
    assert "; logistic regression 0.090" in summary_line(run_of(replace(trials, rows=tuple(rows[:1]))))
    assert list_headings([*rows, *trials.rows])[6] == "the floor"


def test_a_network_is_shown_as_before_but_for_what_its_value_rests_on():
    loss = region_trials([7.25], metric="loss", minimize=True)
    assert "error" not in list_headings(loss.rows)  # a loss has no customers
    rows = [replace(row, stderr=0.01, customers=90, floor=0.2) for row in region_trials([0.5]).rows]
    assert list_headings(rows)[3:8] == ["ndcg@5", "error", "customers", "recent popularity", "optimizer"]
    assert to_rows(rows)[0][3:8] == ["0.5", "0.0100", "90", "0.2", "adam"]


def test_a_program_s_figure_stands_with_its_standard_error_alone():
    rows = [replace(row, stderr=0.0123) for row in region_trials([0.5]).rows]
    rows += region_trials([0.25]).rows
    assert list_headings(rows)[3:6] == ["ndcg@5", "error", "optimizer"]
    assert [cells[3:6] for cells in to_rows(rows)] == [["0.5", "0.0123", "adam"], ["0.25", "-", "adam"]]


@pytest.mark.parametrize(
    ("trials", "gone"),
    [
        ([judged_trials()], ("region", "reason", "seconds", "epochs", "priority", "customers", "machine")),
        ([judged_trials(), judged_trials("Peru")], ("reason", "seconds", "epochs", "priority", "customers", "machine")),
        ([region_trials(["diverged"])], ("region", "seconds", "epochs", "priority", "customers", "machine")),
    ],
)
def test_what_a_narrow_terminal_leaves_out(trials, gone):
    rows = run_of(*trials).rows
    drop = when_narrow(rows).drop
    assert drop[: len(gone)] == gone
    assert ("recent popularity" in drop) == (len(trials) == 1)
    assert not {"trial", "ndcg@5", "error", "family"} & set(drop)


def test_csv_tells_times_in_utc():
    first = to_csv(run_of(region_trials([0.5]))).splitlines()[1].split(",")
    assert first[CSV_COLUMNS.index("settled")] == "2001-09-09T01:46:40Z"  # a thousand million seconds
    running = to_csv(run_of(region_trials([None]))).splitlines()[1].split(",")
    assert running[CSV_COLUMNS.index("settled")] == "" and running[CSV_COLUMNS.index("status")] == "running"


def test_how_many_trials_have_come_to_what():
    line = summary_line(run_of(region_trials([0.5, "pruned", "diverged", "machine", None])))
    assert line == "tiny, Germany: 4 of 5 trials settled, 2 failed, 1 pruned, 1 waiting or running"
    two = summary_line(run_of(region_trials([0.5]), region_trials([None], "Malta")))
    assert two == "tiny: 1 of 2 trials settled, 0 failed, 0 pruned, 1 waiting or running"


def test_long_and_odd_texts():
    assert (shorten("Germany", 7), shorten("Germany", 6), shorten("a\uffffb\ufffe", 9)) == (
        "Germany",
        "Germa…",
        "a?b?",
    )
    assert doctest.testmod(trialtable).failed == 0


def test_epochs_are_those_of_the_curve():
    [row] = region_trials([0.5]).rows
    assert row.epochs == 2 and row.curve == (0.0, 0.5)


def test_a_trial_that_was_settled_without_a_proposal_is_shown():
    trials = region_trials([])
    history = History()
    history.settle(TrialOutcome(7, "machine", "the job was killed by signal 9"))
    [row] = trials_of(trials.spec, history).rows
    assert row.trial == 7 and row.hyperparameters == {} and row.settled is None
