"""What the model is told: trials as rows of features and warped losses, a region's own and those of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workflows.tuning.domain import Domain
from workflows.tuning.encoding import Array, Encoding
from workflows.tuning.gaussian import Data
from workflows.tuning.sharing import Neighbour, Observation
from workflows.tuning.similarity import similarities

MOST = 400  # observations the model is fitted to: the best ones and the latest ones, half and half
OTHERS, OTHERS_LEAST = 240, 40  # less one's own, but at least so many: observations of others
EACH = 24  # of them, from one neighbour: its best ones and its first ones, half and half
SIMILAR = 0.15  # what is less alike is left out


@dataclass(frozen=True, slots=True)
class Told:
    """Trials as the model sees them: the first `own` ones are the region's own, the others its neighbours'."""

    data: Data
    rows: Array  # coordinates
    own: int


def tell(domain: Domain, history: Sequence[Observation], neighbours: Sequence[Neighbour] = ()) -> Told:
    """Return what the model is fitted to. Neighbours come in by their similarity, the most similar first."""
    encoding = Encoding(domain.space)
    rows, own = _rows(encoding, most_telling(history))
    others = usable(domain, neighbours)
    if not others:
        return Told(own, rows, len(rows))
    found = [_rows(encoding, _few(neighbour.history)) for neighbour in others]
    alike = similarities(own, [data for _, data in found], [neighbour.earlier for neighbour in others])
    room = max(OTHERS - len(rows), OTHERS_LEAST)
    taken = []
    for number in np.argsort(-alike, kind="stable"):
        if alike[number] >= SIMILAR and len(found[number][0]) <= room:
            taken.append(int(number))
            room -= len(found[number][0])
    parts = [(rows, own), *(found[number] for number in taken)]
    data = Data(
        features=np.concatenate([part.features for _, part in parts]),
        targets=np.concatenate([part.targets for _, part in parts]),
        groups=encoding.groups,
        sources=np.repeat(np.arange(len(parts)), [len(part.targets) for _, part in parts]),
        similarity=np.array([1.0, *alike[taken]]),
    )
    return Told(data, np.concatenate([part for part, _ in parts]), len(rows))


def ranked_neighbours(
    domain: Domain, history: Sequence[Observation], neighbours: Sequence[Neighbour]
) -> list[Neighbour]:
    """Return the similar neighbours, the most similar first."""
    encoding = Encoding(domain.space)
    own = _rows(encoding, most_telling(history))[1]
    others = usable(domain, neighbours)
    found = [_rows(encoding, _few(neighbour.history))[1] for neighbour in others]
    alike = similarities(own, found, [neighbour.earlier for neighbour in others])
    return [others[n] for n in np.argsort(-alike, kind="stable") if alike[n] >= SIMILAR]


def usable(domain: Domain, neighbours: Sequence[Neighbour]) -> list[Neighbour]:
    """Return the neighbours with at least two successes at points of this space, without their other trials."""
    found = []
    for neighbour in neighbours:
        history = [o for o in neighbour.history if domain.has(o.point)]
        if sum(o.loss is not None for o in history) >= 2:
            found.append(Neighbour(neighbour.name, history, neighbour.earlier))
    return found


def warp(losses: Sequence[float | None]) -> Array:
    """Return targets of mean 0 and deviation 1: linear below the median, logarithmic above it.

    Losses of diverged trainings, however large, then say "bad" without drowning the differences between good ones;
    trials that failed count as the worst of the others, and where all failed as bad by one deviation.
    """
    seen = np.array([loss for loss in losses if loss is not None])
    if not len(seen):
        return np.ones(len(losses))
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

    best = sorted(range(latest), key=lambda index: _badness(history, index))[: MOST // 2]
    return [history[index] for index in sorted(best)] + list(history[latest:])


def _few(history: Sequence[Observation]) -> list[Observation]:
    """Return a neighbour's best trials and its first ones, which are spread over the space."""
    if len(history) <= EACH:
        return list(history)
    best = sorted(range(len(history)), key=lambda index: _badness(history, index))[: EACH // 2]
    first = [index for index in range(len(history)) if index not in best][: EACH - len(best)]
    return [history[index] for index in sorted([*best, *first])]


def _badness(history: Sequence[Observation], index: int) -> tuple[bool, float, int]:
    loss = history[index].loss
    return loss is None, 0.0 if loss is None else loss, index


def _rows(encoding: Encoding, history: Sequence[Observation]) -> tuple[Array, Data]:
    rows = encoding.coordinates(o.point for o in history)
    return rows, Data(encoding.features(rows) * encoding.weights, warp([o.loss for o in history]), encoding.groups)
