"""Layers of maps and whole convolutional networks beside PyTorch: the same values, how long, and what is learned."""

from __future__ import annotations

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from scripts.bench.common.environments import torch_python
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import ONE_THREAD, measure, module

BENCH = "layers"
ROUNDING = 2.0**-23  # of float32
LONG = 900.0  # seconds that a side may take


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    layers: int
    networks: int
    rounds: int
    seeds: int


FULL = Sizes(layers=200, networks=5, rounds=15, seeds=5)
QUICK = Sizes(layers=20, networks=2, rounds=1, seeds=1)


class Layers(Bench[Sizes]):
    """The rows."""

    def layers(self) -> Iterator[Row]:
        """Random geometries, forward and back."""
        ours, peer = self._sides("layers", self.sizes.layers)
        name = f"{self.sizes.layers} random layers (Max, Average, LRN, batch norm; 1 to 3 axes), forward and back"
        yield Row(f"{name}: largest difference from PyTorch", _difference(ours, peer), None, "roundings", 64)

    def networks(self) -> Iterator[Row]:
        """Loss, gradients, running statistics and predictions of whole networks."""
        ours, peer = self._sides("networks", self.sizes.networks)
        name = f"{self.sizes.networks} whole networks: loss, gradients, statistics, predictions"
        yield Row(f"{name}: largest difference from PyTorch", _difference(ours, peer), None, "roundings", 64)

    def speed(self) -> Iterator[Row]:
        """A layer forward and back."""
        ours, peer = self._sides("speed", self.sizes.rounds)
        for name in ours:
            yield Row(f"{name}, forward and back, 1 thread, CPU time", float(ours[name]), float(peer[name]), "ms")

    def accuracy(self) -> Iterator[Row]:
        """What a small residual network learns of noisy pictures, from the same starts on the same batches."""
        ours, peer = (found["accuracies"].tolist() for found in self._sides("lessons", self.sizes.seeds))
        name = f"accuracy on 360 pictures, residual network, mean of {self.sizes.seeds} seeds"
        found, goal = (statistics.mean(ours), statistics.mean(peer)), None
        if self.sizes.seeds > 1:  # two standard errors below the peer's mean
            goal = found[1] - 2 * statistics.stdev(peer) / math.sqrt(len(peer))
        yield Row(name, *found, "", goal, f"ours {ours}, peer {peer}", higher=True)

    def _sides(self, what: str, amount: int) -> tuple[Any, Any]:
        for name, python in (("ours", sys.executable), ("peer", torch_python())):
            words = module(f"layers.{name}", what, self.area, str(amount), python=python)
            measure(words, timeout=LONG, env=ONE_THREAD)
        ours, peer = (dict(np.load(self.area / f"{what}.{name}.npz")) for name in ("ours", "peer"))
        return ours, peer


def _difference(ours: dict[str, Any], peer: dict[str, Any]) -> float:
    """Return the largest difference of two arrays of a name, in roundings of the largest number of the array.

    Gradients, of which some are nothing but rounding, are compared with the largest one of their network.
    """
    assert ours.keys() == peer.keys(), ours.keys() ^ peer.keys()  # noqa: S101 -- a slip of this benchmark
    largest = defaultdict[str, float](float)
    for name, wanted in peer.items():
        largest[_scale(name)] = max(largest[_scale(name)], float(np.abs(wanted).max()))
    found = (float(np.abs(ours[name] - wanted).max()) / largest[_scale(name)] for name, wanted in peer.items())
    return max(found) / ROUNDING


def _scale(name: str) -> str:
    """Return what numbers are compared with those of an array of that name."""
    return name.partition(" gradient ")[0] if " gradient " in name else name


if __name__ == "__main__":
    sys.exit(main(BENCH, Layers, FULL, QUICK))
