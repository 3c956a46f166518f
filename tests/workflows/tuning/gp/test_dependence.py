"""Partial dependence, on losses that are known everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real, random_point
from regiondag.tuning.domain import domain_of
from regiondag.tuning.encoding import Encoding
from regiondag.tuning.gp.ask import fit_model
from regiondag.tuning.gp.dependence import depend_on_each
from regiondag.tuning.sharing import Observation

SPACE = (
    Real("rate", 1e-4, 0.1, log=True),
    Integer("hidden", 8, 64),
    Choice("kind", ("a", "b", "c")),
    Real("idle", 0, 1),
)


def tried(objective, space=SPACE, count=40):
    points = [random_point(space, seed) for seed in range(count)]
    return [Observation(point, objective(point)) for point in points]


def by_name(objective, space=SPACE, **more):
    found = depend_on_each(domain_of(Search("bayes", space, (1,))), tried(objective, space, **more), 1)
    return {one.name: one for one in found}


def worth(point):
    return 10 + np.log10(point["rate"] / 1e-4) + 0.2 * (point["kind"] == "b") + 0.3 * (64 - point["hidden"]) / 56


def test_the_dependence_on_each_is_that_of_the_loss_in_its_own_unit_the_strongest_first():
    found = by_name(worth)
    assert list(found)[:2] == ["rate", "hidden"] and list(found)[-1] == "idle"
    rate = found["rate"]
    assert rate.values[0] == pytest.approx(1e-4) and rate.values[-1] == pytest.approx(0.1) and len(rate.values) == 9
    assert list(rate.means) == sorted(rate.means)  # it only rises
    assert rate.means[-1] - rate.means[0] == pytest.approx(3.0, abs=0.5)
    assert all(low <= mean <= high for low, mean, high in zip(rate.lows, rate.means, rate.highs, strict=True))
    assert list(found["hidden"].means) == sorted(found["hidden"].means, reverse=True)
    assert found["hidden"].values[0] == 8 and all(isinstance(value, int) for value in found["hidden"].values)
    kinds = dict(zip(found["kind"].values, found["kind"].means, strict=True))
    assert kinds["b"] - kinds["a"] == pytest.approx(0.2, abs=0.1) and kinds["c"] == pytest.approx(kinds["a"], abs=0.1)
    assert np.ptp(found["idle"].means) < 0.1


def test_a_hyperparameter_that_only_some_have_is_looked_at_where_it_is():
    space = (Choice("optimizer", ("adam", "sgd")), Real("momentum", 0.0, 1.0, when=(("optimizer", ("sgd",)),)))

    def loss(point):
        return 2.0 - point.get("momentum", 1.5)

    found = by_name(loss, space)
    momentum = found["momentum"]
    assert list(momentum.means) == sorted(momentum.means, reverse=True)
    assert momentum.means[0] == pytest.approx(2.0, abs=0.15) and momentum.means[-1] == pytest.approx(1.0, abs=0.15)
    assert found["optimizer"].values == ("adam", "sgd") and found["optimizer"].means[0] < found["optimizer"].means[1]


def test_an_average_is_that_of_the_single_predictions_and_is_known_better():
    domain, encoding = domain_of(Search("bayes", SPACE, (1,))), Encoding(SPACE)
    process = fit_model(domain, tried(worth, count=12), 1).process
    features = encoding.features(encoding.coordinates(random_point(SPACE, seed) for seed in range(50, 60)))
    features = features * encoding.weights
    means, deviations = process.predict(features)
    mean, deviation = process.predict_average(features)
    assert mean == pytest.approx(means[0].mean()) and deviation < deviations[0].mean()
    one, alone = process.predict_average(features[:1])
    assert (one, alone) == (pytest.approx(means[0, 0]), pytest.approx(deviations[0, 0]))


def test_nothing_depends_where_nothing_is_known():
    assert by_name(worth, count=1) == {} and by_name(lambda point: 1.0) == {}
