"""The best items of each row, exactly as ranking.top finds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.data.rows import Csr, from_rows
from nnlib.ops import ranking
from tests.kernels.host import poisoned, run

INFINITY = np.float32(np.inf)


@pytest.fixture(autouse=True)
def twin_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "LOOPS", None)


def batch_of(excluded: Csr) -> np.ndarray:
    """Return the sections 0, starts, and 1, items, behind a header of three words."""
    starts, items = (array.astype(np.int32) for array in (excluded.indptr, excluded.indices))
    return np.concatenate([np.array([3, 3 + len(starts), 0], np.int32), starts, items])


def top(scores: np.ndarray, k: int, excluded: Csr | None = None, more: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return what the kernel finds in rows that are followed by `more` floats of others."""
    b, n = scores.shape
    wide = np.pad(scores, ((0, 0), (0, more)), constant_values=INFINITY)
    batch, starts, items = (None, -1, -1) if excluded is None else (batch_of(excluded), 0, 1)
    numbers = map(np.int32, (b, n, n + more))
    sections = [batch, np.int32(starts), np.int32(items), np.int32(k)]
    args = [wide, *numbers, *sections, poisoned((b, k), np.int32), poisoned((b, k))]
    _, ranked, values = run("top", "top", (max(b, 1),), args)
    return ranked, values


def check(scores: np.ndarray, k: int, rows: Sequence[Sequence[int]] | None = None, more: int = 0) -> None:
    excluded = None if rows is None else from_rows([list(row) for row in rows], scores.shape[1])
    wanted, best = ranking.top(scores.copy(), k, excluded)
    ranked, values = top(scores, k, excluded, more)
    np.testing.assert_array_equal(ranked, wanted)
    assert values.tobytes() == best.tobytes()  # -0.0 is given back as it is


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("b", [0, 1, 2, 31, 32, 33])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 257, 1025])
def test_sizes(random, b, n):
    scores = random.normal(0, 1, (b, n)).astype(np.float32)
    for k in {1, (n + 1) // 2, min(n, 1024)}:
        check(scores, k, more=5)


@pytest.mark.parametrize("n", [2048, 2049, 5000, 27278, 60_000])
def test_rows_that_do_not_fit_into_shared_memory(random, n):
    scores = random.normal(0, 1, (2, n)).astype(np.float32)
    for k in (1, 10, 100, 1023, 1024):
        check(scores, k, [random.choice(n, 30, replace=False), []])


def test_a_million_items(random):
    scores = random.integers(0, 100, (1, (1 << 20) + 3)).astype(np.float32)
    check(scores, 1000, [range(0, 1 << 20, 3)])


@pytest.mark.parametrize("n", [257, 2100, 9000])
@pytest.mark.parametrize("kinds", [1, 2, 7, 300])
def test_ties(random, n, kinds):
    scores = random.integers(-(kinds // 2), kinds // 2 + 1, (3, n)).astype(np.float32) / 8
    for k in (1, 5, 256, 1024):
        check(scores, min(k, n), [random.choice(n, n // 3, replace=False), [0], []])


@pytest.mark.parametrize("score", [0.0, -0.0, 1.0, -2.5, 3e38, -3e38, 1e-45, np.inf])
def test_all_equal(score):
    scores = np.full((2, 5000), score, np.float32)
    for k in (1, 300, 1024):
        check(scores, k, [[], range(0, 3000, 2)])


def test_both_zeros_are_one_score(random):
    scores = np.where(random.random((2, 4000)) < 0.5, np.float32(0), np.float32(-0.0))
    check(scores, 20)
    check(scores, 1024)
    scores[0, 7:3000:7], scores[0, 5:3000:5] = 1e-45, -1e-45
    check(scores, 500)


def test_scores_that_differ_in_their_last_bits_only(random):
    scores = (np.uint32(0x3F800000) + random.integers(0, 3, (2, 8000)).astype(np.uint32)).view(np.float32)
    for k in (1, 100, 1024):
        check(scores, k)
        check(-scores, k)


@pytest.mark.parametrize("best", [1, 300, 1023])
@pytest.mark.parametrize("bar", [0.0, -3.0, 1.0])
def test_few_above_many_ties(random, best, bar):
    scores = np.full((2, 9000), bar, np.float32)
    scores[:, 6000:] -= random.uniform(0, 1e-3, 3000).astype(np.float32)
    scores[:, :best] += random.uniform(1e-6, 2, best).astype(np.float32)
    random.shuffle(scores, axis=1)
    for k in (best, best + 1, 1024):
        check(scores, k)


@pytest.mark.parametrize("n", [40, 6000])
def test_too_few_left(random, n):
    scores = random.normal(0, 1, (4, n)).astype(np.float32)
    everything = random.permutation(n)
    check(scores, 33, [everything, everything[1:], everything[32:], everything[33:]])


@pytest.mark.parametrize("n", [40, 6000])
def test_minus_infinity_has_no_rank(random, n):
    scores = np.full((3, n), -INFINITY)
    scores[1, 17] = -3e38
    scores[2, random.choice(n, 20, replace=False)] = INFINITY
    check(scores, 30)
    check(scores, n if n < 1024 else 1024, [[], [17], []])


def test_an_item_may_be_excluded_twice():
    twice = Csr(np.array([0, 3]), np.array([1, 1, 2], np.int32), 3)
    ranked, _ = top(np.array([[1, 5, 2]], np.float32), 3, twice)
    assert ranked.tolist() == [[0, -1, -1]]


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_any_bits(data, n, seed):
    random = np.random.default_rng(seed)
    bits = random.integers(0, 2**32, (1, n), dtype=np.uint32) & np.uint32(data.draw(st.integers(0, 2**32 - 1)))
    scores = np.nan_to_num(bits.view(np.float32), nan=0, posinf=np.inf, neginf=-np.inf)
    excluded = data.draw(st.lists(st.integers(0, n - 1), max_size=5, unique=True))
    check(scores, min(n, data.draw(st.integers(1, 1024))), [excluded])
