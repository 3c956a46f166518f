"""A model of an earlier catalogue on today's data: its units are found again by their names.

An input unit that the model does not know contributes nothing. An output unit that it does not know is ranked below
all others, ties by unit number. Units that are no longer in the data are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import Csr, Rows
from nnlib.data.sets import DataSet
from nnlib.data.units import Units
from nnlib.errors import DataError
from nnlib.model.examples import resolve
from nnlib.model.file import Model
from nnlib.model.network import Network, iterate_owners, lay_out_weights, layout_of
from nnlib.spec.geometry import is_computed
from nnlib.spec.json_section import show
from nnlib.spec.types import Activation, ErrorFunction, Layer, LayerKind, NetworkSpec
from nnlib.util.arrays import Floats, Longs

NO_UNIT = -1
LAST = -1e30  # the sum of an unknown output unit: below every other and yet finite
SILENT = (  # what is exactly 0 there, so that an unknown unit that is no target costs no loss
    *(Activation.SIGMOID, Activation.SOFTMAX, Activation.RELU),
    *(Activation.RELU6, Activation.RELU_MAX, Activation.SOFTPLUS),
)
ROWS = 8192  # rows of targets looked at together
Places = Mapping[int, Longs]  # layer number -> where each of its new units was; only layers whose units have moved


@dataclass(frozen=True, slots=True, eq=False)
class Remapped:
    """The model's network in the numbering of the data, and by Output layer which units of the data it knows."""

    network: Network
    known: Mapping[int, NDArray[np.bool_]]

    def find_unscored(self, output: int, targets: Rows) -> Longs:
        """Return the unknown units, ascending, that give the loss of an Output layer on `targets` no value.

        Where an unknown unit costs nothing unless it is a target, these are the ones that are.
        """
        unknown = ~self.known[output]
        spec = self.network.spec
        silent = spec.layers[output].activation in SILENT and spec.error is not ErrorFunction.HINGE
        if silent and targets.sparse and unknown.any():
            seen = np.zeros(len(unknown), dtype=bool)
            for low in range(0, targets.examples, ROWS):
                rows = targets.take(np.arange(low, min(low + ROWS, targets.examples)))
                seen[rows.indices if isinstance(rows, Csr) else slice(None)] = True
            unknown &= seen
        return np.flatnonzero(unknown)


def remap_units(model: Model, sets: Mapping[str, Units]) -> Remapped:
    """Return `model` in the numbering of the data; `sets` are theirs by name, all that the model's layers take.

    Raises DataError when a data set is missing, when a width differs and there are no names to go by, and when units
    have moved whose layer must keep its numbering because of skips or shared weights.
    """
    network, spec = model.network, model.network.spec
    places: dict[int, Longs] = {}
    for n, layer in enumerate(spec.layers):
        if layer.kind is not LayerKind.HIDDEN:
            found = _places(layer, Units(layer.units or 0, model.features.get(n, ())), _set_of(layer, sets))
            if not np.array_equal(found, np.arange(layer.units or 0)):
                places[n] = found
    _check_skips(spec, places)
    _check_order(spec, places)
    biases = [_gather(network.biases[e.number], places.get(e.target), 0, LAST) for e in spec.edges]
    layers = [
        replace(layer, units=len(places[n]), dimensions=(len(places[n]),)) if n in places else layer
        for n, layer in enumerate(spec.layers)
    ]
    known = {
        n: places[n] != NO_UNIT if n in places else np.ones(layer.units or 0, dtype=bool)
        for n, layer in enumerate(spec.layers)
        if layer.kind is LayerKind.OUTPUT
    }
    for n, some in known.items():
        if spec.layers[n].activation is Activation.LINEAR_MAX and not some.all():
            raise _cannot(f"layer {show(spec.layers[n].name)} is LinearMax, where an unknown unit changes all others")
    new_spec, stores = replace(spec, layers=tuple(layers)), dict(network.stores)
    for owner, (rows, columns) in _ways(spec, places).items():
        if rows is not None or columns is not None:
            weights = _gather(_gather(network.matrix(owner), rows, 0, 0.0), columns, 1, 0.0)
            stores[owner] = lay_out_weights(new_spec, new_spec.edges[owner], weights)
    return Remapped(replace(network, spec=new_spec, stores=stores, biases=biases), known)


def _set_of(layer: Layer, sets: Mapping[str, Units]) -> Units:
    if layer.data_set not in sets:
        legal = ", ".join(map(show, sets)) or "none"
        raise _cannot(f"layer {show(layer.name)} takes data set {show(layer.data_set)}, the data have {legal}")
    return sets[layer.data_set]


def _places(layer: Layer, old: Units, new: Units) -> Longs:
    """Return where each of the new units was in the old numbering, NO_UNIT for one that was not there."""
    if not (old.names and new.names) and old.width != new.width:
        sizes = " x ".join(map(str, layer.dimensions))
        if len(layer.dimensions) > 1:
            raise DataError(
                f"layer {show(layer.name)} has {old.width} units, {sizes}, data set {show(layer.data_set)} has "
                f"{new.width}; legal: data of {sizes}"
            )
        nameless = " and ".join(f"the {side}" for side, units in (("model", old), ("data", new)) if not units.names)
        raise DataError(
            f"layer {show(layer.name)} has {old.width} units, data set {show(layer.data_set)} has {new.width}, with "
            f"no names of units in {nameless} by which to match them"
        )
    if not (old.names and new.names) or old.names == new.names:
        return np.arange(new.width)
    place = {name: number for number, name in enumerate(old.names)}
    return np.array([place.get(name, NO_UNIT) for name in new.names], dtype=np.int64)


def _check_skips(spec: NetworkSpec, places: Places) -> None:
    """Raise DataError when a layer adds another's outputs unit by unit, and their units have not moved alike."""
    for n, layer in enumerate(spec.layers):
        for name in layer.skips:
            if not _alike(places.get(spec.places[name]), places.get(n)):
                raise _cannot(f"layer {show(layer.name)} skips from {show(name)}, whose units have moved differently")


def _check_order(spec: NetworkSpec, places: Places) -> None:
    """Raise DataError when units have moved whose place says what they are: those of images, and of what is pooled."""
    for layer in spec.layers:
        if is_computed(layer):
            for name in (layer.name, *layer.sources):
                if spec.places[name] in places:
                    what = f"layer {show(layer.name)} of type {layer.type}"
                    raise _cannot(f"the units of {show(name)} have moved, and in {what} each has its place")


def _ways(spec: NetworkSpec, places: Places) -> dict[int, tuple[Longs | None, Longs | None]]:
    """Return where the rows and the columns of each weight matrix were; edges that share one must agree."""
    ways: dict[int, tuple[Longs | None, Longs | None]] = {}
    for edge in spec.edges:
        way = places.get(edge.source), places.get(edge.target)
        way = way[::-1] if edge.transposed else way
        before = ways.setdefault(edge.owner, way)
        if not (_alike(before[0], way[0]) and _alike(before[1], way[1])):
            source, target = (show(spec.layers[n].name) for n in (edge.source, edge.target))
            raise _cannot(f"the weights from {source} to {target} are shared with layers whose units moved differently")
    return ways


def _alike(one: Longs | None, other: Longs | None) -> bool:
    """Return whether the units of two layers have moved in the same way; None is not at all."""
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _cannot(reason: str) -> DataError:
    return DataError(f"the model cannot be carried over to these data: {reason}")


def _gather(values: Floats, places: Longs | None, axis: int, missing: float) -> Floats:
    """Return the rows or columns of `values` at `places`, `missing` where there is none; never changes `values`."""
    if places is None:
        return values
    found = np.take(values, places, axis)
    found[(slice(None),) * axis + (places == NO_UNIT,)] = missing
    return found


def match_inputs(network: Network, sets: Mapping[str, DataSet], file: str) -> Network:
    """Return the network with inputs as sparse or dense as the data are; DataError when their widths differ."""
    spec = resolve(network.spec, sets, file)
    if [layer.sparse for layer in spec.layers] == [layer.sparse for layer in network.spec.layers]:
        return network
    layers = [replace(old, sparse=new.sparse) for old, new in zip(network.spec.layers, spec.layers, strict=True)]
    changed, stores = replace(network.spec, layers=tuple(layers)), dict(network.stores)
    for edge in iterate_owners(network.spec):
        if layout_of(changed, edge) is not layout_of(network.spec, edge):
            stores[edge.number] = lay_out_weights(changed, edge, network.matrix(edge.number))
    return replace(network, spec=changed, stores=stores)
