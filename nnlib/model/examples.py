"""Data sets bound to the layers of a network."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnlib.data.sets import DataSet
from nnlib.errors import DataError
from nnlib.spec.sizes import fit_data, refuse_data, resolve_sizes
from nnlib.spec.topology import check_topology
from nnlib.spec.types import ErrorFunction, LayerKind, NetworkSpec


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """The data sets of a network's input and output layers, by the number of the layer; all have as many examples."""

    sets: Mapping[int, DataSet]
    file: str = "the data"

    @property
    def count(self) -> int:
        """How many examples."""
        return next(iter(self.sets.values())).examples

    def take(self, rows: NDArray[np.int64]) -> Examples:
        """Return some examples, in memory."""
        return Examples({n: data_set.take(rows) for n, data_set in self.sets.items()}, self.file)


def resolve(spec: NetworkSpec, data: Mapping[str, DataSet], file: str) -> NetworkSpec:
    """Return `spec` with all sizes: "auto" is the width of the data, maps are what `sizes.resolve_sizes` finds.

    Inputs are as sparse as their data are. `data` are the data sets by name; those of output layers may be missing
    when the layer gives its N. Raises DataError for data that do not fit, SpecError for layers that do not fit each
    other.
    """
    problems, layers = list[str](), []
    for layer in spec.layers:
        if layer.kind is LayerKind.HIDDEN:
            layers.append(layer)
            continue
        found = data.get(layer.data_set)
        if found is None:
            layers.append(layer)
            if layer.kind is LayerKind.INPUT or layer.units is None:
                known = ", ".join(data) or "none"
                problems.append(f"{file}: layer {layer.name}: no data set {layer.data_set!r}, legal: {known}")
            continue
        if layer.units not in (None, found.width):
            problems.append(
                f"{file}: layer {layer.name}: N is {layer.units}, data set {layer.data_set!r} has width {found.width}; "
                f'legal: {found.width} or "auto"'
            )
        if layer.kind is LayerKind.INPUT and layer.dropout and found.sparse:
            problems.append(
                f"{file}: layer {layer.name}: pDropout {layer.dropout:g} is for dense inputs, {layer.data_set!r} is "
                "sparse; legal: Denoising in the network"
            )
        if layer.kind is LayerKind.OUTPUT and spec.error is ErrorFunction.HINGE and found.sparse:
            problems.append(
                f"{file}: layer {layer.name}: Hinge needs targets of -1 and 1, {layer.data_set!r} is sparse; "
                "legal: a dense data set, or another ErrorFunction"
            )
        problems += [f"{file}: {text}" for text in refuse_data(spec, layer, found.dimensions, found.sparse)]
        layers.append(fit_data(layer, found.width, found.dimensions, found.sparse))
    if problems:
        raise DataError("\n".join(problems))
    resolved = resolve_sizes(dataclasses.replace(spec, layers=tuple(layers)), file)
    check_topology(resolved, file)  # skips and shared weights need sizes that fit, which were not known before
    for layer in resolved.layers_of(LayerKind.OUTPUT):
        found = data.get(layer.data_set)
        if found is not None and layer.units != found.width:
            problems.append(
                f"{file}: layer {layer.name}: its sources give {layer.units} units, data set {layer.data_set!r} has "
                f"width {found.width}; legal: {layer.units}"
            )
    if problems:
        raise DataError("\n".join(problems))
    return resolved


def examples_of(spec: NetworkSpec, data: Mapping[str, DataSet], file: str, targets: bool = True) -> Examples:
    """Return the data sets of the layers; `targets` False takes the inputs alone."""
    sets = {}
    for n, layer in enumerate(spec.layers):
        if layer.kind is LayerKind.INPUT:
            sets[n] = data[layer.data_set]
        elif layer.kind is LayerKind.OUTPUT and targets:
            if layer.data_set not in data:
                raise DataError(f"{file}: layer {layer.name}: no data set {layer.data_set!r}, legal: {', '.join(data)}")
            sets[n] = data[layer.data_set]
    counts = {data_set.name: data_set.examples for data_set in sets.values()}
    if len(set(counts.values())) > 1:
        raise DataError(f"{file}: data sets have different numbers of examples: {counts}; they must agree")
    return Examples(sets, file)
