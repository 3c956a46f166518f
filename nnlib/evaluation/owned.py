"""Which items an example owns already: those of a sparse input with the same items as an Output layer.

A recommendation leaves them out, but for data and models where buying again counts (`repeats`). So does what measures
one, unless they are the very targets: where a network learns to give back its own input (an autoencoder), every target
would be left out and every ranking metric be zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nnlib.data.rows import Csr
from nnlib.data.sets import DataSet
from nnlib.data.units import Units, same_items
from nnlib.model.examples import Examples
from nnlib.spec.types import LayerKind, NetworkSpec

BLOCK = 4096  # examples compared at a time


def find_owned_input(spec: NetworkSpec, examples: Examples, units: Mapping[int, Units], output: int) -> int | None:
    """Return the first sparse Input layer with the items of an Output layer, None without one; `units` are by layer."""
    for n, data_set in examples.sets.items():
        if spec.layers[n].kind is LayerKind.INPUT and data_set.sparse and same_items(units[n], units[output]):
            return n
    return None


def find_excluded_input(spec: NetworkSpec, examples: Examples, output: int) -> int | None:
    """Return the Input layer whose items are left out when an Output layer is measured; None: nothing is."""
    units = {n: Units(found.width, found.features) for n, found in examples.sets.items()}
    n = find_owned_input(spec, examples, units, output)
    return None if n is None or are_targets(examples.sets[n], examples.sets[output]) else n


def are_targets(owned: DataSet, targets: DataSet) -> bool:
    """Whether every example owns exactly its targets; values mean nothing here."""
    if not targets.sparse or owned.examples != targets.examples:
        return False
    if owned.name == targets.name or (owned.rows is targets.rows and owned.index is targets.index):
        return True
    for low in range(0, owned.examples, BLOCK):
        rows = np.arange(low, min(low + BLOCK, owned.examples))
        one, other = owned.take(rows).rows, targets.take(rows).rows
        assert isinstance(one, Csr) and isinstance(other, Csr), "both are sparse"
        one, other = one.sets(), other.sets()
        if not (np.array_equal(one.indptr, other.indptr) and np.array_equal(one.indices, other.indices)):
            return False
    return True
