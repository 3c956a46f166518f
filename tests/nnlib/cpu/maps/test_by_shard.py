"""Sums by shard: those of the tree, also where shards have no examples."""

import numpy as np
import pytest

from nnlib.cpu.maps.by_shard import by_shard, weight_gradient
from nnlib.cpu.products import FLOAT32
from nnlib.shards.tree import tree_sum

RANDOM = np.random.default_rng(5)
X, DELTA = (RANDOM.normal(size=(20, n)).astype(np.float32) for n in (13, 7))
SHARDS = [slice(n, min(n + 3, 20)) for n in range(0, 24, 3)]  # the seventh has two examples, the last none


def test_a_weight_gradient_is_the_trees_sum_of_the_shards():
    wanted = tree_sum([np.matmul(X[some].T, DELTA[some]) for some in SHARDS])
    found = weight_gradient(FLOAT32, X, DELTA, SHARDS, np.float32)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(found, X.astype(float).T @ DELTA, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(weight_gradient(FLOAT32, X, DELTA, (), np.float32), X.T @ DELTA)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_any_sum_is_the_trees(count):
    shards = SHARDS[-count - 1 : -1] if count < 8 else SHARDS
    wanted = tree_sum([X[some].sum(axis=0) for some in shards])
    np.testing.assert_array_equal(by_shard(lambda some: X[some].sum(axis=0), shards), wanted)
