"""Find the point that a criterion likes best: random candidates, a closer look around good ones, then its gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from regiondag.study.space import Value, seed_of
from regiondag.tuning.domain import Domain, identity_of
from regiondag.tuning.encoding import Array, Encoding
from regiondag.tuning.gp.acquisition import Criterion
from regiondag.tuning.gp.bfgs import minimise

SCATTERED = 600  # candidates anywhere
LEGAL, DRAWN = 32, 4000  # as many legal ones among them, if there are as many in so many draws
NEAR = 60  # candidates around each anchor and for each spread
SPREADS = (0.2, 0.07, 0.02)
REFINED = 6  # candidates that are looked at closely
ROUNDS = ((0.1, 25), (0.03, 25))  # spread and number of neighbours of each
STEPS = 20  # along the gradient
RESAMPLED = 0.15  # chance that a mutation changes a choice


@dataclass(frozen=True, slots=True)
class Maximiser:
    """Looks for one point."""

    domain: Domain
    encoding: Encoding
    criterion: Criterion
    random: np.random.Generator
    others: Array  # points that neighbours tried and the region did not

    def best(self, anchors: Array, reach: float, taken: set[str]) -> dict[str, Value] | None:
        """Return the best legal point that is not `taken`, looking everywhere (reach 1) or around the anchors only.

        None where it finds none, as when nearly all of a small space was tried; `draw` may.
        """
        for wide in dict.fromkeys((reach, 1.0)):  # all around the anchors may be taken
            rows = self._legal(self._ranked(self._candidates(anchors, wide)), REFINED, taken)
            if len(rows):
                break
        else:
            return None
        for spread, count in ROUNDS:
            rows = self._refine(rows, spread, count, taken)
        ended = self._ranked(np.concatenate([self._polish(rows), rows]))
        return self.encoding.point(self._legal(ended, 1, taken)[0])

    def draw(self, taken: set[str]) -> dict[str, Value] | None:
        """Return a random legal point that is not `taken`; None when there seems to be none."""
        return self.domain.random(seed_of(int(self.random.integers(2**62))), taken)

    def _value(self, rows: Array) -> Array:
        return self.criterion.value(self.encoding.features(rows) * self.encoding.weights)

    def _ranked(self, rows: Array) -> Array:
        return np.asarray(rows[np.argsort(-self._value(rows), kind="stable")])

    def _candidates(self, anchors: Array, reach: float) -> Array:
        parts = [self.others]
        if reach >= 1:
            scattered = self.random.random((SCATTERED, len(self.encoding.space)))
            parts.append(self._spread_choices(scattered))
            if self.domain.constraints:  # chance may find none of a small legal part
                legal = self.domain.some(LEGAL, DRAWN, int(self.random.integers(2**62)))
                parts.append(self.encoding.coordinates(legal))
        for anchor in anchors:
            parts += [self._mutate(np.tile(anchor, (NEAR, 1)), spread * reach) for spread in SPREADS]
        return self.encoding.snap(np.concatenate(parts))

    def _spread_choices(self, rows: Array) -> Array:
        choices = self.encoding.choices
        counts = np.where(choices, self.encoding.counts, 1.0)
        return np.where(choices, np.floor(rows * counts), rows)

    def _mutate(self, rows: Array, spread: float) -> Array:
        """Move some coordinates of each row: numbers by `spread`, at least by one step; choices to any option."""
        random, encoding = self.random, self.encoding
        width = len(encoding.space)
        moved = random.random(rows.shape) < max(0.4, 1 / width)
        moved[np.arange(len(rows)), random.integers(width, size=len(rows))] = True
        steps = np.maximum(spread, np.where(np.isfinite(encoding.counts), 1 / np.maximum(encoding.counts - 1, 1), 0.0))
        numbers = np.clip(rows + random.standard_normal(rows.shape) * steps, 0.0, 1.0)
        options = self._spread_choices(random.random(rows.shape))
        changed = random.random(rows.shape) < RESAMPLED
        new = np.where(encoding.choices, np.where(changed, options, rows), numbers)
        return np.where(moved, new, rows)

    def _refine(self, rows: Array, spread: float, count: int, taken: set[str]) -> Array:
        """Return the best new and legal one of each row, which is, and its neighbours."""
        near = self.encoding.snap(self._mutate(np.repeat(rows, count, axis=0), spread))
        near = np.concatenate([rows[:, None], near.reshape(len(rows), count, rows.shape[1])], axis=1)
        values = self._value(near.reshape(len(rows) * (count + 1), rows.shape[1])).reshape(len(rows), count + 1)
        order = np.argsort(-values, axis=1, kind="stable")
        return np.concatenate([self._legal(some[best], 1, taken) for some, best in zip(near, order, strict=True)])

    def _polish(self, rows: Array) -> Array:
        """Follow the gradient in the coordinates that are real numbers; the others stay."""
        encoding = self.encoding
        if not encoding.smooth.any():
            return rows
        moving = encoding.smooth & encoding.active(rows)
        columns = encoding.columns

        def function(tried: Array) -> tuple[Array, Array]:
            value, slope = self.criterion.value_and_gradient(encoding.features(tried) * encoding.weights)
            return -value, np.where(encoding.smooth, -slope[:, columns], 0.0)

        low, high = np.where(moving, 0.0, rows), np.where(moving, 1.0, rows)
        return minimise(function, rows, low, high, STEPS)[0]

    def _legal(self, rows: Array, count: int, taken: set[str]) -> Array:
        """Return the first `count` rows whose points are legal and not taken."""
        found: list[int] = []
        seen: set[str] = set()
        for number, row in enumerate(rows):
            point = self.encoding.point(row)
            key = identity_of(point)
            if key not in taken and key not in seen and self.domain.holds(point):
                seen.add(key)
                found.append(number)
                if len(found) == count:
                    break
        return np.asarray(rows[found])
