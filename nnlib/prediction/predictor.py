"""What a network says of examples: the best items of each, all outputs, or the outputs of any layer.

Examples are taken a block at a time, see `blockwise`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.blockwise import Lookup, choose_block_size, run_in_order
from nnlib.data.rows import Csr
from nnlib.data.sets import DataSet
from nnlib.data.units import Units
from nnlib.engines import Backend
from nnlib.errors import DataError, DivergedError, NnlibError, NotFiniteError
from nnlib.model.examples import Examples, examples_of
from nnlib.model.file import Model
from nnlib.model.network import Network, count_units
from nnlib.model.remap_units import Remapped, match_inputs, remap_units
from nnlib.ops.activations import ROWWISE, activate
from nnlib.ops.ranking import NO_ITEM, top
from nnlib.spec.json_section import nearest, show
from nnlib.spec.types import Layer, LayerKind, NetworkSpec
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each, map_in_turn


@dataclass(frozen=True, slots=True, eq=False)
class Ranked:
    """The best items of some examples, best first: numbers of units and their scores, each (b, k)."""

    items: NDArray[np.int64]  # NO_ITEM where an example has fewer than k
    scores: Floats  # -inf there


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A network in the numbering of the data it is to be used on."""

    network: Network
    examples: Examples  # of its inputs
    names: Mapping[int, tuple[str, ...]]  # of the units of layers with a data set, where known
    change: Remapped  # says which units of the Output layers the model knows

    def rankable(self, output: int) -> NDArray[np.bool_]:
        """Return which units of an Output layer can be among the best: those that the model knows.

        Where units have names, one without is none: DSSTNE pads layers to multiples of 128 units.
        """
        known, names = self.change.known[output], self.names.get(output, ())
        return known & np.array([bool(name) for name in names]) if any(names) else known


def prepare(model: Model, sets: Mapping[str, DataSet], file: str, supervised: bool = False) -> Prepared:
    """Return a model's network for the data sets of its Input layers, whose units are found by their names.

    When `supervised`, the same for its Output layers, whose data sets are the targets; else their units stay as the
    model has them, but for a layer that takes the data set of an Input layer. DataError when the data do not fit.
    """
    spec = model.network.spec
    taken = {layer.data_set for layer in spec.layers if supervised or layer.kind is LayerKind.INPUT} - {""}
    for name in sorted(taken - set(sets)):
        raise DataError(f"{file}: no data set {show(name)}, which the model takes, legal: {', '.join(map(show, sets))}")
    units = {
        layer.data_set: Units(layer.units or 0, model.features.get(n, ()))
        for n, layer in enumerate(spec.layers)
        if layer.data_set
    }
    units |= {name: Units(sets[name].width, sets[name].features or units[name].names) for name in taken}
    change = remap_units(model, units)
    network = match_inputs(change.network, {name: sets[name] for name in taken}, file)
    examples = examples_of(network.spec, sets, file, targets=supervised)
    names = {
        n: units[layer.data_set].names or _names(sets.get(layer.data_set), layer.units)
        for n, layer in enumerate(spec.layers)
        if layer.data_set
    }
    return Prepared(network, examples, names, change)


def find_layer(spec: NetworkSpec, name: str | None, kind: LayerKind | None = None, where: str = "layer") -> int:
    """Return the number of the layer `name`, or of the first of `kind`; NnlibError names the legal ones."""
    legal = [layer.name for layer in spec.layers if kind is None or layer.kind is kind]
    if name is None:
        return spec.places[legal[0]]
    if not isinstance(name, str):
        raise NnlibError(f"{where}: {name!r} is not legal, legal: {', '.join(map(show, legal))}")
    if name not in legal:
        hint = nearest(name, legal) or f", legal: {', '.join(map(show, legal))}"
        raise NnlibError(f"{where}: {show(name)} is no {kind + ' ' if kind else ''}layer of this network{hint}")
    return spec.places[name]


def rank(
    network: Network,
    examples: Examples,
    layer: int,
    k: int,
    backend: Backend,
    each: Each = map_in_turn,
    excluded: Lookup | None = None,
    factors: Lookup | None = None,
    rankable: NDArray[np.bool_] | None = None,
) -> Iterator[Ranked]:
    """Yield the k best units of an Output layer for each example, equal scores by number, a block after the other.

    The units in an example's row of `excluded` and those not `rankable` have no rank. The scores are what the layer
    gives, those in an example's row of `factors` multiplied by its values.
    """
    about, width = network.spec.layers[layer], count_units(network.spec, layer)
    alone = examples.count <= choose_block_size(width)  # then threads share the block, else the blocks
    evaluator = backend.evaluator(network, split=alone)
    unranked = None if rankable is None or rankable.all() else ~rankable
    by_sums = factors is None  # they rank as the outputs do, of which saturated ones would tie
    simple = by_sums and unranked is None and about.activation not in ROWWISE

    def block(rows: Longs) -> Ranked:
        some, left_out = examples.take(rows), excluded(rows) if excluded else None
        with _number_failures(rows, about):
            if simple:
                items, best = evaluator.top(some, layer, k, left_out)
                return make_ranked(items, _activate(about, items, best))
            z = evaluator.sums(some, layer)
        scores = z if by_sums else activate(about, z.copy())
        if factors is not None:
            listed = factors(rows)
            scores[entries_of(listed)] *= listed.values if listed.values is not None else 1
        if unranked is not None:
            scores[:, unranked] = -np.inf
        whole = activate(about, z.copy()) if by_sums and about.activation in ROWWISE else None
        items, best = top(scores, k, left_out)
        if whole is not None:
            best = np.take_along_axis(whole, np.maximum(items, 0), axis=1)
        elif by_sums:
            best = _activate(about, items, best)
        return make_ranked(items, best)

    return run_in_order(block, examples.count, width, map_in_turn if alone else each)


def compute_outputs(
    network: Network, examples: Examples, layer: int, backend: Backend, each: Each = map_in_turn
) -> Iterator[Floats]:
    """Yield what a layer that is not an Input gives for each example, (b, units), a block after the other."""
    evaluator, about = backend.evaluator(network), network.spec.layers[layer]

    def block(rows: Longs) -> Floats:
        with _number_failures(rows, about):
            return evaluator.values(examples.take(rows), layer)

    return run_in_order(block, examples.count, count_units(network.spec, layer), each)


def _names(data_set: DataSet | None, width: int | None) -> tuple[str, ...]:
    """Return the names that data have for units that the model has none for."""
    return data_set.features if data_set is not None and data_set.width == width else ()


def _activate(layer: Layer, items: NDArray[np.int64], sums: Floats) -> Floats:
    """Return what units give whose sums were ranked."""
    return activate(layer, np.where(items == NO_ITEM, 0, sums).astype(sums.dtype, copy=False))


def make_ranked(items: NDArray[np.int64], scores: Floats) -> Ranked:
    """Return what is ranked, with -inf where there is no item."""
    return Ranked(items, np.where(items == NO_ITEM, -np.inf, scores).astype(scores.dtype, copy=False))


@contextmanager
def _number_failures(rows: Longs, layer: Layer) -> Iterator[None]:
    """Say which of all examples it was whose outputs are not finite."""
    try:
        yield
    except NotFiniteError as error:
        raise DivergedError(
            f"example {rows[error.example]}: an output of layer {show(layer.name)} is not a finite number; its inputs "
            "or the model's weights are too large"
        ) from error


def entries_of(rows: Csr) -> tuple[Longs, NDArray[Any]]:
    """Return row and column of every entry."""
    return np.repeat(np.arange(rows.examples), np.diff(rows.indptr)), rows.indices
