"""Asks a network, cut by examples, about the eight shards of what it is asked about, each rank about its own.

Shard n has the n-th eighth of the examples, and is asked about as if there were no others: the bits of a product depend
on its rows. Losses are added by the tree; all else is put side by side. So the answers have the same bits on any number
of ranks, one included, and differ from those of all examples at once by rounding alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnlib.data.blockwise import BATCH
from nnlib.data.rows import Csr
from nnlib.errors import NotFiniteError
from nnlib.model.examples import Examples
from nnlib.model.network import Network, count_units
from nnlib.ops.finite import mean_error
from nnlib.shards.collectives import Collectives
from nnlib.shards.cut import Rows
from nnlib.shards.tree import SHARDS, tree_sum
from nnlib.spec.types import NetworkSpec
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each

AT_ONCE = SHARDS * BATCH  # examples asked about at a time: with fewer, a shard's products would be small


class Asked(Protocol):
    """What knows the whole network, and answers for some examples: `engines.Evaluator`, and a sum of losses."""

    @property
    def network(self) -> Network:
        """See `engines.Evaluator`, as of all but `total_loss`."""

    def total_loss(self, examples: Examples, low: int, high: int) -> float:
        """Return the error function summed over the examples from `low` to `high`."""

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> tuple[NDArray[np.int64], Floats]:
        """Return the best items."""

    def sums(self, examples: Examples, output: int) -> Floats:
        """Return the sums of an output layer."""

    def values(self, examples: Examples, layer: int) -> Floats:
        """Return what a layer gives."""


class ShardsEvaluator:
    """See `engines.Evaluator`. All ranks ask for the same at the same time, and all get the same answers."""

    at_once = AT_ONCE

    def __init__(self, asked: Asked, spec: NetworkSpec, dtype: Any, each: Each, together: Collectives) -> None:
        """`spec` and `dtype` are those of the network; `together` gathers in this machine's memory."""
        self._asked, self._spec, self._dtype, self._each, self._together = asked, spec, dtype, each, together

    @property
    def network(self) -> Network:
        """See `engines.Evaluator`, as of all that follow."""
        return self._asked.network

    def mean_loss(self, examples: Examples) -> float:
        """Return the mean loss."""
        count = examples.count
        own = [self._asked.total_loss(examples, low, high) for low, high in self._shards(count)]
        parts = self._together.numbers(own).reshape(-1)
        return mean_error(float(tree_sum(parts.tolist())), count)

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> tuple[NDArray[np.int64], Floats]:
        """Return the best items."""

        def ask(rows: Longs) -> tuple[NDArray[Any], ...]:
            return self._asked.top(examples.take(rows), output, k, None if owned is None else owned.take(rows))

        width = min(k, count_units(self._spec, output))
        items, sums = self._ask(examples.count, ask, width, (np.int64, self._dtype))
        return items, sums

    def sums(self, examples: Examples, output: int) -> Floats:
        """Return the sums of an output layer."""
        return self._rows(examples, output, self._asked.sums)

    def values(self, examples: Examples, layer: int) -> Floats:
        """Return what a layer gives."""
        return self._rows(examples, layer, self._asked.values)

    def _rows(self, examples: Examples, layer: int, ask: Callable[[Examples, int], Floats]) -> Floats:
        width = count_units(self._spec, layer)
        [found] = self._ask(examples.count, lambda rows: (ask(examples.take(rows), layer),), width, (self._dtype,))
        return found

    def _shards(self, count: int) -> list[tuple[int, int]]:
        """Return where each own shard of so many examples begins and ends."""
        dealt = Rows(count, self._together.own)
        shards = map(dealt.shard, range(len(dealt.own)))
        return [(dealt.place.start + shard.start, dealt.place.start + shard.stop) for shard in shards]

    def _ask(
        self, count: int, ask: Callable[[Longs], tuple[NDArray[Any], ...]], width: int, kinds: tuple[Any, ...]
    ) -> list[NDArray[Any]]:
        """Return what `ask` gives for the rows of each shard, (rows, width) of each kind, for all examples.

        NotFiniteError, on all ranks, for the first example of which one raised it.
        """
        shards = self._shards(count)
        start, end = shards[0][0], shards[-1][1]
        own = [np.zeros((math.ceil(count / SHARDS) * len(shards), width), kind) for kind in kinds]

        def fill(place: int) -> int:
            low, high = shards[place]
            try:
                given = ask(np.arange(low, high)) if low < high else ()
            except NotFiniteError as error:
                return low + error.example
            for array, rows in zip(own, given, strict=False):
                array[low - start : high - start] = rows
            return count

        first = min(self._each(fill, range(len(shards))))
        first = int(self._together.numbers([first]).min())
        if first < count:
            raise NotFiniteError(first)
        if self._together.ranks == 1:
            return [array[: end - start] for array in own]
        return [self._together.gather(array).reshape(-1, width)[:count] for array in own]
