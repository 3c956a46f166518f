"""Layers of maps cut into pieces that fit a core's cache, for any number of threads: a piece's size is fixed."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from nnlib.model.graph import Graph
from nnlib.spec.geometry import Maps, is_computed
from nnlib.util.threads import Each, consume

NUMBERS = 1 << 17  # that one thread works on at a time: half a megabyte of float32
ASKED = 1 << 24  # that one thread keeps of a network with maps that is asked: 64 MB of float32


def by_examples(each: Each, act: Callable[[slice], object], examples: int, units: int, numbers: int = 0) -> None:
    """Do `act` for some of the examples, then some others, of so many units each; `numbers` at a time, 0: NUMBERS."""
    _in_steps(each, act, examples, units, numbers or NUMBERS)


def by_maps(each: Each, act: Callable[[slice], object], examples: int, maps: Maps) -> None:
    """Do `act` for some of the maps, then some others: for what is summed over examples and places."""
    _in_steps(each, act, maps.channels, examples * maps.area, NUMBERS)


def choose_at_once(graph: Graph) -> int:
    """Return of how many examples at most a graph is asked: any number, where no layer has maps of its own."""
    units = {node.number: node.units for node in graph.nodes}
    around = [
        node.units + sum(units[source] for source in (*node.sources, *node.skips))
        for node in graph.nodes
        if is_computed(node.layer)
    ]
    return max(1, ASKED // max(around)) if around else sys.maxsize


def _in_steps(each: Each, act: Callable[[slice], object], count: int, size: int, numbers: int) -> None:
    step = max(1, numbers // max(1, size))

    def piece(low: int) -> None:
        with np.errstate(all="ignore"):  # a thread has its own; what is not finite is found in the values
            act(slice(low, min(low + step, count)))

    consume(each(piece, range(0, count, step)))
