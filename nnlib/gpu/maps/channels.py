"""What is done by channel on a GPU: batch normalization, the biases' gradient, dropout of whole maps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nnlib.gpu.runtime import THREADS, Array, Runtime, grid_of
from nnlib.spec.geometry import Maps

PART, MOST_PARTS = 4096, 64  # numbers that a block of a sum has at least, and blocks of one channel at most
WARP = 32  # threads on a map


class Channels:
    """Sums over examples and places by channel. Arrays are (b, units), of layers whose maps have several places."""

    def __init__(self, runtime: Runtime, most_channels: int) -> None:
        """Make room for layers of up to so many channels."""
        self._runtime = runtime
        self._parts = runtime.zeros((2, MOST_PARTS * most_channels))
        self._center = runtime.zeros(most_channels)

    def normalize(self, z: Array, normal: Array, inverse: Array, norm: Mapping[str, Array], maps: Maps) -> None:
        """See `batch_norm.forward`; z in place."""
        sizes, parts = self._sizes(z, maps)
        means, squares = self._parts
        self._runtime.launch("map_moments", (maps.channels, parts), z, means, squares, *sizes)
        statistics = means, squares, self._center, inverse, norm["mean"], norm["variance"], *sizes
        self._runtime.launch("map_statistics", (math.ceil(maps.channels / THREADS),), *statistics)
        self.normalize_by(z, normal, (self._center, inverse), (norm["scale"], norm["bias"]), maps)

    def measure(self, z: Array, found: Array, maps: Maps) -> None:
        """Set `found` (2, channels) to the moments of z, see `batch_norm.moments_of`."""
        sizes, parts = self._sizes(z, maps)
        means, squares = self._parts
        self._runtime.launch("map_moments", (maps.channels, parts), z, means, squares, *sizes)
        self._runtime.launch("map_moments_join", (math.ceil(maps.channels / THREADS),), means, squares, found, *sizes)

    def normalize_by(
        self, z: Array, normal: Array, statistics: tuple[Array, Array], parameters: tuple[Array, Array], maps: Maps
    ) -> None:
        """See `batch_norm.normalize`; by the mean and 1 / standard deviation, and with scale and bias."""
        self._rows("map_norm", z, maps, z, normal, *statistics, *parameters)

    def infer(self, z: Array, norm: Mapping[str, Array], maps: Maps) -> None:
        """See `batch_norm.inference`; z in place."""
        self._rows("map_norm_inference", z, maps, z, *(norm[name] for name in ("scale", "bias", "mean", "variance")))

    def normalize_backward(
        self, delta: Array, normal: Array, inverse: Array, scale: Array, gradients: tuple[Array, Array], maps: Maps
    ) -> None:
        """See `batch_norm.backward`; delta in place, and the gradients of scale and bias."""
        self.sum_back(delta, normal, gradients, maps)
        self.normalize_back(delta, normal, (scale, inverse), gradients, len(delta), maps)

    def sum_back(self, delta: Array, normal: Array, gradients: tuple[Array, Array], maps: Maps) -> None:
        """See `batch_norm.sums_of`: of scale and bias."""
        sizes, parts = self._sizes(delta, maps)
        sums, products = self._parts
        self._runtime.launch("map_sums", (maps.channels, parts), delta, normal, sums, products, *sizes)
        for found, gradient in zip((products, sums), gradients, strict=True):
            self._add_up(found, gradient, parts, maps.channels)

    def normalize_back(
        self,
        delta: Array,
        normal: Array,
        factors: tuple[Array, Array],
        gradients: tuple[Array, Array],
        examples: int,
        maps: Maps,
    ) -> None:
        """See `batch_norm.normalize_back`: by scale, 1 / standard deviation, and gradients over so many examples."""
        scale, inverse = factors
        self._rows("map_norm_backward", delta, maps, delta, normal, inverse, scale, *gradients, examples)

    def sum(self, delta: Array, sums: Array, maps: Maps) -> None:
        """Set sums (channels,) to those of delta over examples and places."""
        sizes, parts = self._sizes(delta, maps)
        self._runtime.launch("map_sums", (maps.channels, parts), delta, None, self._parts[0], None, *sizes)
        self._add_up(self._parts[0], sums, parts, maps.channels)

    def drop(self, a: Array, out: Array, unit: Array, noise: tuple[Any, ...], maps: Maps) -> None:
        """Set `out` to a after dropout of whole maps."""
        rows = len(a) * maps.channels
        self._runtime.launch("drop_maps", grid_of(rows * WARP), a, out, rows, maps.area, unit, *noise)

    def drop_backward(self, delta: Array, unit: Array, noise: tuple[Any, ...], maps: Maps) -> None:
        """Turn dLoss/d(what `drop` gave) into dLoss/da, in place."""
        rows = len(delta) * maps.channels
        self._runtime.launch("drop_maps_backward", grid_of(rows * WARP), delta, rows, maps.area, unit, *noise)

    def _sizes(self, x: Array, maps: Maps) -> tuple[tuple[int, int, int, int], int]:
        """Return b, channels, places and the examples of a part of a sum; and how many parts there are."""
        size = len(x)
        each = math.ceil(size / max(1, min(size, MOST_PARTS, size * maps.area // PART)))
        return (size, maps.channels, maps.area, each), math.ceil(size / each)

    def _add_up(self, parts: Array, sums: Array, count: int, channels: int) -> None:
        self._runtime.launch(
            "column_sums", (math.ceil(channels / WARP),), parts, sums, count, channels, channels, 1.0, 0
        )

    def _rows(self, name: str, x: Array, maps: Maps, *arguments: Any) -> None:
        rows = len(x) * maps.channels
        self._runtime.launch(name, grid_of(rows * WARP), *arguments, rows, maps.channels, maps.area)
