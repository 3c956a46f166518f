"""What the model is told: trials as rows of features and warped losses, a region's own and those of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from regiondag.tuning.domain import Domain
from regiondag.tuning.encoding import Array, Encoding
from regiondag.tuning.gp.process import NOISE_CENTRE, Observed
from regiondag.tuning.gp.similarity import estimate_noises, estimate_similarities
from regiondag.tuning.sharing import EACH, Neighbour, Observation, rank_key, select_best_and_first

MOST = 400  # observations the model is fitted to: the best ones and the latest ones, half and half
OTHERS, OTHERS_LEAST = 240, 40  # less one's own, but at least so many: observations of others
LARGEST = 1e300  # losses beyond are as bad
SUCCESSES = 3  # so many, and what failed is left out of the model of losses
SIMILAR = 0.15  # what is less alike is left out


@dataclass(frozen=True, slots=True)
class RegionTargets:
    """The trials of one region."""

    rows: Array  # coordinates
    data: Observed
    noise: float = 0.0  # the part of the targets' variance that is chance; only known where regions are compared


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Trials as the model sees them: the first `own` ones are the region's own, the others its neighbours'."""

    data: Observed
    rows: Array  # coordinates
    own: int


@dataclass(frozen=True, slots=True)
class Compared:
    """A region's own trials, and its neighbours with theirs and their similarity, the most telling first."""

    own: RegionTargets
    neighbours: tuple[tuple[Neighbour, RegionTargets, float], ...]


def compare(domain: Domain, history: Sequence[Observation], neighbours: Sequence[Neighbour]) -> Compared:
    """Return what the model sees of a region and of the neighbours that are like it."""
    encoding = Encoding(domain.space)
    own, others = _part(encoding, choose_most_telling(history)), select_usable(domain, neighbours)
    if not others:
        return Compared(own, ())
    parts = _parts(encoding, [select_best_and_first(neighbour.history, EACH) for neighbour in others])
    chance = estimate_noises([part.data for part in [own, *parts]])
    own, *parts = [replace(part, noise=float(noise)) for part, noise in zip([own, *parts], chance, strict=True)]
    earlier = [neighbour.earlier for neighbour in others]
    alike = estimate_similarities(own.data, [part.data for part in parts], earlier, chance)
    telling = alike * np.sqrt(1 - chance[1:])  # how a neighbour's values correlate with the region's objective
    order = [int(number) for number in np.argsort(-telling, kind="stable") if alike[number] >= SIMILAR]
    return Compared(own, tuple((others[number], parts[number], float(alike[number])) for number in order))


def tell(domain: Domain, history: Sequence[Observation], neighbours: Sequence[Neighbour] = ()) -> TrainingSet:
    """Return what the model is fitted to, the most telling neighbours first.

    Targets have deviation 1, so where more of them is chance the objective's scale is smaller. Of a region whose own
    trials are all equal the model is told those of others alone: that they are equal prefers none of them.
    """
    compared = compare(domain, history, neighbours)
    own = compared.own
    if compared.neighbours and not own.data.targets.any():
        own = RegionTargets(own.rows[:0], own.data.take(np.arange(0)), own.noise)
    room = max(OTHERS - len(own.rows), OTHERS_LEAST)
    taken, similarity = [own], [1.0]
    for _, part, alike in compared.neighbours:
        if len(part.rows) <= room:
            taken.append(part)
            similarity.append(alike)
            room -= len(part.rows)
    if len(taken) == 1:
        return TrainingSet(own.data, own.rows, len(own.rows))
    chance = np.array([part.noise for part in taken])
    data = Observed(
        features=np.concatenate([part.data.features for part in taken]),
        targets=np.concatenate([part.data.targets for part in taken]),
        groups=own.data.groups,
        sources=np.repeat(np.arange(len(taken)), [len(part.rows) for part in taken]),
        similarity=np.array(similarity),
        scales=np.sqrt((1 - chance) / (1 - own.noise)),
        noises=chance / math.exp(NOISE_CENTRE),
    )
    return TrainingSet(data, np.concatenate([part.rows for part in taken]), len(own.rows))


def select_usable(domain: Domain, neighbours: Sequence[Neighbour]) -> list[Neighbour]:
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
    scaled, _, _ = _scale(losses)
    if scaled.std() <= 1e-12:  # all that succeeded are equal: those that failed are worse all the same
        scaled = np.array([float(loss is None) for loss in losses])
    deviation = scaled.std()
    return np.asarray((scaled - scaled.mean()) / deviation) if deviation > 1e-12 else np.zeros_like(scaled)


@dataclass(frozen=True, slots=True)
class Scale:
    """Between losses and the targets that `warp` makes of them."""

    median: float
    width: float  # of the losses below the median
    mean: float  # of what is told, before the targets have mean 0 and deviation 1
    deviation: float

    @property
    def unit(self) -> float:
        """How much loss a unit is below the median."""
        return self.deviation * self.width

    def targets(self, losses: Array) -> Array:
        """Return the targets of losses that need not be among those that made the scale."""
        with np.errstate(over="ignore"):
            scaled = (np.clip(losses, -LARGEST, LARGEST) - self.median) / self.width
        return np.asarray((_flatten(scaled) - self.mean) / self.deviation)

    def losses(self, targets: Array) -> Array:
        """Return the losses of targets."""
        scaled = targets * self.deviation + self.mean
        with np.errstate(over="ignore"):
            unfolded = np.where(scaled > 0, np.expm1(np.maximum(scaled, 0.0)), scaled)
            return np.clip(self.median + self.width * unfolded, -LARGEST, LARGEST)


def scale_of(losses: Sequence[float | None]) -> Scale | None:
    """Return what `warp` does with losses; None where nothing succeeded or all that did are equal."""
    if all(loss is None for loss in losses):
        return None
    scaled, median, width = _scale(losses)
    deviation = float(scaled.std())
    return Scale(median, width, float(scaled.mean()), deviation) if deviation > 1e-12 else None


def loss_of_unit(losses: Sequence[float | None]) -> float:
    """Return how much loss a unit of `warp` is below the median; 0 where nothing succeeded or all are equal."""
    scale = scale_of(losses)
    return scale.unit if scale else 0.0


def _scale(losses: Sequence[float | None]) -> tuple[Array, float, float]:
    """Return losses, of which one at least succeeded, in widths from their median; that, and how wide one is."""
    worst = max(loss for loss in losses if loss is not None)
    values = np.clip(np.array([worst if loss is None else loss for loss in losses]), -LARGEST, LARGEST)
    ordered = np.sort(values)
    low, median = ordered[0], (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2  # np.median loads ma
    with np.errstate(over="ignore"):
        width = next((width for width in (median - low, values.max() - low) if width > 0), 1.0)
        scaled = (values - median) / width
    return _flatten(scaled), float(median), float(width)


def _flatten(scaled: Array) -> Array:
    """Return the same below 0, and above it the logarithm of 1 + x."""
    return np.where(scaled > 0, np.log1p(np.minimum(np.maximum(scaled, 0.0), LARGEST)), scaled)


def leave_out_failures(history: Sequence[Observation]) -> Sequence[Observation]:
    """Return the successes where there are enough of them: as bad values failures bend the model beside the best."""
    good = [o for o in history if o.loss is not None]
    return good if len(good) >= SUCCESSES else history


def choose_most_telling(history: Sequence[Observation]) -> list[Observation]:
    """Return what the model is fitted to: all of it, or the best and the latest of a long history."""
    latest = max(len(history) - MOST // 2, 0)
    best = sorted(range(latest), key=lambda index: rank_key(history, index))[: MOST // 2]
    return [history[index] for index in sorted(best)] + list(history[latest:])


def _part(encoding: Encoding, history: Sequence[Observation]) -> RegionTargets:
    return _parts(encoding, [history])[0]


def _parts(encoding: Encoding, histories: Sequence[Sequence[Observation]]) -> list[RegionTargets]:
    """Return the trials of some regions, encoded together: of few at a time calls are most of the work."""
    rows = encoding.coordinates(o.point for history in histories for o in history)
    features, groups = encoding.features(rows) * encoding.weights, encoding.groups
    ends = np.cumsum([len(history) for history in histories])
    return [
        RegionTargets(own, Observed(seen, warp([o.loss for o in history]), groups))
        for own, seen, history in zip(np.split(rows, ends), np.split(features, ends), histories, strict=False)
    ]
