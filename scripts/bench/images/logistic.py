"""Logistic regression on pixels, the floor of pictures: which penalty the example's cities want, and how long it takes.

    python -m scripts.bench.images.logistic

Each seed has pictures and parts of its own. Of each penalty the share of right answers is a mean over the five cities,
of which each has a model of its training part; differences have 95 % intervals of Student's t over seeds. The family's
default was chosen by the validation parts; the test parts say what it comes to.

The peer of a fit is scikit-learn's `LogisticRegression`, of the same penalty and ended by the same gradient; both on
one thread, ours from bytes, the peer from floats: the median of processor time, in turns.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nnlib.contract import Recipe
from nnlib.data.read_events import read_events, read_window
from nnlib.families import logistic
from nnlib.families.fit import fit_recipe
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.images import quality
from scripts.bench.quality.training import interval

BENCH = "images_logistic"
DEFAULT = float(logistic.DEFAULTS["l2"])
PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
PARTS = ("valid", "test")


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    seeds: int = 8
    scale: float = 1.0
    turns: int = 15


QUICK = Sizes(seeds=2, scale=0.2, turns=1)


class Logistic(Bench[Sizes]):
    """The rows of all seeds."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        super().__init__(area, sizes)
        self.made: dict[int, quality.Pictures] = {}

    def penalties(self) -> Iterator[Row]:
        """Yield the default beside each other penalty."""
        found = np.array([self._shares(seed) for seed in range(1, self.sizes.seeds + 1)])  # (seeds, parts, penalties)
        ours = PENALTIES.index(DEFAULT)
        for part, values in zip(PARTS, found.transpose(1, 2, 0), strict=True):
            for penalty, peer in zip(PENALTIES, values, strict=True):
                if penalty != DEFAULT:
                    low, middle, high = (100 * end for end in interval(values[ours] - peer))
                    title = f"right answers, {part}, l2 {DEFAULT:g}, beside {penalty:g}: {middle:+.2f} points"
                    share = float(values[ours].mean()), float(peer.mean())
                    yield Row(f"{title} [{low:+.2f}, {high:+.2f}]", *share, "", higher=True)

    def fits(self) -> Iterator[Row]:
        """Yield the time of a fit to one small city, and to all cities together."""
        for city in (quality.SMALL[0], "pooled"):
            for penalty in (DEFAULT, 100.0):
                count, ours, peer = self._times(city, penalty)
                title = f"fit of {count} pictures of 32 x 32, 10 classes, l2 {penalty:g}, processor time"
                yield Row(title, ours, peer, "s", goal=peer)

    def _pictures(self, seed: int) -> quality.Pictures:
        if seed not in self.made:
            folder = self.area / str(seed)
            folder.mkdir()
            self.made[seed] = quality.Pictures(folder, seed, quality.Sizes(scale=self.sizes.scale))
        return self.made[seed]

    def _shares(self, seed: int) -> NDArray[np.float64]:
        """Return the share of right answers (parts, penalties), the mean over cities."""
        found, pictures = [], self._pictures(seed)
        for city in quality.CITIES:
            history = read_events(pictures.file(city, "train"), inputs=True)
            windows = [read_window(pictures.file(city, part), inputs=True) for part in PARTS]
            models = [fit_recipe(Recipe("logistic", {"l2": penalty}), history) for penalty in PENALTIES]
            found.append([[quality.share_of(model, window) for model in models] for window in windows])
        return np.asarray(np.mean(found, axis=0))

    def _times(self, city: str, penalty: float) -> tuple[int, float, float]:
        """Return how many pictures, and the seconds of both ways."""
        from sklearn.linear_model import LogisticRegression

        history = read_events(self._pictures(1).file(city, "train"), inputs=True)
        x, y = self._pictures(1).pixels(city, "train")
        peer = LogisticRegression(C=1 / penalty, tol=logistic.STEEP, max_iter=10_000)
        ways = (partial(fit_recipe, Recipe("logistic", {"l2": penalty}), history), partial(peer.fit, x, y))
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("error")  # of a peer that did not come to its end
            turns = [[_time(way) for way in ways] for _ in range(self.sizes.turns)]
        ours, others = zip(*turns, strict=True)
        return history.customers, median(ours), median(others)


def _time(way: Callable[[], object]) -> float:
    began = time.process_time()
    way()
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main(BENCH, Logistic, Sizes(), QUICK))
