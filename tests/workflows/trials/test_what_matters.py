"""Which hyperparameters mattered, and how, on losses that are known."""

from __future__ import annotations

import math
import sys

import pytest

from nnlib.util.process import install_line
from regiondag.errors import RegiondagError
from regiondag.study.space import Choice, Real, random_point
from regiondag.trials.dependence import find_dependence
from regiondag.trials.what_matters import (
    RegionImportance,
    average_shares,
    explain_importance,
    tabulate_dependence,
    tabulate_importance,
)
from tests.workflows.trials.test_rows import region_trials

SPACE = (Real("rate", 1e-4, 0.1, log=True), Real("idle", 0.0, 1.0), Choice("kind", ("a", "b")))


def worth(point):
    return 0.5 - 0.1 * math.log10(point["rate"] / 1e-4) + 0.02 * (point["kind"] == "b")


def played(count=20, failed=(), **more):
    points = [random_point(SPACE, seed) for seed in range(count)]
    outcomes = ["diverged" if n in failed else worth(point) for n, point in enumerate(points)]
    return region_trials(outcomes, space=SPACE, points=points, **more)


@pytest.mark.parametrize("minimize", [False, True])
def test_the_dependence_is_in_the_metrics_own_direction(minimize):
    first, *others = find_dependence(played(minimize=minimize, metric="loss" if minimize else "ndcg@5"))
    assert first.hyperparameter == "rate" and {one.hyperparameter for one in others} == {"idle", "kind"}
    assert list(first.means) == sorted(first.means, reverse=True)  # it only falls, whatever is better
    assert first.means[0] - first.means[-1] == pytest.approx(0.3, abs=0.06)
    assert all(low <= mean <= high for low, mean, high in zip(first.lows, first.means, first.highs, strict=True))


def test_it_rests_on_trials_that_succeeded():
    pytest.importorskip("sklearn")
    found = explain_importance(played(20, failed=(3, 4, 5)), dependence=True)
    assert found.trials == 17 and found.note == "" and next(iter(found.shares)) == "rate"
    assert sum(found.shares.values()) == pytest.approx(1.0) and found.dependence[0].hyperparameter == "rate"
    assert explain_importance(played()).dependence == ()  # nobody asked for it


@pytest.mark.parametrize(
    ("trials", "note"),
    [
        (region_trials([]), "0 trials have succeeded, and of fewer than 8 nothing can be said"),
        (played(7), "7 trials have succeeded, and of fewer than 8 nothing can be said"),
        (region_trials([0.5] * 9), "all trials came to the same, as far as hyperparameters explain it"),
        (region_trials([0.1 * n for n in range(9)], space=SPACE[2:], points=[{"kind": "a"}] * 9),
         "no hyperparameter had more than one value"),
    ],
)  # fmt: skip
def test_where_nothing_can_be_said_it_says_why(trials, note):
    found = explain_importance(trials, dependence=True)
    assert (found.shares, found.note, found.dependence) == ({}, note, ())
    assert tabulate_importance([found])[1] == [["Germany", str(found.trials), note]]


def made(region, shares, trials=10):
    return RegionImportance(region, region, "ndcg@5", False, trials, shares, "" if shares else "too few")


def test_over_all_regions_each_counts_once():
    regions = [made("a", {"x": 0.8, "y": 0.2}, 90), made("b", {"y": 1.0}), made("c", {}, 3)]
    assert average_shares(regions) == {"y": pytest.approx(0.6), "x": pytest.approx(0.4)}
    assert average_shares([]) == {}
    headings, rows = tabulate_importance(regions)
    assert headings[:2] == ["region", "trials"]
    assert rows == [
        ["a", "90", "x 0.80, y 0.20"],
        ["b", "10", "y 1.00"],
        ["c", "3", "too few"],
        ["all 2 regions", "100", "y 0.60, x 0.40"],
    ]
    assert len(tabulate_importance(regions[:1])[1]) == 1


def test_a_dependence_as_a_table():
    headings, rows = tabulate_dependence(find_dependence(played())[0], "ndcg@5")
    assert headings == ["rate", "ndcg@5", "95 %"] and len(rows) == 9
    assert rows[0][0] == "0.0001" and " to " in rows[0][2]


def test_blends_are_beside_the_space(monkeypatch):
    space = (Choice("family", ("ease", "popularity")), SPACE[1])
    points = [{"family": "ease" if n % 2 else "popularity", "idle": n / 10} for n in range(10)]
    trials = region_trials([0.1 * (n % 2) for n in range(11)], space=space, points=[*points, {"family": "blend"}])
    assert explain_importance(trials).trials == 10


def test_without_scikit_learn_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(RegiondagError) as caught:
        explain_importance(played())
    assert install_line("plots") in str(caught.value)
