"""Loss and gradients of a network on one batch with everything random held fixed; what a check of gradients asks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from nnlib.cpu.backward import backward, sum_penalties
from nnlib.cpu.forward import Forward
from nnlib.cpu.gradients import Gradients
from nnlib.cpu.output import sum_errors
from nnlib.model.batches import DROPOUT, add_noise, batch_of, generator_for
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.util.arrays import Floats


class CpuProbe:
    """See `engines.Probe`."""

    def __init__(self, network: Network, examples: Examples, seed: int = 1) -> None:
        batch = batch_of(network.spec, examples, np.arange(examples.count), np.float64)
        self.forward, self.batch = Forward(network), add_noise(network.spec, batch, seed, 1)
        self._seed, self._masks = seed, dict[tuple[int, tuple[int, int]], NDArray[np.bool_]]()

    def loss(self) -> float:
        """See `engines.Probe`."""
        values = self.forward.run(self.batch.inputs, self._keep, training=True)
        return sum_errors(self.forward, values, self.batch.targets) / self.batch.examples + sum_penalties(
            self.forward, values
        )

    def gradients(self) -> Mapping[str, Floats]:
        """See `engines.Probe`."""
        gradients = Gradients(self.forward.network)
        values = self.forward.run(self.batch.inputs, self._keep, training=True)
        backward(self.forward, values, self.batch.targets, gradients)
        return gradients.arrays()

    def _keep(self, layer: int, shape: tuple[int, int]) -> NDArray[np.bool_]:
        if (layer, shape) not in self._masks:
            dropout = self.forward.network.spec.layers[layer].dropout
            self._masks[layer, shape] = generator_for(self._seed, DROPOUT, layer).random(shape) >= dropout
        return self._masks[layer, shape]
