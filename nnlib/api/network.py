"""A network's description with its hyperparameters, for callers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.api.arguments import _as_json, _path, _plain
from nnlib.contract import COMPAT
from nnlib.errors import NnlibError
from nnlib.model.file import Model, read_model, write_model
from nnlib.prediction.predictor import find_layer
from nnlib.spec.json_section import SpecError, show
from nnlib.spec.network import Value, network_of, read_json
from nnlib.spec.types import NetworkSpec
from nnlib.training import fit
from nnlib.util.arrays import Floats


class Network:
    """Layers and how they are connected; once trained or loaded, also weights and the names of units.

    `spec` is everything its JSON says. Made by `from_json`, `load` or `Trainer.fit`, never changed afterwards.
    """

    def __init__(self, spec: NetworkSpec, model: Model | None = None) -> None:
        self.spec = spec
        self.model = model
        self._keeper: fit.FolderCheckpoints | None = None  # has the checkpoints of its training, until it is saved

    @classmethod
    def from_json(
        cls,
        network: str | Path | Mapping[str, Any],
        hyperparameters: Mapping[str, Value] | None = None,
        compat: str | None = None,
    ) -> Network:
        """Return the untrained network of a file or of the same as a dict.

        `hyperparameters` give the values of its "$name" placeholders. With `compat="dsstne"` the oddities of DSSTNE
        are reproduced, never its defects. Raises NnlibError with every mistake at once, and OSError for the file.
        """
        if compat not in (None, *COMPAT):
            raise NnlibError(f"compat: {compat!r} is not legal, legal: None or 'dsstne'")
        if not isinstance(hyperparameters or {}, Mapping):
            raise NnlibError(f"hyperparameters: {type(hyperparameters).__name__} is not legal, legal: a dict of values")
        path = None if isinstance(network, Mapping) else _path(network, "network", "a path or a dict")
        file = path.name if path is not None else "network"
        values = {name: _plain(value) for name, value in (hyperparameters or {}).items()}
        try:
            raw = read_json(path) if path is not None else _as_json(network)
            spec = network_of(raw, file, values, compat=bool(compat))
        except SpecError as error:
            raise NnlibError(str(error)) from error
        return cls(spec)

    @classmethod
    def load(cls, path: str | Path) -> Network:
        """Return the trained network of a model file, nnlib's or DSSTNE's; DataError says what is wrong with it."""
        model = read_model(_path(path, "path"))
        return cls(model.network.spec, model)

    def save(self, path: str | Path) -> None:
        """Write a model file that nnlib and DSSTNE read, as a whole or not at all.

        The checkpoints of its training, if it had any, are then needed no more and emptied.
        """
        target = _path(path, "path")
        if target.is_dir():
            raise NnlibError(f"{target}: is a folder, legal: the name of a file")
        write_model(target, self._require_model())
        fit.forget_checkpoints(self._keeper)
        self._keeper = None

    def features(self, layer: str) -> tuple[str, ...]:
        """Return the names of the units of an Input or Output layer, empty when they have none."""
        return self._require_model().features.get(find_layer(self.spec, layer), ())

    def weights(self, source: str, target: str) -> Floats:
        """Return a copy of the weights between two layers, (units of source, units of target).

        Of a convolutional layer they are (maps, channels of a group, and the kernel's axes z, y, x that there are).
        """
        network, edge = self._require_model().network, self.spec.edges[self._edge(source, target)]
        matrix = network.kernels(edge.owner)
        return np.array(matrix.T if edge.transposed else matrix)

    def biases(self, source: str, target: str) -> Floats:
        """Return a copy of the biases that the connection between two layers adds, (units of target,) or (maps,)."""
        return np.array(self._require_model().network.biases[self._edge(source, target)])

    def __repr__(self) -> str:
        layers = " - ".join(f"{layer.name} {layer.units or 'auto'}" for layer in self.spec.layers)
        return f"<nnlib.Network {layers}{'' if self.model else ', not trained'}>"

    def _edge(self, source: str, target: str) -> int:
        pair = find_layer(self.spec, source), find_layer(self.spec, target)
        for edge in self.spec.edges:
            if (edge.source, edge.target) == pair:
                return edge.number
        raise NnlibError(f"no weights lead from {show(source)} to {show(target)}")

    def _require_model(self) -> Model:
        if self.model is None:
            raise NnlibError("the network has no weights yet; train it with Trainer, or load a model file")
        return self.model
