"""The default method: a Gaussian process on warped losses, and a portfolio of criteria for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workflows.space import Point, Value
from workflows.tuning.acquisition import Bound, Criterion, Improvement
from workflows.tuning.domain import Domain, identity
from workflows.tuning.encoding import Array, Encoding
from workflows.tuning.gaussian import Data, Posterior, Process
from workflows.tuning.search import Search

if TYPE_CHECKING:
    from workflows.tuning.dispatch import Observation

MOST = 400  # observations the model is fitted to: the best ones and the latest ones, half and half
FITTED = 120  # of them, at the most, decide the hyperparameters


@dataclass(frozen=True, slots=True)
class Turn:
    """How one point of a batch is chosen: its criterion, and how far around the best points it looks."""

    beta: float | None  # of the lower confidence bound; None: expected improvement
    reach: float  # 1: everywhere


PORTFOLIO = (Turn(None, 1.0), Turn(1.0, 1.0), Turn(None, 0.3), Turn(2.5, 1.0))


def ask(
    domain: Domain,
    history: Sequence[Observation],
    pending: Sequence[Point],
    n: int,
    seed: int,
    per_second: bool = False,
) -> list[dict[str, Value]]:
    """Return up to `n` points that differ from all of `history` and `pending`; fewer when the search finds no more."""
    encoding = Encoding(domain.space)
    if not domain.free:
        return []
    random = np.random.Generator(np.random.PCG64(seed))
    taken = {identity(point) for point in [*(o.point for o in history), *pending]}
    history = most_telling(history)
    rows = encoding.coordinates(o.point for o in history)
    targets = warp([o.loss for o in history])
    features = encoding.features(rows) * encoding.weights
    process = _fit(Data(features, targets, encoding.groups), random)
    cost = _cost(history, features, encoding, random) if per_second else None
    means = process.predict(features)[0]
    best = means.min(axis=1)  # the model's incumbent, not the luckiest observation
    anchors = _anchors(means.mean(axis=0), targets, rows)
    if pending:
        process.believe(encoding.features(encoding.coordinates(pending)) * encoding.weights)
    points: list[dict[str, Value]] = []
    for number in range(n):
        turn = PORTFOLIO[number % len(PORTFOLIO)]
        criterion: Criterion = Improvement(process, best, cost)
        if turn.beta is not None and cost is None:  # a bound has no price
            criterion = Bound(process, turn.beta)
        point = Search(domain, encoding, criterion, random).best(anchors, turn.reach, taken)
        if point is None:
            break
        points.append(point)
        taken.add(identity(point))
        there = encoding.features(encoding.coordinates([point])) * encoding.weights
        best = np.minimum(best, process.predict(there)[0][:, 0])  # the next one has to be better than this is believed
        process.believe(there)
    return points


def warp(losses: Sequence[float | None]) -> Array:
    """Return targets of mean 0 and deviation 1: linear below the median, logarithmic above it.

    Losses of diverged trainings, however large, then say "bad" without drowning the differences between good ones;
    trials that failed count as the worst of the others.
    """
    seen = np.array([loss for loss in losses if loss is not None])
    values = np.array([seen.max() if loss is None else loss for loss in losses])
    median, low = np.median(values), values.min()
    with np.errstate(over="ignore"):
        width = median - low
        if not width > 0:
            width = values.max() - low
        if not (np.isfinite(width) and width > 0):
            width = 1.0
        scaled = (values - median) / width
    scaled = np.where(scaled > 0, np.log1p(np.minimum(np.maximum(scaled, 0.0), 1e300)), scaled)
    deviation = scaled.std()
    return np.asarray((scaled - scaled.mean()) / deviation) if deviation > 1e-12 else np.zeros_like(scaled)


def most_telling(history: Sequence[Observation]) -> list[Observation]:
    """Return what the model is fitted to: all of it, or the best and the latest of a long history."""
    if len(history) <= MOST:
        return list(history)
    latest = len(history) - MOST // 2

    def key(index: int) -> tuple[bool, float, int]:
        loss = history[index].loss
        return loss is None, 0.0 if loss is None else loss, index

    best = sorted(range(latest), key=key)[: MOST // 2]
    return [history[index] for index in sorted(best)] + list(history[latest:])


def _fit(data: Data, random: np.random.Generator) -> Process:
    """Return the process after `data` with the most probable hyperparameters.

    Averaging over eight slice samples of them cost twice as much and found no more (10 problems, 4 seeds).
    """
    few = data
    if len(data.targets) > FITTED:
        order = np.argsort(data.targets, kind="stable")
        chosen = np.sort(
            np.concatenate([order[: FITTED // 2], random.choice(order[FITTED // 2 :], FITTED // 2, False)])
        )
        few = Data(data.features[chosen], data.targets[chosen], data.groups)
    posterior = Posterior(few)
    mode = np.round(posterior.mode(random), 3)
    return Process(data, mode[None])


def _cost(
    history: Sequence[Observation], features: Array, encoding: Encoding, random: np.random.Generator
) -> Process | None:
    """Return a process of the log of the seconds that a trial takes; None while too few are known."""
    known = [number for number, o in enumerate(history) if o.seconds and o.loss is not None]
    if len(known) < 4:
        return None
    logs = np.log([history[number].seconds or 1.0 for number in known])
    data = Data(features[known], logs - logs.mean(), encoding.groups)
    return Process(data, Posterior(data).mode(random)[None])


def _anchors(means: Array, targets: Array, rows: Array) -> Array:
    """Return the coordinates around which the search looks closely: the best by the model, and the best seen."""
    chosen = dict.fromkeys([*map(int, np.argsort(means, kind="stable")[:3]), int(np.argmin(targets))])
    return np.asarray(rows[list(chosen)])
