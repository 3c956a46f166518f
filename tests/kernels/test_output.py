"""The error of output layers against losses.py: every error function, activation and form of targets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import sparse

from nnlib.ops.activations import ROWWISE
from nnlib.ops.losses import CROSS_ENTROPIES, MARGINS, Error, block_error, error_of, softmax_normalizer, softmax_part
from nnlib.ops.targets import Targets, targets_of
from nnlib.spec.topology import OUTPUTS
from nnlib.spec.types import Activation, Boost, ErrorFunction, Marginal, NetworkSpec
from tests.kernels.host import poisoned, run
from tests.kernels.test_activation import DRAWN, EPSILON, KINDS, kept, layer_of, unit_of

ALONE, COMPAT, LOSS_ONLY, DROPPED, BY_VALUE = (1 << bit for bit in range(5))
ERRORS = {kind: np.int32(number) for number, kind in enumerate(ErrorFunction)}
FORMS = ["boolean", "analog", "alone", "alone boolean", "dense"]
TILE = 1024
MARGIN = Marginal(one_target=0.75, zero_target=0.25, one_scale=3.0, zero_scale=0.5)
LEGAL = [
    (kind, activation)
    for kind in ErrorFunction
    for activation in OUTPUTS.get(kind, [one for one in Activation if one not in ROWWISE])
]
PAIRS = pytest.mark.parametrize(("kind", "activation"), LEGAL)


@dataclass(frozen=True)
class Case:
    """One output layer in one batch; z holds the sums of a piece of `width` units, `low` and those after it."""

    error: Error
    z: np.ndarray
    bias: np.ndarray | None
    targets: Targets
    low: int = 0
    dropped: bool = False
    before: int = 0  # examples that are not here, of which the mask has rows, too
    gap: int = 0

    @property
    def softmax(self) -> bool:
        return self.error.softmax


def error_like(kind, activation, boost=None, compat=False, dropout=0.0, margin=MARGIN):
    layer = layer_of(activation, dropout)
    spec = NetworkSpec((layer,), error=kind, marginal=margin, boost=boost or Boost(), compat=compat)
    return error_of(spec, layer)


def targets_like(random, form, b, width, weighted, density=0.3, hinge=False):
    """Return targets of a layer; analog ones are positive or negative, those of a Hinge -1 or 1."""
    stored = random.random((b, width)) < density
    stored[1:2] = False  # an example without entries
    values = (random.uniform(0.2, 1.2, (b, width)) * random.choice([-1, 1], (b, width))).astype(np.float32)
    if hinge:
        values = np.sign(values)
    weights = random.uniform(0.5, 2, (b, 1)).astype(np.float32) if weighted else None
    if form == "dense":
        return targets_of(values if hinge else values * stored, False, weights)
    boolean = "boolean" in form
    rows, columns = np.nonzero(stored)
    entries = np.ones(len(rows), np.float32) if boolean else values[stored]
    if form == "alone":
        entries[::3] = 0  # zeros that count
    matrix = sparse.csr_array((entries, (rows, columns)), shape=(b, width))
    return targets_of(matrix, boolean, weights, "alone" in form)


def error_constants(error, b):
    margin, boost = error.margin, error.boost
    numbers = [margin.one_target, margin.zero_target, margin.one_scale, margin.zero_scale, boost.one, boost.zero]
    return np.array([*numbers, 1 / max(b, 1), 0], np.float32)


class Sections:
    """A batch as kernels/README.md lays it out."""

    def __init__(self):
        self.header, self.words = [], []

    def add(self, values, dtype=np.float32) -> np.int32:
        if values is None:
            return np.int32(-1)
        self.header.append(sum(map(len, self.words)))
        self.words.append(np.ascontiguousarray(values, dtype).reshape(-1).view(np.int32))
        return np.int32(len(self.header) - 1)

    def batch(self):
        return np.concatenate([np.array(self.header, np.int32) + len(self.header), *self.words]).astype(np.int32)


def launch(case, flags=0, normalizer=None, z=None):
    """Return what the kernel makes of the sums, and the parts of the loss."""
    b, n = case.z.shape
    error, targets, low = case.error, case.targets, np.int32(case.low)
    rows = poisoned((b, n + case.gap))
    rows[:, :n] = case.z if z is None else z
    alone = targets.alone or targets.columns is None  # which is for sparse targets only
    flags |= ALONE * alone | COMPAT * error.compat | DROPPED * case.dropped
    sections = Sections()
    if targets.columns is None:
        name, places = "output_dense", [sections.add(targets.dense), np.int32(targets.dense.shape[1])]
    else:
        name, matrix = "output_sparse", targets.columns.tocsr()
        matrix.sort_indices()
        places = [sections.add(matrix.indptr, np.int32), sections.add(matrix.indices, np.int32)]
        places.append(sections.add(None if targets.boolean else matrix.data))
    places += [sections.add(targets.weights), sections.add(targets.shares if case.softmax else None)]
    activation = KINDS[Activation.LINEAR if flags & BY_VALUE else error.layer.activation]
    kinds = [ERRORS[error.kind], activation, np.int32(flags), unit_of(error.layer), error_constants(error, b)]
    grid = max(b, 1), max(-(-n // TILE), 1)
    sizes = [np.int32(b), np.int32(n), np.int32(n + case.gap), low]
    parts = poisoned(grid[0] * grid[1], np.float64)
    args = [
        rows,
        case.bias,
        *sizes,
        sections.batch(),
        *places,
        normalizer,
        *kinds,
        *DRAWN,
        np.int64(case.before * n),
        parts,
    ]
    delta, parts = run("output", name, grid, args)
    assert np.array_equal(delta[:, n:].view(np.int32), rows[:, n:].view(np.int32))
    return delta[:, :n], parts


def sums_of(case):
    return case.z if case.bias is None else case.z + case.bias


def twin(case, z, normalizer):
    """Return loss and delta in the precision of z, and how large the numbers are that each is made of."""
    error, targets, wide = case.error, case.targets, z.dtype
    high = case.low + z.shape[1]
    b, n = z.shape
    keep = kept((case.before + b, n), error.layer.dropout)[case.before :] if case.dropped else None
    weights, shares = (None if one is None else one.astype(wide) for one in (targets.weights, targets.shares))
    target = targets.block(case.low, high, error.softmax)
    if targets.columns is None:
        target = target.astype(wide)
    elif target.values is not None:
        target = replace(target, values=target.values.astype(wide))
    delta = z.copy()
    loss = block_error(error, delta, target, weights, normalizer, shares, keep)
    return loss, delta / len(z)


def sizes_of(case, z, normalizer):
    """Return how large the numbers are that the loss and delta of each unit are sums of."""
    error, targets = case.error, case.targets
    matrix = targets.dense if targets.columns is None else targets.columns.toarray()
    size = 2 + np.abs(z) + np.abs(matrix[:, case.low : case.low + z.shape[1]])
    if error.softmax:
        size = size + np.abs(normalizer)
    scale = max(1, error.margin.one_scale, error.margin.zero_scale) * max(1, error.boost.one, error.boost.zero)
    scale *= 1 if targets.weights is None else targets.weights
    squares = error.kind in (ErrorFunction.L2, ErrorFunction.L2_HINGE)
    slope = 2 * unit_of(error.layer)[3]  # at most, of the activation and of dropout
    return (size * size if squares else size) * scale, size * scale * slope / len(z)


def normalizer_of(case, z):
    return softmax_normalizer([softmax_part(z)]) if case.softmax else None


def away_from_gates(case):
    """Return the case with sums whose rounding cannot open or shut a gate."""
    if case.error.kind not in MARGINS:
        return case
    z = case.z.copy()
    for _ in range(20):
        now = z if case.bias is None else z + case.bias
        a = np.exp(now - normalizer_of(case, now)) if case.softmax else 1 / (1 + np.exp(-now))
        gates = case.error.margin.one_target, case.error.margin.zero_target
        near = np.logical_or(*(np.abs(a - gate) < 1e-4 * gate * (gate < 1) for gate in gates))
        if not near.any():
            return replace(case, z=z)
        z[near] += np.float32(0.01)
    raise AssertionError("the sums stay near a gate")


def check(case):
    """Compare with the twin in float64."""
    case = away_from_gates(case)
    z = sums_of(case).astype(np.float64)
    normalizer = normalizer_of(case, z)
    given = None if normalizer is None else normalizer.astype(np.float32)[:, 0].copy()
    loss, delta = twin(case, z, normalizer)
    loss_sizes, delta_sizes = sizes_of(case, z, normalizer)
    found, parts = launch(case, normalizer=given)
    # exp, log and tanh are wrong by two digits at most, and a handful of operations round once each
    assert np.all(np.abs(found - delta) <= 8 * EPSILON * delta_sizes)
    assert abs(parts.sum() - loss) <= 8 * EPSILON * loss_sizes.sum()


@pytest.mark.parametrize("form", FORMS)
@PAIRS
def test_every_error(kind, activation, form):
    droppable = not (activation is Activation.SOFTMAX and kind in CROSS_ENTROPIES)
    options = itertools.product([False, True], [False, True], [False, True] if droppable else [False])
    for number, (weighted, compat, dropped) in enumerate(options):
        random = np.random.default_rng(number)
        boost = Boost(2.0, 0.25) if weighted != dropped else None
        error = error_like(kind, activation, boost, compat, 0.25 if dropped else 0.0)
        targets = targets_like(random, form, 3, 33, weighted, hinge=kind is ErrorFunction.HINGE)
        z, bias = random.normal(0, 2, (3, 33)).astype(np.float32), random.normal(0, 1, 33).astype(np.float32)
        check(Case(error, z, bias if number % 3 else None, targets, dropped=dropped, gap=number % 2, before=number % 3))


@pytest.mark.parametrize("form", FORMS)
@PAIRS
def test_the_loss_alone(kind, activation, form):
    targets = targets_like(np.random.default_rng(9), form, 2, 9, False, hinge=kind is ErrorFunction.HINGE)
    z = np.random.default_rng(10).normal(0, 2, (2, 9)).astype(np.float32)
    case = Case(error_like(kind, activation), z, None, targets)
    normalizer = np.ones(2, np.float32) if case.softmax else None
    untouched, parts = launch(case, LOSS_ONLY, normalizer)
    np.testing.assert_array_equal(untouched, z)
    np.testing.assert_array_equal(parts, launch(case, normalizer=normalizer)[1])


SAMPLES = [
    (ErrorFunction.DATA_MARGINAL, Activation.SIGMOID, "analog"),
    (ErrorFunction.CROSS_ENTROPY, Activation.SIGMOID, "boolean"),
    (ErrorFunction.CROSS_ENTROPY, Activation.SOFTMAX, "boolean"),
    (ErrorFunction.MARGINAL, Activation.SOFTMAX, "analog"),
    (ErrorFunction.L2, Activation.TANH, "dense"),
]


@pytest.mark.parametrize(("kind", "activation", "form"), SAMPLES)
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 255, 257, 1023, 1024, 1025, 2049])
def test_every_size_and_piece(kind, activation, form, n):
    for b, low, gap in ((1, 0, 0), (3, 7, 5), (2, 1030, 1)):
        random = np.random.default_rng(n + b)
        targets = targets_like(random, form, b, low + n + 9, True)
        z, bias = random.normal(0, 2, (b, n)).astype(np.float32), random.normal(0, 1, n).astype(np.float32)
        check(Case(error_like(kind, activation), z, bias, targets, low, gap=gap))


@pytest.mark.parametrize("density", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("low", [0, 3, 2500, 3001, 3951])
def test_entries_before_in_and_behind_a_piece(density, low):
    """Rows with so many entries that they are searched, and rows with so few that they are looked through."""
    random = np.random.default_rng(low)
    targets = targets_like(random, "analog", 2, 6000, False, density)
    z = random.normal(0, 2, (2, 2049)).astype(np.float32)
    check(Case(error_like(ErrorFunction.DATA_MARGINAL, Activation.SIGMOID), z, None, targets, low))


@pytest.mark.parametrize(("kind", "activation", "form"), [SAMPLES[0], SAMPLES[4]])
def test_dropout_of_a_wide_layer(kind, activation, form):
    random = np.random.default_rng(4)
    targets, z = targets_like(random, form, 2, 2100, False), random.normal(0, 2, (2, 2100)).astype(np.float32)
    check(Case(error_like(kind, activation, dropout=0.5), z, None, targets, dropped=True, gap=4, before=3))


def test_pieces_give_the_bits_of_the_whole():
    random = np.random.default_rng(5)
    error = error_like(ErrorFunction.MARGINAL, Activation.SIGMOID)
    targets, z = targets_like(random, "boolean", 2, 1500, True), random.normal(0, 2, (2, 1500)).astype(np.float32)
    whole, _ = launch(Case(error, z, None, targets))
    pieces = [launch(Case(error, z[:, low : low + 700].copy(), None, targets, low))[0] for low in (0, 700, 1400)]
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole)


@pytest.mark.parametrize("margin", [Marginal(1, 0, 2, 0.5), Marginal(1, 0.25, 1, 1), Marginal(0.75, 0, 1, 1)])
@pytest.mark.parametrize("activation", [Activation.SIGMOID, Activation.SOFTMAX])
@pytest.mark.parametrize("form", FORMS)
def test_open_gates(form, activation, margin):
    random = np.random.default_rng(6)
    error = error_like(ErrorFunction.MARGINAL, activation, margin=margin)
    z = random.normal(0, 2, (3, 40)).astype(np.float32)
    check(Case(error, z, None, targets_like(random, form, 3, 40, False)))


@pytest.mark.parametrize("form", FORMS)
@PAIRS
def test_saturated_and_huge_sums(kind, activation, form):
    """As in float32 NumPy, where a SoftMax's or a square's numbers end, too."""
    ends = np.array([1e-30, 9, 17, 20, 50, 87, 88, 89, 104, 1e4, 1e18, 1e30, 1e37], np.float32)
    z = np.concatenate([[0], ends, -ends])[None].repeat(3, axis=0).astype(np.float32)
    z = z if activation is not Activation.SOFTMAX else np.clip(z, -1e4, 1e4)
    targets = targets_like(np.random.default_rng(7), form, *z.shape, False, hinge=kind is ErrorFunction.HINGE)
    case = Case(error_like(kind, activation), z, None, targets)
    with np.errstate(all="ignore"):
        normalizer = normalizer_of(case, z)
        loss, delta = twin(case, z, normalizer)
        loss_sizes, delta_sizes = sizes_of(case, z, normalizer)
        found, parts = launch(case, normalizer=None if normalizer is None else normalizer[:, 0].copy())
        assert (loss < 1e37) == (parts.sum() < 1e37)  # the twin has some squares in float64
        if loss < 1e37:
            assert abs(parts.sum() - loss) <= 16 * EPSILON * loss_sizes.sum(dtype=np.float64)
    assert np.isfinite(found).all()
    assert np.all(np.abs(found - delta) <= 16 * EPSILON * delta_sizes)


@pytest.mark.parametrize("form", FORMS)
@PAIRS
def test_nan_makes_the_loss_nan(kind, activation, form):
    """Each row has a NaN somewhere else; only what does not count, or is dropped, hides it."""
    n = 6
    targets = targets_like(np.random.default_rng(8), form, n, n, False, hinge=kind is ErrorFunction.HINGE)
    seen = np.ones(n, bool) if targets.columns is None or not targets.alone else stored_in(targets).diagonal()
    z = np.where(np.eye(n, dtype=bool), np.float32(np.nan), np.float32(1))
    for dropout in (0.0, 0.25) if activation is not Activation.SOFTMAX else (0.0,):
        constant = ~kept((n, n), dropout).diagonal() if kind not in CROSS_ENTROPIES else False
        case = Case(error_like(kind, activation, dropout=dropout), z, None, targets, dropped=dropout > 0)
        normalizer = np.full(n, np.nan, np.float32) if case.softmax else None
        _, parts = launch(case, normalizer=normalizer)
        assert np.isnan(parts[seen & ~np.asarray(constant)]).all()


def stored_in(targets):
    matrix = targets.columns.copy()
    matrix.data = np.ones(len(matrix.data), bool)
    return matrix.toarray()


def by_row(case, z):
    """Return a = f(z) by rowwise.cu, and what its backward pass needs."""
    kind, sizes = case.error.layer.activation, [np.int32(size) for size in (*z.shape, z.shape[1])]
    if kind is Activation.SOFTMAX:
        return run("rowwise", "softmax", (len(z),), [z, *sizes])[0], None
    return run("rowwise", "rowwise_activation", (len(z),), [z, poisoned(len(z)), *sizes, KINDS[kind]])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", ROWWISE)
@pytest.mark.parametrize("kind", [kind for kind in ErrorFunction if kind not in CROSS_ENTROPIES])
def test_rowwise_units_with_an_error_of_single_ones(kind, activation, form):
    for number, (weighted, dropped) in enumerate(itertools.product([False, True], repeat=2)):
        random = np.random.default_rng(number)
        error = error_like(kind, activation, Boost(2.0, 0.25), dropout=0.25 if dropped else 0.0)
        z = random.normal(0, 2, (3, 33)).astype(np.float32)
        targets = targets_like(random, form, 3, 33, weighted, hinge=kind is ErrorFunction.HINGE)
        case = Case(error, z, None, targets, dropped=dropped)
        a, total = by_row(case, z)
        found, parts = launch(case, BY_VALUE, z=a)
        sizes = [np.int32(3), np.int32(33), np.int32(33), KINDS[activation]]
        delta = run("rowwise", "rowwise_backward", (3,), [found.copy(), a, total, *sizes])[0]
        loss, wanted = twin(case, z.astype(np.float64), None)
        assert abs(parts.sum() - loss) <= 16 * EPSILON * 33 * 3 * 8
        np.testing.assert_allclose(delta, wanted, atol=64 * EPSILON * np.abs(found).max())


def test_nothing_to_do():
    error = error_like(ErrorFunction.MARGINAL, Activation.SIGMOID)
    for form in ("boolean", "dense"):
        for b, n in ((0, 5), (2, 0)):
            targets = targets_like(np.random.default_rng(0), form, b, 5, False)
            _, parts = launch(Case(error, np.empty((b, n), np.float32), None, targets, gap=1))
            assert np.array_equal(parts.view(np.uint64), poisoned(len(parts), np.float64).view(np.uint64))
