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
from nnlib.model.network import Network, assemble, iterate_owners
from nnlib.ops.batch_norm import BatchNorm
from nnlib.spec.fine_tuning import describe_tuning
from nnlib.spec.json_section import show
from nnlib.spec.types import Edge, LayerKind, NetworkSpec
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
    and the same number of units where these have no names; but not one into a layer that FineTuning replaces. Both
    stay as they are. Raises DataError when a layer is to be frozen that the model does not have.
    """
    network, spec = fresh.network, fresh.network.spec
    new = {spec.places[name] for name in spec.tuning.replace}
    known = {n: found for n in range(len(spec.layers)) if (found := _known(fresh, n, model)) is not None}
    ends = {edge.number: (known[edge.source], known[edge.target]) for edge in spec.edges if _fits(edge, known, new)}
    sources = {number: edge for number in ends if (edge := _same_edge(fresh, number, model)) is not None}
    _check_frozen(spec, set(sources))
    matrices = {owner.number: network.matrix(owner.number).copy() for owner in iterate_owners(spec)}
    biases = [bias.copy() for bias in network.biases]
    for number, old in sources.items():
        edge, (rows, columns) = spec.edges[number], ends[number]
        biases[number][columns[0]] = model.network.biases[old.number][columns[1]]
        if edge.owner == number or edge.owner not in sources:  # of shared weights the owner's are taken first
            weights = _turn(matrices[edge.owner], edge)
            old_weights = _turn(model.network.matrix(old.owner), old)
            weights[np.ix_(rows[0], columns[0])] = old_weights[np.ix_(rows[1], columns[1])]
    norms = {n: norm.copy() for n, norm in network.norms.items()}
    for n in {spec.edges[number].target for number in sources} & set(norms):
        norms[n] = _norm_of(norms[n], model, spec.layers[n].name)
    return WarmStart(
        assemble(spec, matrices, biases, norms, network.locked), _summary(fresh, model, known, set(sources))
    )


def _known(fresh: Model, n: int, model: Model) -> Known | None:
    """Return which units of layer `n` the model knows and where, None when it knows none of them."""
    layer, old_spec = fresh.network.spec.layers[n], model.network.spec
    place = old_spec.places.get(layer.name)
    if place is None or old_spec.layers[place].kind is not layer.kind:
        return None
    names, old_names = fresh.features.get(n, ()), model.features.get(place, ())
    if not (names and old_names) or names == old_names:
        units = np.arange(layer.units or 0)
        return (units, units) if layer.units == old_spec.layers[place].units else None
    numbers = {name: number for number, name in enumerate(old_names) if name}  # the padding of layers has none
    places = np.array([numbers.get(name, -1) for name in names], dtype=np.int64)
    units = np.flatnonzero(places >= 0)
    return (units, places[units]) if len(units) else None


def _fits(edge: Edge, known: Mapping[int, Known], new: Set[int]) -> bool:
    return edge.source in known and edge.target in known and edge.target not in new


def _check_frozen(spec: NetworkSpec, taken: Set[int]) -> None:
    for edge in spec.edges:
        source, target = (spec.layers[n].name for n in (edge.source, edge.target))
        if target in spec.tuning.freeze and edge.number not in taken:
            raise DataError(
                f"FineTuning.Freeze: {show(target)} would stay random: the model that the training starts from has no "
                f"weights from {show(source)} to {show(target)} of this size; legal: layers that it has"
            )


def _same_edge(fresh: Model, number: int, model: Model) -> Edge | None:
    """Return the edge between the layers of the same names, None when the model has none."""
    spec, old_spec = fresh.network.spec, model.network.spec
    edge = spec.edges[number]
    ends = tuple(old_spec.places[spec.layers[n].name] for n in (edge.source, edge.target))
    return next((old for old in old_spec.edges if (old.source, old.target) == ends), None)


def _turn(matrix: Floats, edge: Edge) -> Floats:
    """Return the weights of an edge as (in, out), a view of the matrix of the edge that owns them."""
    return matrix.T if edge.transposed else matrix


def _norm_of(fresh: BatchNorm, model: Model, name: str) -> BatchNorm:
    """Return the batch normalization of the model's layer `name`, the fresh one when that has none."""
    old = model.network.norms.get(model.network.spec.places[name])
    return fresh if old is None else old.copy()


def _summary(fresh: Model, model: Model, known: Mapping[int, Known], taken: set[int]) -> str:
    spec = fresh.network.spec
    layers = [n for n, layer in enumerate(spec.layers) if layer.kind is not LayerKind.INPUT]
    begun = {spec.edges[number].target for number in taken}
    parts = [f"weights of {len(begun)} of {len(layers)} layers"]
    for n, layer in enumerate(spec.layers):
        if layer.kind is not LayerKind.HIDDEN:
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
