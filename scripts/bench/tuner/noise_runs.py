"""Runs of our method on problems with added noise, and whom different rules name as the best of the trials."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from regiondag.tuning.domain import Domain, domain_of, identity_of
from regiondag.tuning.encoding import Encoding
from regiondag.tuning.gp import ask
from regiondag.tuning.gp.process import NOISE_CENTRE, GaussianProcess
from regiondag.tuning.gp.training_set import TrainingSet, scale_of, tell
from regiondag.tuning.propose import rank_trials
from scripts.bench.common.kept_runs import KeptRuns, digest_of
from scripts.bench.tuner.methods import OUR_SOURCES
from scripts.bench.tuner.problem import Point, Problem, Value
from scripts.bench.tuner.problems import problem
from scripts.bench.tuner.tuners.face import BATCH, BUDGETS
from scripts.bench.tuner.tuners.ours import Neighbour, Observation, propose, search

SAMPLE = 400  # random points, whose interquartile range noise is a part of
SPREAD = 10.0  # between the largest and the smallest deviation of uneven noise
FEW = 5  # best values, among which a rule lets the model choose
EVERY = 2  # rounds: how often a point is tried again
NOISE_LEAST = 0.01  # of the targets' variance: less noise than that needs nothing tried again
CHANCES = np.linspace(-2.4, 2.4, 33)  # what a value may come out as, in deviations

EVEN, UNEVEN = "even", "uneven"  # the same deviation everywhere, or one that grows along the first number
USUAL, EIGHTH, GRADIENT, ERRORS, RANDOM = "usual", "eighth", "gradient", "errors", "random"
OBSERVED, MODEL, AUTO = "observed", "model", "auto"  # what `winner` may be
CAUTIOUS, AMONG_FEW, ORACLE = "cautious", "few", "oracle"
OWN_NOISE = "mlp_digits"  # trainings with seeds: a point's truth is twenty of them


@dataclass(frozen=True)
class Noisy:
    """A problem with noise whose deviation is a part of the interquartile range of random points."""

    base: str
    part: float
    kind: str = EVEN

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.base} {self.part:g}" + f" {self.kind}" * (self.kind != EVEN)


@dataclass(frozen=True)
class Key:
    """Which run."""

    noisy: Noisy
    way: str
    seed: int
    trials: int


@dataclass(frozen=True)
class Run:
    """The true value of what each rule names after each budget, and how much of the values a model took for noise."""

    key: Key
    best: Mapping[str, Mapping[int, float]]
    noise: Mapping[int, float]


@cache
def deviation_of(noisy: Noisy) -> float:
    """Return the noise's standard deviation, that in the middle where it is uneven."""
    chance = np.random.default_rng(5)
    base = problem(noisy.base)
    low, high = np.quantile([base.true(base.random_point(chance)) for _ in range(SAMPLE)], (0.25, 0.75))
    return noisy.part * float(high - low)


def deviation_at(noisy: Noisy, point: Point) -> float:
    """Return the noise's standard deviation at a point."""
    if noisy.kind == EVEN:
        return deviation_of(noisy)
    first = next(p for p in problem(noisy.base).space if not p.options and not p.when)
    value, low, high = (float(x) for x in (point[first.name], first.low, first.high))
    place = np.log(value / low) / np.log(high / low) if first.log else (value - low) / (high - low)
    return float(deviation_of(noisy) * SPREAD ** (place - 0.5))


@cache
def made(noisy: Noisy) -> Problem:
    """Return the problem."""
    base = problem(noisy.base)
    if not noisy.part:
        return base
    if noisy.kind == EVEN:
        return replace(base, name=noisy.name, noise=deviation_of(noisy))

    def trial(point: Point, seed: int) -> float:
        return base.true(point) + deviation_at(noisy, point) * float(np.random.default_rng(seed).standard_normal())

    return replace(base, name=noisy.name, trial=trial)


def runs_in(folder: Path) -> KeptRuns[Key, Run]:
    """Return the runs that a folder keeps."""
    sources = digest_of((*OUR_SOURCES, "scripts/bench/tuner/noise_runs.py"))
    return KeptRuns(
        lambda key: folder / key.way / key.noisy.name / f"{key.seed}.json",
        lambda key: f"{made(key.noisy).fingerprint()} {sources}",
        _read,
        lambda key: play(key.noisy, key.way, key.seed, key.trials),
    )


def _read(key: Key, raw: Mapping[str, Any]) -> Run | None:
    best = {rule: {int(mark): value for mark, value in found.items()} for rule, found in raw["best"].items()}
    noise = {int(mark): value for mark, value in raw["noise"].items()}
    return Run(key, best, noise) if len(raw["values"]) >= key.trials else None


def play(noisy: Noisy, way: str, seed: int, trials: int) -> dict[str, Any]:
    """Try so many points, in rounds, and name the best after each budget."""
    asked = made(noisy)
    history: list[Observation] = []
    best: dict[str, dict[int, float]] = {}
    noise: dict[int, float] = {}
    with threadpool_limits(1), _told_errors(noisy) if way == ERRORS else nullcontext():
        player = _Player(asked, way, seed)
        while len(history) < trials:
            for point in player.next(history):
                value = asked.observe(point, seed, len(history))
                history.append(Observation(point, value))
            if len(history) in BUDGETS or len(history) >= trials:
                named, learned = player.name(history)
                for rule, number in named.items():
                    best.setdefault(rule, {})[len(history)] = asked.true(history[number].point)
                noise[len(history)] = learned
    return {
        "points": [o.point for o in history],
        "values": [o.loss for o in history],
        "best": best,
        "noise": noise,
    }


class _Player:
    """Our method, or random search."""

    def __init__(self, asked: Problem, way: str, seed: int) -> None:
        self.asked, self.way, self.seed = asked, way, seed
        self.search = search(asked.space, BUDGETS[-1] // BATCH, BATCH)
        self.chance = np.random.default_rng([seed, 77])

    def next(self, history: Sequence[Observation]) -> list[dict[str, Value]]:
        """Return the points of the next round."""
        if self.way == RANDOM:
            return [self.asked.random_point(self.chance) for _ in range(BATCH)]
        points = [self.asked.without_absent(p) for p in propose(self.search, history, [], BATCH, self.seed)]
        if self.way in (EIGHTH, GRADIENT) and len(history) >= 2 * BATCH:
            again = self._again(history, points[-1])
            points[-1] = points[-1] if again is None else dict(again)
        return points

    def _again(self, history: Sequence[Observation], new: Point) -> Point | None:
        """Return a point that is to be tried again instead of a new one."""
        domain = domain_of(self.search)
        model = ask.fit_model(domain, history, self.seed)
        if model is None:
            return None
        if self.way == EIGHTH:
            if len(history) // BATCH % EVERY or model.process.noise[0] < NOISE_LEAST:
                return None
            return history[int(np.argmin(model.process.predict(model.told.data.features)[0][0]))].point
        gains = knowledge_gradients(model.process, model.told, features_of(domain, [new]))
        most = int(np.argmax(gains))
        return history[most].point if most < len(history) else None

    def name(self, history: Sequence[Observation]) -> tuple[dict[str, int], float]:
        """Return the number of the trial that each rule takes for the best, and the noise that a model learned."""
        values = _means_of_replicates(history)
        named = {OBSERVED: int(np.argmin(values))}
        if self.way == RANDOM:
            return named, 0.0
        domain = domain_of(self.search)
        model = ask.fit_model(domain, history, self.seed)
        if model is None:
            raise RuntimeError("a model of a whole run is missing")
        means, deviations = (part[0] for part in model.process.predict(model.told.data.features))
        few = np.argsort(values, kind="stable")[:FEW]
        for rule in (MODEL, AUTO):
            named[rule] = rank_trials(replace(self.search, winner=rule), history, self.seed)[0]
        named[CAUTIOUS] = int(np.argmin(means + deviations))
        named[AMONG_FEW] = int(few[np.argmin(means[few])])
        if self.asked.name != OWN_NOISE:  # that would take minutes
            named[ORACLE] = int(np.argmin([self.asked.true(o.point) for o in history]))
        return named, float(model.process.noise[0])


def features_of(domain: Domain, points: Iterable[Point]) -> np.ndarray:
    """Return points as the model sees them."""
    encoding = Encoding(domain.space)
    return np.asarray(encoding.features(encoding.coordinates(points)) * encoding.weights)


def knowledge_gradients(process: GaussianProcess, told: TrainingSet, new: np.ndarray) -> np.ndarray:
    """Return by how much the least mean falls, on the average, when each trial is made again, or a new point tried."""
    tried = told.data.features
    features = np.concatenate([tried, new])
    means = process.predict(features)[0][0]
    cross = process._kernel(features * process.scale[:, None, :])[0]  # (all, tried)
    white = cross @ process.whiten[0].T
    covariance = np.hstack([cross, np.append(cross[-1:], process.amplitude[0])[:, None]]) - white @ white.T
    variances = np.maximum(np.diag(covariance), 1e-10)
    moves = covariance / np.sqrt(variances + process.noise[0])  # column: what is tried
    weights = np.exp(-(CHANCES**2) / 2)
    least = np.array([(means[:, None] + moves[:, [j]] * CHANCES).min(axis=0) for j in range(len(features))])
    before = means[:-1].min()
    return np.asarray(before - least @ weights / weights.sum())


def _means_of_replicates(history: Sequence[Observation]) -> np.ndarray:
    names = [identity_of(o.point) for o in history]
    by_name: dict[str, list[float]] = {}
    for name, o in zip(names, history, strict=True):
        by_name.setdefault(name, []).append(o.loss or 0.0)
    return np.array([np.mean(by_name[name]) for name in names])


def _told_errors(noisy: Noisy) -> AbstractContextManager[object]:
    """Let the model be told each trial's own variance, as a part of that of its targets."""

    def told(domain: Domain, history: Sequence[Observation], neighbours: Sequence[Neighbour] = ()) -> TrainingSet:
        found = tell(domain, history, neighbours)
        scale = scale_of([o.loss for o in history])
        if scale is None:
            return found
        losses = np.array([o.loss for o in history])
        slopes = 1 / (1 + np.maximum((losses - scale.median) / scale.width, 0)) / scale.unit
        variances = (np.array([deviation_at(noisy, o.point) for o in history]) * slopes) ** 2
        count = len(history)
        data = replace(
            found.data,
            sources=np.arange(count),
            similarity=np.ones(count),
            noises=variances / np.exp(NOISE_CENTRE),
        )
        return replace(found, data=data)

    return patch.object(ask, "tell", told)
