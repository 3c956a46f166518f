"""A new network that starts from the weights of a trained one: layers are found again by name, and so are units.

What the model does not know keeps the random values that it was drawn with: it is going to be trained. What is no
longer in the data is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nnlib.errors import DataError
from nnlib.model.file import Model, read_model
from nnlib.model.network import Network, assemble, is_convolution, iterate_owners
from nnlib.ops.batch_norm import BatchNorm
from nnlib.spec.fine_tuning import describe_tuning
from nnlib.spec.geometry import is_computed, kernel_shape, view_maps
from nnlib.spec.json_section import show
from nnlib.spec.types import Edge, Layer, LayerKind, NetworkSpec
from nnlib.util.arrays import Floats, Longs

MOST_NAMED = 5  # connections that the summary names

Known = tuple[Longs, Longs]  # units of a layer that the model knows, and where they are in the model


@dataclass(frozen=True, slots=True, eq=False)
class WarmStart:
    """A network with what was taken from a model, and a sentence on what that was."""

    network: Network
    summary: str


def read_init(path: Path) -> Model:
    """Read the model that a training is to start from; DataError says that it is this one that is wrong."""
    try:
        return read_model(path)
    except DataError as error:
        raise DataError(f"initial weights: {error}") from error


def apply_initial_weights(fresh: Model, model: Model) -> WarmStart:
    """Return the network of `fresh`, which has just been drawn, with the weights of `model` where they fit.

    A connection is taken over, weights and biases, when both of its layers are in the model too: with the same name,
    and the same number of units where these have no names; but not one into a layer that FineTuning replaces. One into
    a convolutional layer is, when its kernels have the same shape, whatever the size of the maps. Both stay as they
    are. Raises DataError when a layer is to be frozen that the model does not have.
    """
    network, spec = fresh.network, fresh.network.spec
    new = {spec.places[name] for name in spec.tuning.replace}
    known = {n: found for n in range(len(spec.layers)) if (found := _known(fresh, n, model)) is not None}
    sources = {edge.number: old for edge in spec.edges if (old := _find(fresh, edge, known, model)) is not None}
    sources = {number: old for number, old in sources.items() if spec.edges[number].target not in new}
    matrices = {owner.number: _own_matrix(network, owner.number) for owner in iterate_owners(spec)}
    biases = [bias.copy() for bias in network.biases]
    for number, old in sources.items():
        edge = spec.edges[number]
        rows, columns = (None, None) if is_convolution(spec, edge) else (known[edge.source], known[edge.target])
        _copy(model.network.biases[old.number], biases[number], columns)
        if edge.owner == number or edge.owner not in sources:  # of shared weights the owner's are taken first
            _copy(_turn(model.network.matrix(old.owner), old), _turn(matrices[edge.owner], edge), rows, columns)
    norms = {n: norm.copy() for n, norm in network.norms.items()}
    taken = {spec.edges[number].target for number in sources}
    with_edges = {edge.target for edge in spec.edges}
    for n in norms:
        old_norm = _norm_of(norms[n], model, spec.layers[n])
        if old_norm is not None and n not in new and (n in taken or n not in with_edges):
            norms[n] = old_norm
            taken.add(n)
    _check_frozen(spec, set(sources), taken)
    summary = _summary(fresh, model, known, set(sources), taken)
    return WarmStart(assemble(spec, matrices, biases, norms, network.locked), summary)


def _known(fresh: Model, n: int, model: Model) -> Known | None:
    """Return which units of layer `n` the model knows and where, None when it knows none of them."""
    layer, old_spec = fresh.network.spec.layers[n], model.network.spec
    place = old_spec.places.get(layer.name)
    if place is None or old_spec.layers[place].kind is not layer.kind:
        return None
    names, old_names = fresh.features.get(n, ()), model.features.get(place, ())
    if not (names and old_names) or names == old_names:
        units = np.arange(layer.units or 0)
        return (units, units) if _are_alike(layer, old_spec.layers[place]) else None
    numbers = {name: number for number, name in enumerate(old_names) if name}  # the padding of layers has none
    places = np.array([numbers.get(name, -1) for name in names], dtype=np.int64)
    units = np.flatnonzero(places >= 0)
    return (units, places[units]) if len(units) else None


def _are_alike(layer: Layer, old: Layer) -> bool:
    """Whether units of the same number are the same; a size of 1, or one number for all, says nothing of their order.

    Where units are maps that were computed, their number has to be the same, too.
    """
    both = layer, old
    maps = [view_maps(one) for one in both]
    axes = [[size for size in one.dimensions if size > 1] for one in both]
    if any(is_computed(one) for one in both):
        return maps[0] == maps[1] or (maps[0].units == maps[1].units and not any(one.spatial for one in maps))
    return maps[0].units == maps[1].units and (axes[0] == axes[1] or min(map(len, axes)) < 2)


def _find(fresh: Model, edge: Edge, known: Mapping[int, Known], model: Model) -> Edge | None:
    """Return the edge of the model whose weights fit an edge, None when there is none."""
    spec, old_spec = fresh.network.spec, model.network.spec
    old = _same_edge(fresh, edge.number, model)
    if old is None or is_convolution(spec, edge) != is_convolution(old_spec, old):
        return None
    if is_convolution(spec, edge):
        shapes = [kernel_shape(of, one.source, one.target) for of, one in ((spec, edge), (old_spec, old))]
        return old if shapes[0] == shapes[1] else None
    return old if edge.source in known and edge.target in known else None


def _own_matrix(network: Network, owner: int) -> Floats:
    """Return the weights of an edge (in, out) in memory of their own, copied once."""
    matrix = network.matrix(owner)
    return matrix.copy() if np.may_share_memory(matrix, network.stores[owner]) else matrix


def _copy(old: Floats, new: Floats, *known: Known | None) -> None:
    """Write what is known along each axis to its new places; None is all of an axis, where it is."""
    same = old.shape == new.shape  # else the one may be the beginning of the other
    if same and all(one is None or _is_all(one, length) for one, length in zip(known, new.shape, strict=True)):
        new[...] = old
        return
    all_of = [np.arange(length) for length in new.shape]
    places = [(units, units) if one is None else one for one, units in zip(known, all_of, strict=True)]
    new[np.ix_(*(there for there, _ in places))] = old[np.ix_(*(here for _, here in places))]


def _is_all(known: Known, length: int) -> bool:
    return len(known[0]) == length and np.array_equal(*known)


def _check_frozen(spec: NetworkSpec, taken: Set[int], layers: Set[int]) -> None:
    """Raise DataError for layers that would be frozen as they were drawn; `layers` have been taken in any part."""
    for edge in spec.edges:
        source, target = (spec.layers[n].name for n in (edge.source, edge.target))
        if target in spec.tuning.freeze and edge.number not in taken:
            raise DataError(
                f"FineTuning.Freeze: {show(target)} would stay random: the model that the training starts from has no "
                f"weights from {show(source)} to {show(target)} of this size; legal: layers that it has"
            )
    for n, layer in enumerate(spec.layers):
        if layer.name in spec.tuning.freeze and layer.batch_norm and n not in layers:
            raise DataError(
                f"FineTuning.Freeze: {show(layer.name)} would stay as it was drawn: the model that the training starts "
                "from has no batch normalization of this size there; legal: layers that it has"
            )


def _same_edge(fresh: Model, number: int, model: Model) -> Edge | None:
    """Return the edge between the layers of the same names and kinds, None when the model has none."""
    spec, old_spec = fresh.network.spec, model.network.spec
    edge = spec.edges[number]
    ends = []
    for n in (edge.source, edge.target):
        place = old_spec.places.get(spec.layers[n].name)
        if place is None or old_spec.layers[place].kind is not spec.layers[n].kind:
            return None
        ends.append(place)
    return next((old for old in old_spec.edges if [old.source, old.target] == ends), None)


def _turn(matrix: Floats, edge: Edge) -> Floats:
    """Return the weights of an edge as (in, out), a view of the matrix of the edge that owns them."""
    return matrix.T if edge.transposed else matrix


def _norm_of(fresh: BatchNorm, model: Model, layer: Layer) -> BatchNorm | None:
    """Return the batch normalization of the model's layer of the same name, None when it has none of this size."""
    place = model.network.spec.places.get(layer.name, -1)
    old = model.network.norms.get(place)
    if old is None or old.scale.size != fresh.scale.size or model.network.spec.layers[place].type is not layer.type:
        return None
    return old.copy()


def _summary(fresh: Model, model: Model, known: Mapping[int, Known], taken: Set[int], begun: Set[int]) -> str:
    spec = fresh.network.spec
    layers = {edge.target for edge in spec.edges} | fresh.network.norms.keys()
    parts = [f"weights of {len(begun)} of {len(layers)} layers"]
    for n, layer in enumerate(spec.layers):
        over = [other for other in spec.layers if layer.name in other.sources]
        if layer.kind is LayerKind.HIDDEN or (over and all(is_computed(other) for other in over)):
            continue  # of images no unit is found again, but maps are
        found = len(known[n][0]) if n in known else 0
        place = model.network.spec.places.get(layer.name, -1)
        way = "name" if fresh.features.get(n) and model.features.get(place) else "number"
        parts.append(f"{found:,} of {layer.units or 0:,} units of {layer.name} found by {way}")
    missing = [edge for edge in spec.edges if edge.number not in taken]
    if missing:
        named = [f"{spec.layers[e.source].name} to {spec.layers[e.target].name}" for e in missing[:MOST_NAMED]]
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        parts.append(f"random: {', '.join(named)}{more}")
    parts += describe_tuning(spec.tuning)
    return "; ".join(parts)
