"""A trained network that answers: items and scores, outputs, embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.api.arguments import AUTO, INPUTS, _threads
from nnlib.api.network import Network
from nnlib.api.trainer import _check_network
from nnlib.data.blockwise import Lookup
from nnlib.data.sets import from_scipy
from nnlib.data.sources import collect_sources
from nnlib.devices import AUTO as ANY_DEVICE
from nnlib.devices import choose_device, open_device
from nnlib.errors import NnlibError
from nnlib.prediction.exclusion import Numbered, exclude_inputs, same_rows
from nnlib.prediction.predictor import Prepared, compute_outputs, find_layer, prepare, rank
from nnlib.spec.json_section import show
from nnlib.spec.types import LayerKind
from nnlib.util.arrays import Floats


class Predictor:
    """What a trained network says of examples.

    Units of data that have names are matched with those of the model by name. `threads` is how many to use (all by
    default), which never changes a bit of the result; `device` is that of `Trainer`.
    """

    def __init__(self, network: Network, threads: int | None = None, device: str = ANY_DEVICE) -> None:
        _check_network(network)
        self.network = network
        self._model = network._require_model()
        self._threads, self._device = _threads(threads), choose_device(device)

    def top_k(
        self, inputs: Any, k: int = 100, exclude: Any = AUTO, layer: str | None = None
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return items and scores, each (n, min(k, units)): the best units of the Output `layer` (the first one).

        Best first, equal scores by number; scores are what the layer gives. `exclude` is what has no rank: "inputs",
        each example's own inputs, for a layer with the same items; "auto", these where there are any, unless the model
        was trained on data that say `repeats`; a sparse matrix (n, units); or None. An example with fewer than k items
        left has -1, with a score of -inf.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise NnlibError(f"k: {k!r} is not legal, legal: a whole number from 1")
        ready, output = self._prepare(inputs), find_layer(self.network.spec, layer, LayerKind.OUTPUT)
        excluded = self._find_excluded(exclude, ready, output)
        with open_device(self._device, self._threads) as (backend, each):
            some = ready.rankable(output)
            limits = (backend, each, excluded, None, some)
            blocks = list(rank(ready.network, ready.examples, output, int(k), *limits))
        width = min(int(k), ready.network.spec.layers[output].units or 0)
        items = [np.empty((0, width), np.int64), *(block.items for block in blocks)]
        return np.concatenate(items), np.concatenate([np.empty((0, width), np.float32), *(b.scores for b in blocks)])

    def outputs(self, inputs: Any, layer: str | None = None) -> Floats:
        """Return what the Output `layer` (the first one) gives, (n, units): probabilities of classes, or values."""
        return self._values(inputs, find_layer(self.network.spec, layer, LayerKind.OUTPUT))

    def embed(self, inputs: Any, layer: str) -> Floats:
        """Return what a Hidden or Output layer gives, (n, units)."""
        number = find_layer(self.network.spec, layer)
        if self.network.spec.layers[number].kind is LayerKind.INPUT:
            raise NnlibError(f"layer {show(layer)} is an Input, whose values are the data; legal: another layer")
        return self._values(inputs, number)

    def _values(self, inputs: Any, layer: int) -> Floats:
        ready = self._prepare(inputs)
        with open_device(self._device, self._threads) as (backend, each):
            blocks = list(compute_outputs(ready.network, ready.examples, layer, backend, each))
        return np.concatenate([np.empty((0, ready.network.spec.layers[layer].units or 0), np.float32), *blocks])

    def _prepare(self, inputs: Any) -> Prepared:
        found = collect_sources(self.network.spec, inputs)
        return prepare(self._model, found.sets, found.file)

    def _find_excluded(self, exclude: Any, ready: Prepared, output: int) -> Lookup | None:
        if exclude is None:
            return None
        if isinstance(exclude, str):
            if exclude not in (AUTO, INPUTS):
                raise NnlibError(f"exclude: {show(exclude)} is not legal, legal: auto, inputs, None, a sparse matrix")
            if exclude == AUTO and self._model.repeats:
                return None
            found = exclude_inputs(self._model, ready, output)
            if found is None and exclude == INPUTS:
                name = show(self.network.spec.layers[output].name)
                raise NnlibError(f"exclude: no sparse Input layer has the same items as {name}, legal: None")
            return found
        if not hasattr(exclude, "tocsr"):
            raise NnlibError(
                f"exclude: {type(exclude).__name__} is not legal, legal: auto, inputs, None, a sparse matrix"
            )
        items = ready.network.spec.layers[output].units or 0
        return same_rows(from_scipy(exclude), Numbered(ready.examples.count), Numbered(items))
