"""Batch normalization of maps: that of their channels over examples and places, as nnlib/ops/batch_norm.py has it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nnlib.ops import batch_norm
from nnlib.ops.batch_norm import Moments
from nnlib.shards.tree import tree_sum
from tests.kernels.host import poisoned, run
from tests.kernels.test_batchnorm import assert_within, in_double, norm_of

EPSILON = float(np.finfo(np.float32).eps)
SHAPES = [(1, 1, 2), (5, 3, 4), (9, 2, 49), (3, 33, 6), (20, 300, 1)]
EACH = [1, 4, 100]
GRIDS = [(1,), (3,)]


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def as_columns(x: np.ndarray) -> np.ndarray:
    """Return (b, C, S) as (b S, C), in double precision."""
    return x.astype(np.float64).swapaxes(1, 2).reshape(-1, x.shape[1])


def as_maps(columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    b, channels, places = shape
    return columns.reshape(b, places, channels).swapaxes(1, 2)


def sizes(shape: tuple[int, ...], each: int) -> list[np.int32]:
    return [np.int32(n) for n in (*shape, each)]


def rows_of(shape: tuple[int, ...]) -> list[np.generic]:
    return [np.int64(shape[0] * shape[1]), np.int32(shape[1]), np.int32(shape[2])]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("each", EACH)
def test_forward(random, shape, each):
    z = random.normal(3, 2, shape).astype(np.float32)
    (b, channels, _), norm = shape, norm_of(random, shape[1])
    twin = in_double(norm)
    normed, out = batch_norm.forward(twin, as_columns(z))
    parts = math.ceil(b / each)
    rooms = [poisoned((parts, channels)) for _ in range(2)]
    moments = run("mapnorm", "map_moments", (channels, parts), [z, *rooms, *sizes(shape, each)])
    args = [*moments, poisoned(channels), poisoned(channels), norm.mean, norm.variance, *sizes(shape, each)]
    center, inverse, mean, variance = run("mapnorm", "map_statistics", (math.ceil(channels / 256),), args)
    largest = np.abs(as_columns(z)).max(axis=0)
    relative = 32 * EPSILON * (1 + largest * normed.inverse)
    assert_within(center, as_columns(z).mean(axis=0), 8 * EPSILON * (1 + largest))
    assert_within(inverse, normed.inverse, relative * normed.inverse)
    assert_within(mean, twin.mean, 8 * EPSILON * (1 + largest))
    assert_within(variance, twin.variance, 32 * EPSILON * (1 + largest**2))
    for grid in GRIDS:
        args = [z, poisoned(shape), center, inverse, norm.scale, norm.bias, *rows_of(shape)]
        found, normal = run("mapnorm", "map_norm", grid, args)
        near = relative * (1 + np.abs(normed.normal))
        assert_within(as_columns(normal), normed.normal, near)
        assert_within(as_columns(found), out, 2 * near * norm.scale + EPSILON * np.abs(norm.bias))


def test_no_example_changes_nothing(random):
    norm, nothing = norm_of(random, 3), np.empty((0, 3), np.float32)
    args = [nothing, nothing, poisoned(3), poisoned(3), norm.mean, norm.variance, *sizes((0, 3, 4), 1)]
    found = run("mapnorm", "map_statistics", (1,), args)
    np.testing.assert_array_equal(found[2:], [norm.mean, norm.variance])


def moments_of(z: np.ndarray, each: int) -> np.ndarray:
    """What a shard gives to the others, (2, channels)."""
    b, channels, _ = z.shape
    parts = math.ceil(b / each)
    rooms = [poisoned((parts, channels)) for _ in range(2)]
    moments = run("mapnorm", "map_moments", (channels, parts), [z, *rooms, *sizes(z.shape, each)])
    args = [*moments, poisoned((2, channels)), *sizes(z.shape, each)]
    [found] = run("mapnorm", "map_moments_join", (math.ceil(channels / 256),), args)
    return found


@pytest.mark.parametrize("each", EACH)
@pytest.mark.parametrize("shape", SHAPES)
def test_moments_of_a_shard(random, shape, each):
    z = random.normal(3, 2, shape).astype(np.float32)
    found, wanted = moments_of(z, each), batch_norm.moments_of(z.astype(np.float64))
    largest, count = np.abs(as_columns(z)).max(axis=0), shape[0] * shape[2]
    assert_within(found[0], wanted.mean, 8 * EPSILON * (1 + largest))
    assert_within(found[1], wanted.squares, 32 * EPSILON * count * (1 + largest**2))


def join(parts: np.ndarray, first: int, each: int, examples: int, places: int) -> np.ndarray:
    count, _, channels = parts.shape
    numbers = [np.int32(n) for n in (channels, first, each, examples, places)]
    args = [parts, np.int32(count), poisoned((2, channels)), *numbers]
    [found] = run("mapnorm", "join_moments", (math.ceil(channels / 256),), args)
    return found


@pytest.mark.parametrize("examples", [1, 3, 8, 9, 20, 64, 61])
@pytest.mark.parametrize("shape", [(3, 4), (300, 1)])
def test_shards_are_merged_by_the_tree(random, shape, examples):
    """Those of neighbours first, whoever has them: the bits of all eight are those of two, four or eight branches."""
    channels, places = shape
    z, each = random.normal(30, 2, (examples, *shape)).astype(np.float32), math.ceil(examples / 8)
    parts, twins = poisoned((8, 2, channels)), [Moments.of_nothing(channels, np.float64) for _ in range(8)]
    for shard in range(math.ceil(examples / each)):
        own = z[shard * each : (shard + 1) * each]
        parts[shard], twins[shard] = moments_of(own, 4), batch_norm.moments_of(own.astype(np.float64))
    found, exact = join(parts, 0, each, examples, places), batch_norm.moments_of(z.astype(np.float64))
    for wanted in (exact, tree_sum(twins)):
        assert wanted.count == examples * places
        assert_within(found[0], wanted.mean, 8 * EPSILON * np.abs(z).max())
        assert_within(found[1], wanted.squares, 32 * EPSILON * wanted.count * np.abs(z).max())
    for ranks in (2, 4, 8):
        own = 8 // ranks
        branches = [join(parts[n : n + own], n, each, examples, places) for n in range(0, 8, own)]
        np.testing.assert_array_equal(join(np.array(branches), 0, each * own, examples, places), found)


def test_another_order_of_shards_gives_other_bits(random):
    parts = random.normal(30, 2, (8, 2, 300)).astype(np.float32) ** 2
    turned = np.concatenate([parts[1:], parts[:1]])
    assert not np.array_equal(join(parts, 0, 1, 8, 1), join(turned, 0, 1, 8, 1))


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_inference_to_the_bit(random, shape, grid):
    z, norm = random.normal(3, 2, shape).astype(np.float32), norm_of(random, shape[1])
    columns = z.swapaxes(1, 2).copy().reshape(-1, shape[1])
    wanted = as_maps(batch_norm.inference(norm, columns), shape)
    args = [z, norm.scale, norm.bias, norm.mean, norm.variance, *rows_of(shape)]
    np.testing.assert_array_equal(run("mapnorm", "map_norm_inference", grid, args)[0], wanted)


@pytest.mark.parametrize("each", EACH)
@pytest.mark.parametrize("shape", SHAPES)
def test_backward(random, shape, each):
    delta, normal = (random.standard_normal(shape, np.float32) for _ in range(2))
    norm, inverse = norm_of(random, shape[1]), random.uniform(0.1, 10, shape[1]).astype(np.float32)
    parts = math.ceil(shape[0] / each)
    normed = batch_norm.Normed(as_columns(normal), inverse.astype(np.float64))
    below, of_scale, of_bias = batch_norm.backward(in_double(norm), normed, as_columns(delta))
    size, size_normal = np.abs(as_columns(delta)).sum(axis=0), np.abs(as_columns(delta * normal)).sum(axis=0)
    rooms = [poisoned((parts, shape[1])) for _ in range(2)]
    args = [delta, normal, *rooms, *sizes(shape, each)]
    sums, products = run("mapnorm", "map_sums", (shape[1], parts), args)
    assert_within(sums.sum(axis=0), of_bias, 16 * EPSILON * size)
    assert_within(products.sum(axis=0), of_scale, 16 * EPSILON * size_normal)
    [alone, none] = run("mapnorm", "map_sums", (shape[1], parts), [delta, None, rooms[0], None, *sizes(shape, each)])
    assert none is None
    np.testing.assert_array_equal(alone, sums)
    gradients = [products.sum(axis=0), sums.sum(axis=0)]
    count = shape[0] * shape[2]
    for grid in GRIDS:
        args = [delta, normal, inverse, norm.scale, *gradients, np.int32(shape[0]), *rows_of(shape)]
        [found] = run("mapnorm", "map_norm_backward", grid, args)
        near = np.abs(as_columns(delta)) + size / count + np.abs(normed.normal) * size_normal / count
        assert_within(as_columns(found), below, 16 * EPSILON * near * norm.scale * inverse)
