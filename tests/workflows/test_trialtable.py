from __future__ import annotations

from dataclasses import replace

import pytest

from workflows.journal import History, Proposal, Settled
from workflows.regionspec import RegionSpec
from workflows.space import Choice, Integer, Real
from workflows.study import Search
from workflows.trialtable import RunTrials, headings, sort_rows, table, to_csv, trials_of

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
            history.settle(Settled(number, outcome, f"it {outcome}", seconds=float(number)), 1e9 + number)
        elif outcome is not None:
            history.settle(Settled(number, "ok", value=outcome, curve=(0.0, outcome), best_epoch=2), 1e9 + number)
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
    assert headings(trials.rows)[3:9] == ["ndcg@5", "optimizer", "learning_rate", "hidden", "kind", "momentum"]
    assert [row[8] for row in table(trials.rows)] == ["-", "0.1"]
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
    assert [row[3:5] for row in table(rows)] == [["1", "-"], ["3", "-"], ["-", "0.9"], ["-", "0.1"], ["-", "-"]]


@pytest.mark.parametrize(
    ("outcome", "ok", "failed"),
    [(0.5, True, False), (None, False, False), ("pruned", False, False), ("diverged", False, True),
     ("machine", False, True), ("removed", False, True), ("ok", False, True)],
)  # fmt: skip
def test_what_counts_as_failed(outcome, ok, failed):
    [row] = region_trials([outcome]).rows
    assert (row.ok, row.failed) == (ok, failed)


def test_epochs_are_those_of_the_curve():
    [row] = region_trials([0.5]).rows
    assert row.epochs == 2 and row.curve == (0.0, 0.5)


def test_a_trial_that_was_settled_without_a_proposal_is_shown():
    trials = region_trials([])
    history = History()
    history.settle(Settled(7, "machine", "the job was killed by signal 9"))
    [row] = trials_of(trials.spec, history).rows
    assert row.trial == 7 and row.hyperparameters == {} and row.settled is None
