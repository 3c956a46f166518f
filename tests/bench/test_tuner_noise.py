"""Noise that is added to problems, whom rules name, and the knowledge gradient beside draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from regiondag.tuning.domain import domain_of
from regiondag.tuning.gp import ask
from scripts.bench.tuner import noise_runs
from scripts.bench.tuner.noise_runs import (
    AUTO,
    ERRORS,
    GRADIENT,
    MODEL,
    OBSERVED,
    ORACLE,
    RANDOM,
    UNEVEN,
    USUAL,
    Key,
    Noisy,
    Observation,
    deviation_at,
    features_of,
    knowledge_gradients,
    made,
    play,
    runs_in,
)
from scripts.bench.tuner.problems import problem
from scripts.bench.tuner.tuners.ours import search

EVEN = Noisy("branin2", 0.3)


def test_noise_is_a_part_of_the_range_of_random_points():
    low, high = (
        deviation_at(replace(EVEN, kind=UNEVEN), {"x0": -5.0}),
        deviation_at(replace(EVEN, kind=UNEVEN), {"x0": 10.0}),
    )
    assert high == pytest.approx(10 * low)
    point = {"x0": 2.5, "x1": 7.5}
    for noisy in (EVEN, replace(EVEN, kind=UNEVEN)):
        values = [made(noisy).observe(point, 1, trial) for trial in range(2000)]
        assert np.mean(values) == pytest.approx(problem("branin2").true(point), abs=0.1 * deviation_at(noisy, point))
        assert np.std(values) == pytest.approx(deviation_at(noisy, point), rel=0.1)
    assert made(Noisy("branin2", 0.0)) is problem("branin2")


@pytest.mark.parametrize("way", [USUAL, GRADIENT, ERRORS, RANDOM])
def test_a_run_is_the_same_again_and_names_points_that_it_tried(way, tmp_path):
    noisy = replace(EVEN, kind=UNEVEN) if way == ERRORS else EVEN
    key = Key(noisy, way, 0, 28)
    found = play(noisy, way, 0, 28)
    assert found == play(noisy, way, 0, 28)
    true = [problem("branin2").true(point) for point in found["points"]]
    assert all(best[28] in true for best in found["best"].values())
    if way == RANDOM:
        assert set(found["best"]) == {OBSERVED}
    else:
        assert {OBSERVED, MODEL, AUTO} < set(found["best"]) and found["best"][ORACLE][28] == min(true)
    [run] = runs_in(tmp_path).fill_all([key])
    assert run.best == found["best"] and run.noise == found["noise"]


def test_the_knowledge_gradient_is_the_mean_over_draws():
    chance = np.random.default_rng(1)
    asked = made(EVEN)
    domain = domain_of(search(asked.space, 10, 4))
    points = [asked.random_point(chance) for _ in range(12)]
    history = [Observation(point, asked.observe(point, 0, number)) for number, point in enumerate(points)]
    model = ask.fit_model(domain, history, 1)
    new = features_of(domain, [asked.random_point(chance)])
    gains = knowledge_gradients(model.process, model.told, new)
    assert gains.shape == (13,) and (gains > -1e-9).all()
    process, told = model.process, model.told
    theta = np.concatenate([-np.log(process.scale[0]), np.log(process.amplitude), np.log(process.noise)])[None]
    features = np.concatenate([told.data.features, new])
    before = process.predict(features)[0][0]
    mean, deviation = (part[0, 0] for part in process.predict(new))
    seen = np.sqrt(deviation**2 + process.noise[0])
    least = []
    for draw in noise_runs.CHANCES:
        data = replace(told.data, features=features, targets=np.append(told.data.targets, mean + seen * draw))
        least.append(ask.GaussianProcess(data, theta).predict(features)[0][0].min())
    weights = np.exp(-(noise_runs.CHANCES**2) / 2)
    assert gains[-1] == pytest.approx(before[:-1].min() - np.dot(least, weights) / weights.sum(), abs=1e-4)
