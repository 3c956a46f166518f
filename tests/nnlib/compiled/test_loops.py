"""Compiled loops against NumPy."""

import itertools
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

import nnlib
from nnlib.cpu.updates import tabulate_paces
from nnlib.ops.bf16 import to_bf16
from nnlib.optim.hyper import Hyper
from nnlib.optim.rules import RULES, Pace

pytest.importorskip("numba")
from nnlib.compiled import compiler, loops

BOTH = pytest.mark.parametrize("dtype", [np.float32, np.float64])
MARGINS = pytest.mark.parametrize("margin", [(1.0, 0.0, 1.0, 1.0), (1.0, 0.1, 1.0, 1.0), (0.9, 0.3, 30.0, 0.5)])
STATES = {"sgd": 0, "momentum": 1, "nesterov": 1, "adagrad": 1, "rmsprop": 1, "adadelta": 2, "adam": 2, "adamw": 2}
ADAM = ("adam", "adamw")


def tolerance(dtype):
    return 2e-6 if dtype == np.float32 else 1e-12


def same_bits(a, b):
    return a.dtype == b.dtype and np.array_equal(a.view(f"i{a.itemsize}"), b.view(f"i{b.itemsize}"))


class Block:
    """A block of outputs with targets."""

    def __init__(self, dtype, b=37, n=150, density=0.1, spread=3.0, shift=-3.0, seed=0):
        random = np.random.default_rng(seed)
        self.z = (shift + spread * random.standard_normal((b, n))).astype(dtype)
        self.bias = (0.1 * random.standard_normal(n)).astype(dtype)
        self.ones = random.random((b, n)) < density
        columns, self.rows = np.nonzero(self.ones.T)
        self.starts = np.searchsorted(columns, np.arange(n + 1))
        self.values = random.uniform(0.5, 2, len(self.rows)).astype(dtype)
        self.scale = 1 / b

    def expected(self, margin, values=None):
        """Loss and delta, the long way."""
        one_target, zero_target, one_scale, zero_scale = margin
        x = self.z.astype(np.float64) + self.bias
        value = np.zeros(x.shape)
        value.T[self.ones.T] = 1 if values is None else values
        gate = np.log(zero_target / (1 - zero_target)) if zero_target else -np.inf
        one_gate = np.log(one_target / (1 - one_target)) if one_target < 1 else np.inf
        zeros, ones = ~self.ones & (x > gate), self.ones & (x < one_gate)
        a, softplus, negative = 1 / (1 + np.exp(-np.maximum(x, -700))), np.logaddexp(0, x), np.logaddexp(0, -x)
        loss = (zero_scale * softplus)[zeros].sum() + (one_scale * value * negative)[ones].sum()
        return loss, self.scale * (zero_scale * a * zeros + one_scale * value * (a - 1) * ones)

    def run(self, margin, values=None):
        z, gradient = self.z.copy(), np.empty_like(self.bias)
        loss = loops.sigmoid_error(z, self.bias, self.starts, self.rows, values, margin, self.scale, gradient)
        return loss, z, gradient

    def run_gated(self, margin, values=None, room=10**5):
        z, gradient = self.z.copy(), np.empty_like(self.bias)
        starts, columns, delta = np.empty(len(z) + 1, np.int64), np.empty(room, np.int64), np.empty(room, z.dtype)
        arguments = z, self.bias, self.starts, self.rows, values, margin, self.scale, gradient
        loss, count = loops.sigmoid_error_gated(*arguments, starts, columns, delta)
        found = sparse.csr_array((delta[:count], columns[:count], starts), z.shape) if count >= 0 else None
        return loss, found, gradient, z


@BOTH
@MARGINS
@pytest.mark.parametrize("shift", [-8, 0])
@pytest.mark.parametrize("weighted", [False, True])
def test_output_layer(dtype, margin, shift, weighted):
    block = Block(dtype, shift=shift)
    values = block.values if weighted else None
    loss, delta = block.expected(margin, values)
    found_loss, found, gradient = block.run(margin, values)
    assert found_loss == pytest.approx(loss, rel=min(tolerance(dtype), 1e-6))
    np.testing.assert_allclose(found, delta, rtol=tolerance(dtype), atol=tolerance(dtype) * block.scale)
    np.testing.assert_allclose(gradient, delta.sum(axis=0), rtol=1e-5, atol=tolerance(dtype))

    gated_loss, gated, gated_gradient, _ = block.run_gated(margin, values)
    assert gated_loss == pytest.approx(loss, rel=min(tolerance(dtype), 1e-6))
    np.testing.assert_allclose(gated.toarray(), delta, rtol=tolerance(dtype), atol=tolerance(dtype) * block.scale)
    np.testing.assert_allclose(gated_gradient, delta.sum(axis=0), rtol=1e-5, atol=tolerance(dtype))
    if margin[1]:
        assert gated.nnz == np.count_nonzero(found) < gated.shape[0] * gated.shape[1]


@BOTH
def test_gated_gives_up_without_a_trace_when_there_is_no_room(dtype):
    block = Block(dtype)
    loss, found, _, z = block.run_gated((1.0, 0.1, 1.0, 1.0), room=500)
    assert (loss, found) == (0.0, None)
    assert same_bits(z, block.z)


@BOTH
@pytest.mark.parametrize("size", [-1e4, -100, -30, -15, -1e-3, 0, 15, 30, 1e4])
def test_output_layer_far_out(dtype, size):
    block = Block(dtype, spread=0.01, shift=size)
    loss, delta = block.expected((1.0, 0.0, 1.0, 1.0))
    with np.errstate(over="ignore"):
        found_loss, found, _ = block.run((1.0, 0.0, 1.0, 1.0))
    assert found_loss == pytest.approx(loss, rel=1e-6, abs=1e-30)
    np.testing.assert_allclose(found, delta, rtol=2e-6, atol=1e-7 * block.scale)


@BOTH
@MARGINS
@pytest.mark.parametrize("one", [False, True])
def test_nan_is_seen(dtype, margin, one):
    block = Block(dtype)
    place = tuple(np.argwhere(block.ones == one)[0])
    block.z[place] = np.nan
    assert np.isnan(block.run(margin)[0])
    assert np.isnan(block.run_gated(margin)[0])
    block.z[place] = np.inf
    assert np.isnan(loss := block.run(margin)[0]) or loss == np.inf or one


@BOTH
def test_nothing_to_do(dtype):
    block = Block(dtype, density=0)
    assert block.run((1.0, 0.999, 1.0, 1.0))[0] == pytest.approx(block.expected((1.0, 0.999, 1.0, 1.0))[0])
    empty = Block(dtype, b=3, n=0)
    assert empty.run((1.0, 0.0, 1.0, 1.0))[0] == 0


@BOTH
@pytest.mark.parametrize("entries", [0, 1, 3, 4, 5, 60])
def test_sums_of_rows(dtype, entries):
    random = np.random.default_rng(entries)
    x = sparse.random_array((9, 70), density=entries / 70, format="csr", dtype=dtype, rng=random)
    w, delta = random.standard_normal((70, 33)).astype(dtype), random.standard_normal((9, 33)).astype(dtype)
    close = {"rtol": tolerance(dtype), "atol": 10 * tolerance(dtype)}
    ones = sparse.csr_array((np.ones_like(x.data), x.indices, x.indptr), x.shape)
    out = np.empty((9, 33), dtype)
    for values, matrix in ((x.data, x), (None, ones)):
        loops.gather(x.indptr, x.indices, values, w, out)
        np.testing.assert_allclose(out, matrix @ w, **close)
        touched, starts, examples, order = loops.transpose(x.indptr, x.indices, 70)
        gradient = np.empty((len(touched), 33), dtype)
        loops.input_gradient(starts, examples, None if values is None else values[order], delta, gradient)
        np.testing.assert_allclose(gradient, (matrix.T @ delta)[touched], **close)
    below = out.copy()
    loops.gated_below(x.indptr, x.indices, x.data, w, below)
    np.testing.assert_allclose(below, out + x @ w, **close)
    gradient = np.empty((70, 33), dtype)
    loops.gated_gradient(x.indptr, x.indices, x.data, delta, gradient)
    np.testing.assert_allclose(gradient, x.T @ delta, **close)


@BOTH
@pytest.mark.parametrize("valued", [True, False])
@pytest.mark.parametrize("shards", [1, 2, 4, 8])
def test_rows_are_summed_by_shard(dtype, valued, shards):
    """Each shard as if it were alone, whatever the number of its entries; shards in a tree, the empty ones left out."""
    lists = [[], [3], [1, 9], [*range(0, 80, 8)], [*range(77)], [5, 6, 7, 8, 9, 10], [0, 1, 4, 8, 9, 16, 17, 24, 32]]
    random, starts = np.random.default_rng(shards), np.cumsum([0, *map(len, lists)]).astype(np.int32)
    units = np.array([unit for row in lists for unit in row], np.int32)
    data = random.normal(size=len(units)).astype(dtype) if valued else np.ones(len(units), dtype)
    x = sparse.csr_array((data, units, starts), shape=(len(lists), 80)).toarray()
    w, out = random.normal(size=(80, 19)).astype(dtype), np.empty((len(lists), 19), dtype)
    loops.gather_shards(starts, units, data if valued else None, w, shards, out)
    np.testing.assert_allclose(out, x @ w, rtol=1e-4 if dtype == np.float32 else 1e-12, atol=1e-5)
    parts = [np.empty_like(out) for _ in range(shards)]
    for shard, part in enumerate(parts):
        alone = sparse.csr_array(np.where(np.arange(80) % shards == shard, x, 0))
        loops.gather_shards(alone.indptr, alone.indices, alone.data, w, 1, part)
    while len(parts) > 1:
        parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    assert same_bits(out, parts[0])


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), max_size=9), max_size=6))
def test_columns_of_a_batch(lists):
    starts = np.cumsum([0, *map(len, lists)])
    indices = np.array([unit for row in lists for unit in row], np.int32)
    first, rows, order = loops.to_columns(starts, indices, 7)
    found = [list(zip(rows[a:b], order[a:b], strict=True)) for a, b in itertools.pairwise(first)]
    entries = [(unit, row) for row, units in enumerate(lists) for unit in units]
    assert found == [[(row, at) for at, (u, row) in enumerate(entries) if u == unit] for unit in range(7)]
    touched, compact, rows, order = loops.transpose(starts, indices, 7)
    assert list(touched) == sorted(set(indices))
    assert list(indices[order]) == list(np.repeat(touched, np.diff(compact)))


def apply(name, w, g, states, rate, step, l2, l1):
    """One step with the compiled rule."""
    numbers = {"sgd": (rate,), "adagrad": (rate,), "adadelta": (0.9,)}.get(name, (rate, 0.9))
    numbers = (rate, step, 0.9, 0.999, 1e-8) if name in ADAM else numbers
    getattr(loops, name)(w, g, *states, *numbers, l2, l1)


def apply_numpy(name, w, g, states, rate, step, l2, l1):
    """The same with NumPy's."""
    g, tmp = g.copy(), np.empty_like(w)
    if name == "adamw":
        w -= w * (rate * l2)
    elif l2:
        g += w * l2
    if l1:
        g += np.sign(w) * l1
    RULES[name].update(w, g, states, Pace(step, rate, 0.9, 0.999), tmp)


def replay(name, w, states, rows, last, step, rates, l2, l1, g):
    numbers = {"sgd": (rates,), "adagrad": (rates,), "adadelta": (0.9,)}.get(name, (rates, 0.9))
    numbers = (tabulate_paces(Hyper(name, 0.9, 0.999), rates), 0.9, 0.999, 1e-8) if name in ADAM else numbers
    getattr(loops, f"replay_{name}")(w, *states, rows, last, step, *numbers, l2, l1, g)


@BOTH
@pytest.mark.parametrize(("l2", "l1"), [(0.0, 0.0), (1e-2, 0.0), (0.0, 1e-3), (1e-2, 1e-3)])
@pytest.mark.parametrize("name", STATES)
def test_rules_give_the_bits_of_numpy(name, dtype, l2, l1):
    random = np.random.default_rng(3)
    w, g = random.standard_normal((2, 1003)).astype(dtype)
    w[::9], g[::7] = 0, 0
    states = [np.abs(random.standard_normal(1003)).astype(dtype) for _ in range(STATES[name])]
    theirs = [array.copy() for array in (w, *states)]
    for step in (1, 2, 3):
        apply(name, w, g, states, 0.01, step, l2, l1)
        apply_numpy(name, theirs[0], g, theirs[1:], 0.01, step, l2, l1)
    assert all(np.array_equal(a, b) for a, b in zip((w, *states), theirs, strict=True))


def check_replay(name, dtype, lags, rates, l2=0.0, l1=0.0, last_gradient=False, size=1.0, w_scale=1.0, columns=19):
    """Replay rows of different lags, and compare with one step after the other."""
    step, random = len(rates) - 1, np.random.default_rng(len(rates))
    shape = (len(lags), columns)
    w = (w_scale * random.standard_normal(shape)).astype(dtype)
    states = [(size * random.standard_normal(shape)).astype(dtype) for _ in range(STATES[name])]
    for state in states[1:] if name in ADAM else states if name not in ("momentum", "nesterov") else []:
        np.square(state, out=state)
    g = (size * random.standard_normal(shape)).astype(dtype)
    w[:, 0], states = 0, states
    last = step - np.array(lags)
    theirs = [array.copy() for array in (w, *states)]
    for row, at in enumerate(last):
        for t in range(at + 1, step + 1):
            gradient = g[row] if t == step and last_gradient else np.zeros(columns, dtype)
            apply(name, theirs[0][row], gradient, [state[row] for state in theirs[1:]], rates[t], t, l2, l1)
    rows = np.arange(len(lags))[::-1].copy()
    given_gradient = g[rows] if last_gradient else w[:0]
    replay(name, w, states, rows, last, step, np.asarray(rates, float), l2, l1, given_gradient)
    assert np.all(last == step)
    assert all(same_bits(a, b) for a, b in zip((w, *states), theirs, strict=True))


@BOTH
@pytest.mark.parametrize("name", STATES)
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_replay_gives_the_bits_of_every_step(name, dtype, data):
    steps = data.draw(st.integers(1, 60))
    rates = data.draw(st.lists(st.floats(0, 0.5), min_size=steps + 1, max_size=steps + 1))
    lags = data.draw(st.lists(st.integers(1, steps), min_size=1, max_size=4))
    l2, l1 = data.draw(st.sampled_from([0.0, 0.01])), data.draw(st.sampled_from([0.0, 0.01]))
    size = data.draw(st.sampled_from([1.0, 1e-3, 1e-12, 1e-30]))
    check_replay(name, dtype, lags, rates, l2, l1, data.draw(st.booleans()), size)


@BOTH
@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize(("size", "w_scale"), [(1.0, 1.0), (1e-25, 1.0), (1e-20, 1e-25)])
def test_long_replays_end_at_rest_or_in_subnormal_numbers(name, dtype, size, w_scale):
    check_replay(name, dtype, [2000, 1300, 37], np.full(2001, 1e-3), size=size, w_scale=w_scale)


def test_a_rate_that_grows_wakes_weights_at_rest():
    check_replay("adam", np.float32, [1200], [1e-9] * 300 + [0.5] * 901, columns=40)


def best_of(scores, seen, k):
    """The long way of `loops.top`."""
    legal = [item for item in np.flatnonzero(scores > -np.inf) if item not in seen]
    chosen = sorted(legal, key=lambda item: (-scores[item], item))[:k]
    missing = k - len(chosen)
    return chosen + [-1] * missing, [*scores[chosen], *[-np.inf] * missing]


@BOTH
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_top(dtype, data):
    numbers = st.sampled_from([0.0, -0.0, 1.0, 2.0, -3.0, np.nan, np.inf, -np.inf]) | st.floats(width=16)
    items, k = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 12))
    scores = data.draw(arrays(dtype, (2, items), elements=numbers, fill=numbers))
    seen = data.draw(st.lists(st.lists(st.integers(0, items - 1), max_size=40), min_size=2, max_size=2))
    before = scores.copy()
    found, best = np.empty((2, k), np.int64), np.empty((2, k), dtype)
    flat = np.array([item for row in seen for item in row], np.int32)
    loops.top(scores, np.array([0, len(seen[0]), len(flat)]), flat, k, found, best)
    for row in range(2):
        expected = best_of(scores[row], set(seen[row]), k)
        assert list(found[row]) == expected[0]
        assert np.array_equal(best[row], expected[1])
    assert same_bits(scores, before)


def test_top_of_many():
    scores = np.random.default_rng(0).standard_normal((3, 27278)).astype(np.float32)
    found, best = np.empty((3, 100), np.int64), np.empty((3, 100), np.float32)
    loops.top(scores, np.zeros(4, np.int64), np.zeros(0, np.int32), 100, found, best)
    assert np.array_equal(found, np.argsort(-scores, axis=1, kind="stable")[:, :100])
    assert np.array_equal(best, np.take_along_axis(scores, found, axis=1))


def test_two_threads_give_the_same_bits():
    block = Block(np.float32, b=256, n=1000)
    w = np.random.default_rng(1).standard_normal((1000, 64), dtype=np.float32)

    def work(_):
        loss, delta, gradient = block.run((1.0, 0.1, 1.0, 1.0))
        states = w.copy(), np.zeros_like(w), np.zeros_like(w)
        last, rows = np.zeros(1000, np.int64), np.arange(1000)
        loops.replay_adam(
            *states, rows, last, 50, tabulate_paces(Hyper(), np.full(51, 1e-3)), 0.9, 0.999, 1e-8, 0.01, 0.0, w[:0]
        )
        found, best = np.empty((256, 10), np.int64), np.empty((256, 10), np.float32)
        loops.top(delta, np.zeros(257, np.int64), np.zeros(0, np.int32), 10, found, best)
        return loss, delta.tobytes(), gradient.tobytes(), states[0].tobytes(), found.tobytes()

    with ThreadPoolExecutor(2) as pool:
        first, *others = pool.map(work, range(6))
    assert all(other == first for other in others)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_loops_from_a_zip(tmp_path, kept):
    """As jobs carry them; the compiled code is kept where there is a place for it."""
    package = Path(nnlib.__file__).parent
    code = "import numpy as np; from nnlib.compiled import loops; print(loops.__file__)\n"
    code += "print(loops.to_columns(np.array([0, 2]), np.array([1, 0], np.int32), 3)[0])\n"
    with zipfile.ZipFile(tmp_path / "nnlib.pyz", "w") as archive:
        for path in package.rglob("*.py"):
            archive.write(path, f"nnlib/{path.relative_to(package)}")
        archive.writestr("__main__.py", code)
    caches = tmp_path / "caches"
    if not kept:
        caches.write_text("a file, so that no folder can be made in it")
    environment = os.environ | {"XDG_CACHE_HOME": str(caches), "NUMBA_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, tmp_path / "nnlib.pyz"], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[1] == "[0 1 2 2]"
    assert str(tmp_path) in done.stdout
    assert (len(list(caches.rglob("*.nbc"))) == 1) is kept


def test_each_version_of_numba_keeps_code_of_its_own(monkeypatch):
    """It forgets what another one has kept: two environments of one checkout would compile for ever."""
    monkeypatch.setattr(compiler, "numba_version", "0.68.0.other")
    assert compiler._stamp() != compiler.STAMP
    assert loops.to_columns.__qualname__.endswith(compiler.STAMP)


@given(arrays(np.float32, (4, 7), elements=st.floats(width=32)))
def test_rounding_to_bfloat16(x):
    for part in (x, x[1:3, 2:5]):  # whole, and columns of a larger matrix
        numbers = np.ascontiguousarray(x).view(np.uint32).reshape(-1)[0 if part is x else 7 + 2 :]
        found = np.empty(part.shape, np.uint16)
        loops.to_bf16(numbers, 7, found)
        np.testing.assert_array_equal(found, to_bf16(part))


@BOTH
@pytest.mark.parametrize("low", [0, 1, 5])
def test_weights_taken_back_are_what_they_were(dtype, low):
    """Wherever lines of the cache begin and end, and what was just written among them."""
    numbers = np.arange(7000, dtype=dtype)
    rows = numbers[low : low + 6000].reshape(60, 100)
    rows[30:] += 1
    loops.take_back(rows[20:50])
    expected = np.arange(7000)
    expected[low + 3000 : low + 6000] += 1
    assert np.array_equal(numbers, expected)
