"""Pooling layers on a GPU: one source pooled or normalized, or several joined. Twins: ops/pooling.py, joining.py."""

from __future__ import annotations

from collections.abc import Sequence

from nnlib.gpu.maps.sweeps import Sweeps
from nnlib.gpu.runtime import Array, Runtime, grid_of
from nnlib.model.graph import Graph, Node
from nnlib.spec.geometry import Maps
from nnlib.spec.types import LayerKind, LayerType, PoolingFunction

POOLS = {
    PoolingFunction.MAX: "max_pool",
    PoolingFunction.GLOBAL_MAX: "max_pool",
    PoolingFunction.AVERAGE: "average_pool",
    PoolingFunction.GLOBAL_AVERAGE: "average_pool",
}
WARP = 32  # threads on a row
COMPARES = {PoolingFunction.DOT_PRODUCT: 0, PoolingFunction.COSINE: 1}
PRODUCT = PoolingFunction.PRODUCT
# Whose gradient needs what they gave.
REMEMBERS = (PoolingFunction.MAX, PoolingFunction.GLOBAL_MAX, PoolingFunction.MAXOUT)

Into = tuple[Array, bool] | None  # where dLoss/d(a source) goes, and whether to add to what is there; None: nowhere


class Pooling:
    """All pooling layers of a network. Arrays are (b, units), of sources in the order in which a layer names them."""

    def __init__(self, runtime: Runtime, graph: Graph, sweeps: Sweeps, most: int) -> None:
        """Make room for the gradients of batches of up to `most` examples."""
        self._runtime, self._graph, self._sweeps = runtime, graph, sweeps
        products = [node.units for node in graph.nodes if is_pooling(node) and node.layer.function is PRODUCT]
        self._product = runtime.zeros(most * max(products, default=0))

    def forward(self, node: Node, sources: Sequence[Array], a: Array) -> None:
        """Compute what a layer makes of its sources."""
        function, first = node.layer.function, sources[0]
        if function in POOLS:
            self._each(POOLS[function], a.size, first, a, *self._swept(node, len(a)))
        elif function is PoolingFunction.LRN:
            self._each("response_norm", a.size, first, a, *self._response(node, len(a)))
        elif function is PoolingFunction.CONCATENATE:
            low = 0
            for x in sources:
                self._rows("copy_rows", len(a), x, a[:, low:], len(a), x.shape[1], x.shape[1], a.shape[1], 0)
                low += x.shape[1]
        elif function in COMPARES:
            for at, x in enumerate(sources[1:]):
                sizes = len(a), first.shape[1], a.shape[1], at, COMPARES[function]
                self._rows("compare_rows", len(a), first, x, a, *sizes)
        elif function is PRODUCT:
            whole = max(sources, key=lambda x: int(x.shape[1]))
            self._multiply(whole, [x for x in sources if x is not whole], a, node.maps)
        else:
            join = "maximum" if function is PoolingFunction.MAXOUT else "add"
            self._runtime.move(a, first)
            for x in sources[1:]:
                self._each(join, a.size, a, x, a.size)

    def backward(self, node: Node, sources: Sequence[Array], a: Array, delta: Array, belows: Sequence[Into]) -> None:
        """Compute dLoss/d(each source) from what `forward` gave and delta = dLoss/da."""
        low = 0
        for place, (x, into) in enumerate(zip(sources, belows, strict=True)):
            if into is not None:
                self._source_gradient(node, place, sources, a, delta, (into[0], int(into[1])), low)
            low += x.shape[1]

    def _source_gradient(
        self,
        node: Node,
        place: int,
        sources: Sequence[Array],
        a: Array,
        delta: Array,
        into: tuple[Array, int],
        low: int,
    ) -> None:
        """Compute dLoss/d(one source), which of a concatenation begins at unit `low`."""
        function, x, (below, add) = node.layer.function, sources[place], into
        if function in POOLS:
            seen = (x, a) if function in REMEMBERS else ()
            given = *seen, delta, below, *self._swept(node, len(x)), add
            self._each(f"{POOLS[function]}_backward", x.size, *given)
        elif function is PoolingFunction.LRN:
            self._each("response_norm_backward", x.size, x, delta, below, *self._response(node, len(x)), add)
        elif function is PoolingFunction.CONCATENATE:
            sizes = len(x), x.shape[1], delta.shape[1], x.shape[1], add
            self._rows("copy_rows", len(x), delta[:, low:], below, *sizes)
        elif function in COMPARES:
            self._comparison_gradient(place, sources, delta, into, COMPARES[function])
        elif function is PRODUCT:
            others = [other for n, other in enumerate(sources) if n != place]
            self._factor_gradient(others, delta, into, node.maps)
        elif function is PoolingFunction.MAXOUT:
            self._each("maxout_backward", x.size, x, a, delta, below, x.size, add)
        else:
            self._put(delta, into)

    def _comparison_gradient(
        self, place: int, sources: Sequence[Array], delta: Array, into: tuple[Array, int], cosine: int
    ) -> None:
        """Of the first source, which is compared with each of the others, the sum over these."""
        x, (below, add) = sources[place], into
        for at, other in enumerate(sources[1:] if place == 0 else [sources[0]]):
            column, more = (at, add or int(at > 0)) if place == 0 else (place - 1, add)
            sizes = len(x), x.shape[1], delta.shape[1], column, cosine, more
            self._rows("compare_rows_backward", len(x), x, other, delta, below, *sizes)

    def _multiply(self, x: Array, others: Sequence[Array], out: Array, maps: Maps) -> None:
        """Set out (b, units) to the product of x and others, of which one with a number a map counts for all of it."""
        self._runtime.move(out, x)
        for y in others:
            if y.shape[1] == out.shape[1]:
                self._each("mul", out.size, out, y, out.size)
            else:
                rows = len(out) * maps.channels
                self._rows("mul_maps", rows, out, y, rows, maps.area)

    def _factor_gradient(self, others: Sequence[Array], delta: Array, into: tuple[Array, int], maps: Maps) -> None:
        (below, add), rows = into, len(delta) * maps.channels
        found = self._product[: delta.size].reshape(delta.shape)
        self._multiply(delta, others, found, maps)
        if below.shape[1] < delta.shape[1]:
            self._rows("sum_maps", rows, found, below, rows, maps.area, add)
        else:
            self._put(found, into)

    def _put(self, delta: Array, into: tuple[Array, int]) -> None:
        below, add = into
        if add:
            self._each("add", delta.size, below, delta, delta.size)
        else:
            self._runtime.move(below, delta)

    def _swept(self, node: Node, size: int) -> tuple[Array, int]:
        """Return how a layer that pools moves over its source, and how many maps it moves over."""
        sweep = self._graph.sweep(node.sources[0], node.number)
        return self._sweeps.words(sweep), size * sweep.source.channels

    def _response(self, node: Node, size: int) -> tuple[int | float, ...]:
        rule, maps = self._graph.network.spec.local_response, node.maps
        half = (rule.n - 1) // 2, rule.n // 2
        return size * maps.units, maps.channels, maps.area, *half, rule.k, rule.alpha / rule.n, rule.beta

    def _each(self, name: str, count: int, *arguments: object) -> None:
        """Launch a kernel with a thread for each of `count` numbers."""
        self._runtime.launch(name, grid_of(count), *arguments)

    def _rows(self, name: str, rows: int, *arguments: object) -> None:
        """Launch a kernel with a warp for each row."""
        self._runtime.launch(name, grid_of(rows * WARP), *arguments)


def is_pooling(node: Node) -> bool:
    """Whether a layer pools or joins others."""
    return node.layer.kind is not LayerKind.INPUT and node.layer.type is LayerType.POOLING
