"""Values of folds or of customers: what serves is left only for what is surely better on the same ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnlib.contract import PROGRAM_FILE, RESULT_FILE, Metric, Recipe, Result, Status, TrainSettings, result_to_json
from regiondag.node.choice_alone import _choose_by_value
from regiondag.node.program_cases import interval_of, probability_of_pair
from regiondag.run.history import History, Proposal, TrialOutcome
from regiondag.run.layout import NodeName, RegionFolder, RunFolder
from regiondag.run.region_spec import RegionSpec
from regiondag.study.families import PROGRAM
from regiondag.study.model import Search
from regiondag.study.space import Real
from regiondag.util.intervals import t95

SPEC = replace(
    RegionSpec(
        "shop",
        "North",
        "north",
        Metric("auc"),
        TrainSettings(),
        Search("bayes", (Real("rate", 0.1, 1.0),), (2,)),
        (),
        {PROGRAM_FILE: "0"},
    ),
    incumbent=Recipe(PROGRAM),
)
BEFORE = (0.5, 0.6, 0.7, 0.6, 0.5)


@pytest.fixture
def folder(tmp_path) -> RegionFolder:
    return RunFolder(tmp_path / "run-shop").region("north")


def end(folder, trial, cases, folds=False, stderr=None):
    node = NodeName("north", trial)
    place = folder.trial(node)
    place.mkdir(parents=True, exist_ok=True)
    value = float(np.mean(cases)) if len(cases) else 0.6
    result = Result(str(node), Status.OK, value=value, cases=tuple(cases), folds=folds, stderr=stderr)
    (place / RESULT_FILE).write_text(result_to_json(result))
    return value


def decide(folder, before, now, folds, spec=SPEC):
    values = [end(folder, 0, before, folds), end(folder, 1, now, folds)]
    history = History(
        {trial: Proposal(trial, {"rate": 0.5}) for trial in (0, 1)},
        {trial: TrialOutcome(trial, Status.OK, value=value) for trial, value in enumerate(values)},
    )
    return _choose_by_value(folder, spec, history, 1, 0, {0: "old", 1: "new"})


def test_what_serves_stays_where_another_is_better_by_chance_alone(folder):
    now = [one + gain for one, gain in zip(BEFORE, (0.2, -0.15, 0.1, -0.1, 0.0), strict=True)]
    for folds, words in ((True, "5 folds"), (False, "5 values")):
        decision = decide(folder, BEFORE, now, folds)
        assert decision.candidate == "old" and decision.reason.startswith("kept: new is better with P = .")
        assert decision.reason.endswith(f"only ({words})")


def test_what_is_surely_better_on_the_same_ones_takes_its_place(folder):
    now = [one + gain for one, gain in zip(BEFORE, (0.02, 0.03, 0.02, 0.03, 0.02), strict=True)]
    decision = decide(folder, BEFORE, now, True)
    assert (decision.candidate, decision.reason) == ("new", "better than old, in office, with P = .999 (5 folds)")
    less = replace(SPEC, metric=Metric("rmse", minimize=True))
    assert decide(folder, now, BEFORE, True, less).candidate == "new"


@pytest.mark.parametrize("before", [(), (0.1,), BEFORE[:4]])
def test_values_of_other_cases_are_not_held_against_each_other(folder, before):
    assert decide(folder, before, [one + 0.1 for one in BEFORE], False).reason == "the trial with the most auc"


def test_folds_are_less_sure_than_values_are(folder):
    gains = (0.05, -0.02, 0.04, 0.01, -0.01)
    decide(folder, BEFORE, [one + gain for one, gain in zip(BEFORE, gains, strict=True)], True)
    folds = probability_of_pair(folder, SPEC, 1, 0)
    decide(folder, BEFORE, [one + gain for one, gain in zip(BEFORE, gains, strict=True)], False)
    values = probability_of_pair(folder, SPEC, 1, 0)
    # scipy.stats.t.cdf(0.014 / (0.030496 * sqrt(1 / 5 + 1 / 4)), 4)
    assert folds is not None and folds[0] == pytest.approx(0.733, abs=2e-3)
    assert values is not None and values[0] > folds[0]


def test_the_last_trainings_interval_is_students_where_it_is_known_of_how_many(folder):
    assert interval_of(folder, SPEC) == {}
    end(folder, None, BEFORE, stderr=0.01)
    half = t95(4) * 0.01
    assert interval_of(folder, SPEC)["auc"] == pytest.approx((0.58 - half, 0.58 + half))
    end(folder, None, (), stderr=0.01)
    assert interval_of(folder, SPEC)["auc"] == pytest.approx((0.6 - 0.0196, 0.6 + 0.0196), abs=1e-5)
    end(folder, None, (0.5,))
    assert interval_of(folder, SPEC) == {}
