"""A model of an earlier catalogue on today's data: its units are found again by their names.

An input unit that the model does not know contributes nothing. An output unit that it does not know is ranked below
all others, ties by unit number. Units that are no longer in the data are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nnlib.data import Csr
from nnlib.errors import DataError
from nnlib.modelfile import Model
from nnlib.network import Edge, Floats, Network

NO_UNIT = -1
LAST = -1e30  # the logit of an unknown output: below every other and yet finite; its sigmoid and softmax are exactly 0


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """The units of a data set as the model is to see them: their number and their names (empty when unknown)."""

    width: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """The model's network in the numbering of the data, and which output units of the data the model knows."""

    network: Network
    known: NDArray[np.bool_]

    def unscored(self, targets: Csr) -> NDArray[np.int64]:
        """Return the units among `targets` that the model does not know, ascending; their loss has no value."""
        return np.unique(targets.indices[~self.known[targets.indices]]).astype(np.int64)


def carried(model: Model, inputs: Units, outputs: Units) -> Carried:
    """Return `model` in the numbering of the data; DataError when a width differs and there are no names to go by."""
    spec, edges = model.network.spec, model.network.edges
    rows = _places("input", Units(len(edges[0].store), model.inputs), inputs)
    items = _places("output", Units(len(edges[-1].store), model.outputs), outputs)
    known = items != NO_UNIT
    first = Edge(_gathered(edges[0].store, rows, 0), edges[0].bias, edges[0].transposed)
    last = Edge(_gathered(edges[-1].store, items, 0), _gathered(edges[-1].bias, items, LAST), edges[-1].transposed)
    layers = (
        replace(spec.layers[0], units=inputs.width),
        *spec.layers[1:-1],
        replace(spec.layers[-1], units=outputs.width),
    )
    return Carried(Network(replace(spec, layers=layers), (first, *edges[1:-1], last)), known)


def _places(kind: str, old: Units, new: Units) -> NDArray[np.int64]:
    """Return where each of the new units was in the old numbering, NO_UNIT for one that was not there."""
    if not (old.names and new.names) and old.width != new.width:
        nameless = " and ".join(f"the {side}" for side, units in (("model", old), ("data", new)) if not units.names)
        raise DataError(
            f"it has {old.width} {kind} units, the data have {new.width}, with no names of units in {nameless} "
            "by which to match them"
        )
    if not (old.names and new.names) or old.names == new.names:
        return np.arange(new.width)
    place = {name: number for number, name in enumerate(old.names)}
    return np.array([place.get(name, NO_UNIT) for name in new.names], dtype=np.int64)


def _gathered(values: Floats, places: NDArray[np.int64], missing: float) -> Floats:
    """Return the rows of `values` at `places`, filled with `missing` where there is none; never changes `values`."""
    if np.array_equal(places, np.arange(len(values))):
        return values
    found = values[places]
    found[places == NO_UNIT] = missing
    return found
