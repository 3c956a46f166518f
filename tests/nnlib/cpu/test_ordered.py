"""Compiled products of float32 numbers: a sum has the same bits whatever rows and columns there are, by shards also."""

import itertools

import numpy as np
import pytest

from nnlib.compiled.select import LOOPS
from nnlib.cpu.products import FLOAT32, Ordered, products_of
from nnlib.shards.tree import SHARDS, tree_sum
from tests.nnlib.cpu.test_products import forms

pytestmark = pytest.mark.skipif(LOOPS is None or not LOOPS.MASKED, reason="this processor has no AVX-512, or no Numba")
SIZES = [(1, 1, 1), (7, 5, 3), (8, 16, 48), (20, 33, 49), (45, 100, 17), (64, 31, 96), (9, 256, 80)]
ORDERED = Ordered()


def random(n, m, seed=1):
    return np.random.default_rng(seed).normal(size=(n, m)).astype(np.float32)


def product(a, b, out=None):
    return ORDERED.multiply(ORDERED.factor(a), ORDERED.factor(b), out)


def in_order(a, b):
    """Each sum in the order of k, rounded once for each product and sum, which float64 holds before that."""
    found = np.zeros((len(a), b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        found = (found + a[:, k : k + 1].astype(float) * b[k].astype(float)).astype(np.float32)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_a_sum_is_that_of_its_products_in_their_order(size):
    n, k, m = size
    left, right = np.round(random(n, k) * 64) / 64, np.round(random(k, m, 2) * 64) / 64  # no product is rounded twice
    wanted = in_order(left, right)
    for a, b in itertools.product(forms_of(left), forms_of(right)):
        np.testing.assert_array_equal(product(a, b), wanted)
        np.testing.assert_array_equal(ORDERED.multiply(ORDERED.factor(b).T, ORDERED.factor(a).T), wanted.T)


def forms_of(x):
    """A matrix by rows, by columns, and as a part of larger ones of either kind."""
    for form in forms(np.random.default_rng(3), *x.shape):
        form[...] = x
        yield form


@pytest.mark.parametrize("size", SIZES)
def test_rows_and_columns_have_the_same_bits_alone(size):
    n, k, m = size
    a, b = random(n, k), random(k, m, 2)
    whole = product(a, b)
    for rows, columns in itertools.product((1, 3, 8, 9), (1, 5, 16, 48)):
        np.testing.assert_array_equal(product(a[:rows], b[:, :columns]), whole[:rows, :columns])
        np.testing.assert_array_equal(product(a[-rows:], b[:, -columns:]), whole[-rows:, -columns:])


@pytest.mark.parametrize("size", SIZES)
def test_shards_are_added_by_the_tree(size):
    n, k, m = size
    a, b, each = random(n, k), random(k, m, 2), -(-k // SHARDS)
    ends = [min(k, each * (shard + 1)) for shard in range(SHARDS)]
    for count in (1, 2, 4, 8):
        low = 0 if count == SHARDS else ends[0]
        of = ends if count == SHARDS else ends[1 : count + 1]
        here = [end - low for end in of]
        left, right = a[:, low : of[-1]], b[low : of[-1]]
        parts = [product(left[:, first:last], right[first:last]) for first, last in itertools.pairwise([0, *here])]
        found = ORDERED.multiply_shards(ORDERED.factor(left), ORDERED.factor(right), here)
        np.testing.assert_array_equal(found, tree_sum(parts))


@pytest.mark.parametrize("shape", [(0, 4, 3), (4, 0, 3), (4, 3, 0)])
def test_nothing_is_multiplied(shape):
    n, k, m = shape
    np.testing.assert_array_equal(product(random(n, k), random(k, m), np.ones((n, m), np.float32)), np.zeros((n, m)))


def test_nothing_is_written_beside_a_product():
    wide = np.full((20, 60), 7, np.float32)
    product(random(9, 30), random(30, 50), wide[3:12, 4:54])
    assert (wide[:3] == 7).all() and (wide[12:] == 7).all() and (wide[:, :4] == 7).all() and (wide[:, 54:] == 7).all()


def test_factors_that_do_not_fit_are_refused():
    for a, b, out in (((4, 5), (6, 3), (4, 3)), ((4, 5), (5, 3), (4, 4))):
        with pytest.raises(AssertionError, match="where arrays end"):
            product(random(*a), random(*b), np.zeros(out, np.float32))
    with pytest.raises(AssertionError, match="where arrays end"):
        ORDERED.multiply_shards(ORDERED.factor(random(4, 5)), ORDERED.factor(random(5, 3)), [2, 4])


def test_batches_that_are_cut_have_them_in_float32_alone():
    assert isinstance(products_of("float32", np.float32, True), Ordered)
    assert products_of("float32", np.float32) is products_of("float32", np.float64, True) is FLOAT32
