"""The default method: a Gaussian process on warped losses, and a portfolio of criteria for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regiondag.study.space import Point, Value
from regiondag.tuning.domain import Domain, identity_of
from regiondag.tuning.encoding import Array, Encoding
from regiondag.tuning.gp.acquisition import Bound, Criterion, Improvement, log_improvement
from regiondag.tuning.gp.maximise import Maximiser
from regiondag.tuning.gp.process import GaussianProcess, Observed, Posterior
from regiondag.tuning.gp.success import Likely, Success, model_success
from regiondag.tuning.gp.training_set import (
    MOST,
    Scale,
    TrainingSet,
    choose_most_telling,
    leave_out_failures,
    loss_of_unit,
    scale_of,
    tell,
)
from regiondag.tuning.noise import Gain
from regiondag.tuning.proposed import Proposed, Source
from regiondag.tuning.sharing import Neighbour, Observation

COSTED = 200  # the latest observations, which decide what a trial costs
NEAR, SAME = 3, 1e-4  # points of neighbours that are looked at; coordinates this close are those of one point
NOISY = 0.1  # part of the targets' variance: if so much is chance, the best seen is mostly lucky
FITTED = 120  # observations, at the most, that decide the hyperparameters
Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Turn:
    """How one point of a batch is chosen: its criterion, and how far around the best points it looks."""

    beta: float | None  # of the lower confidence bound; None: expected improvement
    reach: float  # 1: everywhere

    def describe(self, priced: bool) -> str:
        """Return the criterion in plain words; `priced`: by what it costs, which a bound does not know."""
        name = f"lower bound, beta {self.beta:g}" if self.beta and not priced else "expected improvement"
        return name + " per second" * priced + " near the best points" * (self.reach < 1)


PORTFOLIO = (Turn(None, 1.0), Turn(1.0, 1.0), Turn(None, 0.3), Turn(2.5, 1.0))


def ask(
    domain: Domain,
    history: Sequence[Observation],
    pending: Sequence[Point],
    n: int,
    seed: int,
    per_second: bool = False,
    neighbours: Sequence[Neighbour] = (),
) -> list[dict[str, Value]]:
    """Return up to `n` points that differ from all of `history` and `pending`; fewer when the search finds no more.

    Without two trials, of one's own or of a similar neighbour, it finds none.
    """
    return [one.point for one in ask_with_reasons(domain, history, pending, n, seed, per_second, neighbours)]


def ask_with_reasons(
    domain: Domain,
    history: Sequence[Observation],
    pending: Sequence[Point],
    n: int,
    seed: int,
    per_second: bool = False,
    neighbours: Sequence[Neighbour] = (),
) -> list[Proposed]:
    """Return what `ask` does, each point with the criterion that chose it."""
    encoding = Encoding(domain.space)
    if not domain.free:
        return []
    random = np.random.Generator(np.random.PCG64(seed))
    taken = {identity_of(point) for point in [*(o.point for o in history), *pending]}
    good = leave_out_failures(history)
    told = tell(domain, good, neighbours)
    if len(told.rows) < 2:
        return []
    process = _fit(told.data, random)
    cost = _cost(history, encoding, random) if per_second else None
    means = process.predict(told.data.features)[0]
    best = means[:, : told.own or None].min(axis=1)  # the model's incumbent, not the luckiest observation
    anchors, fresh = _anchors(means.mean(axis=0), told)
    success = _success(history, encoding, random) if len(good) < len(history) else None
    if success:  # nothing is to be learned where trials failed: the model of losses takes them for what it foresaw
        failed = [o.point for o in history[-MOST:] if o.loss is None]
        process.believe(encoding.features(encoding.coordinates(failed)) * encoding.weights)
    if pending:
        process.believe(encoding.features(encoding.coordinates(pending)) * encoding.weights)
    points: list[Proposed] = []
    first = len(history) + len(pending)  # counted from here, lanes that ask for one point at a time take turns, too
    for number in range(first, first + n):
        turn = PORTFOLIO[number % len(PORTFOLIO)]
        criterion: Criterion = Improvement(process, best, cost)
        if turn.beta is not None and cost is None:  # a bound has no price
            criterion = Bound(process, turn.beta)
        criterion = Likely(criterion, success) if success else criterion
        maximiser = Maximiser(domain, encoding, criterion, random, fresh)
        point, source, how = maximiser.best(anchors, turn.reach, taken), Source.MODEL, turn.describe(cost is not None)
        if point is None:
            point, source, how = maximiser.draw(taken), Source.CHANCE, "a random point: the model found nothing new"
        if point is None:
            break
        points.append(Proposed(point, source, how))
        taken.add(identity_of(point))
        there = encoding.features(encoding.coordinates([point])) * encoding.weights
        best = np.minimum(best, process.predict(there)[0][:, 0])  # the next one has to be better than this is believed
        process.believe(there)
    return points


def expect_improvement(
    domain: Domain,
    history: Sequence[Observation],
    points: Sequence[Point],
    seed: int,
    neighbours: Sequence[Neighbour] = (),
) -> Gain | None:
    """Return how much better than the best the best of `points` is expected to be, in units of the loss.

    None where there is no model. Losses below the median are told to the model on a linear scale, so that its
    improvements are those of losses, times a constant.
    """
    good = leave_out_failures(history)
    model = fit_model(domain, good, seed, neighbours) if points else None
    if model is None:
        return None
    process, told = model.process, model.told
    encoding = Encoding(domain.space)
    means = process.predict(told.data.features)[0]
    best = means[:, : told.own or None].min(axis=1)
    features = encoding.features(encoding.coordinates(points)) * encoding.weights
    unit = loss_of_unit([o.loss for o in good])
    logs = Improvement(process, best).value(features)
    most = int(logs.argmax())
    mean, deviation = (float(part[0, most]) for part in process.predict(features))
    gain = float(np.exp(logs[most])) * unit
    low, high = (max(best[0] - mean + sign * Z95 * deviation, 0.0) * unit for sign in (-1, 1))
    return Gain(gain, float(low), max(float(high), gain))


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a model takes the loss of a trial at some point to be, in the loss's own unit."""

    mean: float
    low: float  # 95 % of what such a trial comes to, chance included
    high: float
    improvement: float  # expected, on `best`
    best: float  # what it takes the best point tried to be, chance left out
    surprise: float | None  # how many deviations above the mean it came; None: not known


def foresee_loss(
    domain: Domain,
    history: Sequence[Observation],
    point: Point,
    came: float | None,
    seed: int,
    neighbours: Sequence[Neighbour] = (),
) -> Foreseen | None:
    """Return what the model that `ask` has after `history` expects of a point, and how far off that was.

    None where it knows nothing of the loss: without two trials of one's own, or where all are equal.
    """
    model = fit_model(domain, leave_out_failures(history), seed, neighbours)
    if model is None or model.scale is None or model.told.own < 2:
        return None
    process, told, scale = model.process, model.told, model.scale
    encoding = Encoding(domain.space)
    mean, deviation = process.predict(encoding.features(encoding.coordinates([point])) * encoding.weights)
    best = process.predict(told.data.features)[0][:, : told.own].min(axis=1)
    spread = np.sqrt(deviation**2 + process.noise[:, None])
    losses = scale.losses(np.concatenate([mean[0], (mean - Z95 * spread)[0], (mean + Z95 * spread)[0], best]))
    logs = log_improvement(mean, deviation, best[:, None])[0]
    surprise = None if came is None else float((scale.targets(np.array([came])) - mean[0])[0] / spread[0, 0])
    expected, low, high, lowest = map(float, losses)
    return Foreseen(expected, low, high, float(np.exp(logs[0, 0])) * scale.unit, lowest, surprise)


@dataclass(frozen=True, slots=True)
class Model:
    """A process that was fitted, what it was told, and how losses became its targets: None where all are equal."""

    process: GaussianProcess
    told: TrainingSet
    scale: Scale | None


def fit_model(
    domain: Domain, history: Sequence[Observation], seed: int, neighbours: Sequence[Neighbour] = ()
) -> Model | None:
    """Return the model of what is known; None without two trials, of one's own or of a similar neighbour."""
    told = tell(domain, history, neighbours)
    if len(told.rows) < 2 or not domain.free:
        return None
    process = _fit(told.data, np.random.Generator(np.random.PCG64(seed)))
    return Model(process, told, scale_of([o.loss for o in choose_most_telling(history)]))


def predict_losses(
    domain: Domain, history: Sequence[Observation], seed: int, neighbours: Sequence[Neighbour] = ()
) -> Array | None:
    """Return what the model takes each trial's loss to be, chance left out; None where there is nothing to fit it to.

    On a scale of its own, on which less is better.
    """
    model = fit_model(domain, leave_out_failures(history), seed, neighbours)
    return None if model is None else _predict_trials(model, domain, history)[0]


def predict_noisy_losses(
    domain: Domain, history: Sequence[Observation], seed: int, neighbours: Sequence[Neighbour] = ()
) -> Array | None:
    """Return the same, one deviation worse, so that of two alike the better known one wins; None without much noise.

    Where there is little, a model that takes a rough objective for a noisy one loses the best that was seen.
    """
    model = fit_model(domain, leave_out_failures(history), seed, neighbours)
    if model is None or model.process.noise[0] < NOISY:
        return None
    mean, deviation = _predict_trials(model, domain, history)
    return mean + deviation


def _predict_trials(model: Model, domain: Domain, history: Sequence[Observation]) -> tuple[Array, Array]:
    """Return means and deviations of what the model takes the trials' losses to be."""
    encoding = Encoding(domain.space)
    features = encoding.features(encoding.coordinates(o.point for o in history)) * encoding.weights
    means, deviations = model.process.predict(features)
    return means[0], deviations[0]


def _fit(data: Observed, random: np.random.Generator) -> GaussianProcess:
    """Return the process after `data` with the most probable hyperparameters.

    Averaging over eight slice samples of them cost twice as much and found no more (10 problems, 4 seeds).
    """
    few = data
    if len(data.targets) > FITTED:
        order = np.argsort(data.targets, kind="stable")
        chosen = np.sort(
            np.concatenate([order[: FITTED // 2], random.choice(order[FITTED // 2 :], FITTED // 2, False)])
        )
        few = data.take(chosen)
    posterior = Posterior(few)
    mode = np.round(posterior.mode(random), 3)
    return GaussianProcess(data, mode[None])


def _success(history: Sequence[Observation], encoding: Encoding, random: np.random.Generator) -> Success | None:
    """Return a model of which trials succeed; None where of the latest none failed, or all did."""
    known = history[-MOST:]
    failed = np.array([o.loss is None for o in known])
    if failed.all() or not failed.any():
        return None
    features = encoding.features(encoding.coordinates(o.point for o in known)) * encoding.weights
    return model_success(features, failed, encoding.groups, lambda data: _fit(data, random))


def _cost(history: Sequence[Observation], encoding: Encoding, random: np.random.Generator) -> GaussianProcess | None:
    """Return a process of the log of the seconds that a trial takes; None while too few are known."""
    known = [o for o in history[-COSTED:] if o.seconds and o.loss is not None]
    if len(known) < 4:
        return None
    logs = np.log([o.seconds or 1.0 for o in known])
    features = encoding.features(encoding.coordinates(o.point for o in known)) * encoding.weights
    data = Observed(features, logs - logs.mean(), encoding.groups)
    return GaussianProcess(data, Posterior(data).mode(random)[None])


def _anchors(means: Array, told: TrainingSet) -> tuple[Array, Array]:
    """Return the coordinates around which the search looks closely: the best by the model, and the best seen.

    Also those of them that neighbours tried and the region did not.
    """
    own, others = means[: told.own], means[told.own :]
    seen = told.data.targets[: told.own]
    chosen = [*np.argsort(own, kind="stable")[:3], *np.argsort(seen, kind="stable")[:1]]
    rows = told.rows[: told.own]
    near = told.rows[told.own :][np.argsort(others, kind="stable")[:NEAR]]
    fresh = near[[not (np.abs(rows - row).max(axis=1) < SAME).any() for row in near]]
    return np.concatenate([rows[list(dict.fromkeys(map(int, chosen)))], near]), fresh
