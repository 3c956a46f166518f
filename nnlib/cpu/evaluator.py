"""Asks a network on the processors of this machine. Twin: gpu/evaluator.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnlib.cpu.forward import Forward
from nnlib.cpu.output import sum_errors
from nnlib.data.blockwise import BATCH
from nnlib.data.rows import Csr
from nnlib.model.batches import batch_of, batches_of, inputs_of
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.ops.activations import activate
from nnlib.ops.finite import mean_error, require_finite
from nnlib.ops.ranking import top
from nnlib.spec.types import LayerKind
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, map_in_turn


class CpuEvaluator:
    """See `engines.Evaluator`."""

    def __init__(self, network: Network, each: Each, split: bool = False) -> None:
        self.network, self._each = network, each
        self._forward = Forward(network, each if split else map_in_turn)

    def mean_loss(self, examples: Examples) -> float:
        """See `engines.Evaluator`."""
        network, forward, total = self.network, Forward(self.network, self._each), 0.0
        for low, high in batches_of(examples.count, BATCH):
            batch = batch_of(network.spec, examples, np.arange(low, high), network.dtype)
            with np.errstate(all="ignore"):
                total += sum_errors(forward, forward.run(batch.inputs), batch.targets)
        return mean_error(total, examples.count)

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> tuple[NDArray[np.int64], Floats]:
        """See `engines.Evaluator`."""
        return top(self.sums(examples, output), k, owned)

    def sums(self, examples: Examples, output: int) -> Floats:
        """See `engines.Evaluator`."""
        return self._forward.output_sums(inputs_of(self.network.spec, examples, self.network.dtype), output)

    def values(self, examples: Examples, layer: int) -> Floats:
        """See `engines.Evaluator`."""
        about = self.network.spec.layers[layer]
        if about.kind is LayerKind.OUTPUT:
            return activate(about, self.sums(examples, layer))
        with np.errstate(all="ignore"):
            inputs = inputs_of(self.network.spec, examples, self.network.dtype)
            return require_finite(self._forward.activations(inputs, layer))
