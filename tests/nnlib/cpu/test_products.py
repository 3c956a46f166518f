"""Products of factors as they are, rounded, and by oneMKL, which here is a stand-in unless it is installed."""

import ctypes
import itertools

import numpy as np
import pytest

from nnlib.compiled.select import LOOPS
from nnlib.contract import PRECISIONS, TrainSettings
from nnlib.cpu import mkl, products
from nnlib.cpu.backend import Cpu
from nnlib.cpu.backward import backward
from nnlib.cpu.forward import Forward
from nnlib.cpu.gradients import Gradients
from nnlib.cpu.products import FLOAT32, PAIRED, Paired, Rounded, choose_precision, describe_precision, products_of
from nnlib.model import network as net
from nnlib.model.examples import examples_of
from nnlib.ops.bf16 import from_bf16, to_bf16
from nnlib.training import loop
from nnlib.util.threads import workers
from tests.nnlib.samples import batch_of, bits, network_of, random_matrix, sets_of

AMX = "processor\t: 0\nflags\t\t: fpu amx_bf16 avx512_bf16 amx_tile\n"
AMD = "vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512f avx512_bf16\n"
PAIRS = LOOPS is not None and LOOPS.bf16.HAVE_PAIRS
SETS = sets_of(x=random_matrix(50, 300, 1, 0.1), y=random_matrix(50, 40, 2, 0.2))
INPUT = {"Name": "I", "N": "auto", "DataSet": "x", "Sparse": True}
HIDDEN, MORE = ({"Name": name, "N": 24, "Activation": "Relu"} for name in "HM")
OUTPUT = {"Name": "O", "N": "auto", "DataSet": "y"}
NETWORKS = {
    "sigmoid": {"Layers": [INPUT, HIDDEN, MORE, OUTPUT]},
    "softmax": {"Layers": [INPUT, HIDDEN, MORE, OUTPUT | {"Activation": "SoftMax"}]},
    "dense": {"Layers": [INPUT | {"Sparse": False}, HIDDEN | {"BatchNormalization": True, "pDropout": 0.2}, OUTPUT]},
    "transposed": {
        "Layers": [
            INPUT | {"Sparse": False},
            HIDDEN,
            OUTPUT
            | {"DataSet": "x", "Name": "P"}
            | {"SharedWeights": {"InputLayer": "H", "SourceInputLayer": "I", "SourceOutputLayer": "H"}}
            | {
                "SharedWeights": {
                    "SourceInputLayer": "I",
                    "SourceOutputLayer": "H",
                    "InputLayer": "H",
                    "Transposed": True,
                }
            },
        ]
    },
}


def standin(order, flip_a, flip_b, n, m, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """cblas_gemm_bf16bf16f32, for matrices by rows."""
    assert (order, alpha, beta) == (mkl.ROW_MAJOR, 1.0, 0.0)
    factors = []
    for flip, address, stride, rows, columns in ((flip_a, a, lda, n, k), (flip_b, b, ldb, k, m)):
        shape = (columns, rows) if flip == mkl.TRANSPOSED else (rows, columns)
        assert stride >= shape[1]
        size = (shape[0] - 1) * stride + shape[1]
        memory = np.ctypeslib.as_array((ctypes.c_uint16 * size).from_address(address))
        found = np.lib.stride_tricks.as_strided(memory, shape, (2 * stride, 2))
        factors.append(from_bf16(found.T if flip == mkl.TRANSPOSED else found))
    memory = np.ctypeslib.as_array((ctypes.c_float * ((n - 1) * ldc + m)).from_address(c))
    np.lib.stride_tricks.as_strided(memory, (n, m), (4 * ldc, 4))[...] = factors[0] @ factors[1]


@pytest.fixture(autouse=True)
def _asked_anew():
    asked = products.obstacle  # at the end a test's own may still stand there
    yield
    asked.cache_clear()


@pytest.fixture(params=["stand-in", "installed"])
def library(request, monkeypatch):
    """oneMKL on a processor that has AMX, or what stands in for both."""
    if request.param == "installed":
        if products.obstacle() or not products.has_amx():
            pytest.skip(products.obstacle() or "this processor has no AMX")
        return
    monkeypatch.setattr(mkl, "find", lambda: mkl.Library("1.2", standin))
    monkeypatch.setattr(products, "_cpu_info", lambda: AMX)
    products.obstacle.cache_clear()


@pytest.fixture
def without(monkeypatch):
    """A machine that has oneMKL, no AMX, and Intel's AVX-512, whose instructions for bfloat16 bring nothing."""
    monkeypatch.setattr(products, "_cpu_info", lambda: AMX.replace("amx_bf16", "amx"))
    products.obstacle.cache_clear()


def forms(random, n, k):
    """A matrix (n, k) by rows, by columns, and as a part of larger ones."""
    x = random.standard_normal((n, k)).astype(np.float32)
    yield from (x, np.asfortranarray(x))
    larger = np.zeros((n + 3, k + 5), np.float32)
    larger[1 : n + 1, 2 : k + 2] = x
    yield larger[1 : n + 1, 2 : k + 2]
    larger = np.zeros((k + 3, n + 5), np.float32)
    larger[1 : k + 1, 2 : n + 2] = x.T
    yield larger[1 : k + 1, 2 : n + 2].T


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 33])
def test_the_library_multiplies_matrices_of_any_form(library, monkeypatch, n, compiled):
    if not compiled:
        monkeypatch.setattr(mkl, "LOOPS", None)
    random, ours = np.random.default_rng(n), mkl.Mkl()
    for k, m in itertools.product((0, 1, 3, 17), (1, 2, 40)):
        for a, b in itertools.product(forms(random, n, k), forms(random, k, m)):
            one, other = ours.factor(a), ours.factor(b, "weights")
            np.testing.assert_array_equal(one, to_bf16(a))
            np.testing.assert_array_equal(other, to_bf16(b))
            wanted = Rounded().multiply(Rounded().factor(a), Rounded().factor(b))
            for out in (None, np.full((n + 2, m + 3), 7, np.float32)[1 : n + 1, 1 : m + 1]):
                np.testing.assert_allclose(ours.multiply(one, other, out), wanted, rtol=0, atol=1e-5)
            half = ours.multiply(one[:, : k // 2], other[: k // 2])
            wanted = Rounded().factor(a[:, : k // 2]) @ Rounded().factor(b[: k // 2])
            np.testing.assert_allclose(half, wanted, rtol=0, atol=1e-5)


def test_memory_with_a_name_is_used_again(library):
    ours, x = mkl.Mkl(), np.ones((2, 3), np.float32)
    first = ours.factor(x, "weights")
    assert ours.factor(x, "delta").base is not first.base and ours.factor(x).base is not first.base
    again = ours.factor(2 * x, "weights")
    assert again.base is first.base and (from_bf16(first) == 2).all()


@pytest.mark.skipif(not PAIRS, reason="this processor, or its compiled loops, multiply no pairs of bfloat16")
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 33])
def test_pairs_multiply_matrices_of_any_form(n):
    """Tiles are 8 rows and 32 columns, words two numbers along k, and 16 of them are turned at once."""
    random, ours = np.random.default_rng(n), Paired()
    for k, m in itertools.product((0, 1, 2, 3, 31, 32, 33, 70), (0, 1, 31, 32, 33, 70)):
        for a, b in itertools.product(forms(random, n, k), forms(random, k, m)):
            one, other = ours.factor(a), ours.factor(b, "weights")
            wanted = Rounded().multiply(Rounded().factor(a), Rounded().factor(b))
            around = np.full((n + 2, m + 3), 7, np.float32)
            ours.multiply(one, other, around[1 : n + 1, 1 : m + 1])
            np.testing.assert_allclose(around[1 : n + 1, 1 : m + 1], wanted, rtol=0, atol=2e-5)
            around[1 : n + 1, 1 : m + 1] = 7
            assert (around == 7).all()
            half = ours.multiply(one[:, : k // 2], other[: k // 2])
            np.testing.assert_allclose(
                half, Rounded().factor(a[:, : k // 2]) @ Rounded().factor(b[: k // 2]), atol=2e-5
            )


@pytest.mark.skipif(not PAIRS, reason="this processor, or its compiled loops, multiply no pairs of bfloat16")
@pytest.mark.parametrize(
    ("left", "right", "out"),
    [((3, 40), (70, 5), (3, 5)), ((3, 70), (40, 5), (3, 5)), ((3, 40), (40, 5), (2, 5)), ((3, 40), (40, 5), (3, 4))],
)
def test_pairs_that_do_not_fit_are_refused_before_memory_is_met(left, right, out):
    ours = Paired()
    a, b = (ours.factor(np.ones(shape, np.float32)) for shape in (left, right))
    with pytest.raises(AssertionError):
        ours.multiply(a, b, np.empty(out, np.float32))


@pytest.mark.skipif(not PAIRS, reason="this processor, or its compiled loops, multiply no pairs of bfloat16")
def test_pairs_are_not_written_to_columns():
    ours, x = Paired(), np.ones((40, 40), np.float32)
    with pytest.raises(AssertionError, match="rows"):
        ours.multiply(ours.factor(x), ours.factor(x), np.empty((40, 40), np.float32, order="F"))


@pytest.mark.skipif(not PAIRS, reason="this processor, or its compiled loops, multiply no pairs of bfloat16")
def test_a_sum_of_pairs_does_not_depend_on_where_it_stands():
    random, ours = np.random.default_rng(1), Paired()
    a, b = (ours.factor(random.standard_normal(shape).astype(np.float32)) for shape in ((40, 257), (257, 80)))
    whole = ours.multiply(a, b)
    for low, high in ((0, 3), (5, 17), (1, 40)):
        assert (ours.multiply(a[low:high], b) == whole[low:high]).all()
        assert (ours.multiply(a, b[:, 2 * low : 2 * high]) == whole[:, 2 * low : 2 * high]).all()
    np.testing.assert_array_equal(ours.multiply(b.T, a.T).T, whole)


@pytest.mark.skipif(not PAIRS, reason="this processor, or its compiled loops, multiply no pairs of bfloat16")
def test_a_factor_is_laid_out_once_for_each_side_and_in_memory_with_a_name_again():
    ours, x = Paired(), np.arange(6, dtype=np.float32).reshape(2, 3)
    factor = ours.factor(x)
    ours.multiply(factor, ours.factor(x.T))
    words, panels = factor.left(), factor.right()
    ours.multiply(ours.factor(x.T), factor)
    assert factor.left() is words and factor.right() is panels
    np.testing.assert_array_equal(from_bf16(words[0])[:, :4], np.pad(x, ((0, 0), (0, 1))))
    np.testing.assert_array_equal(from_bf16(panels.view(np.uint16)[0, 0, :6]), [0, 3, 1, 4, 2, 5])
    named, other = ours.factor(x, "weights").right(), ours.factor(2 * x, "weights").right()
    assert named.base is other.base is not ours.factor(x, "delta").right().base


@pytest.mark.skipif(not PAIRS, reason="this processor, or its compiled loops, multiply no pairs of bfloat16")
def test_what_is_not_finite_stays_so_in_products_of_pairs():
    a, b = np.ones((9, 5), np.float32), np.ones((5, 33), np.float32)
    a[2, 4], a[3, 0], b[1, 32] = np.nan, np.inf, np.nan
    ours = Paired()
    found = ours.multiply(ours.factor(a), ours.factor(b))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(found, a @ b)


def gradients(raw, multiply, dtype=np.float32):
    network = network_of(raw, SETS, dtype)
    sink, forward = Gradients(network), Forward(network, products=multiply)
    batch = batch_of(network, SETS)
    values = forward.run(batch.inputs, training=True)
    return backward(forward, values, batch.targets, sink), sink.arrays()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("which", ["rounded", "oneMKL", "pairs"])
def test_gradients_are_right_to_the_bits_of_the_factors(monkeypatch, name, which):
    """Against those in double precision: a factor is 2^-9 of itself off at most, and errors partly cancel."""
    monkeypatch.setattr(net, "BLOCK", 16)
    if which == "oneMKL":
        monkeypatch.setattr(mkl, "find", lambda: mkl.Library("1.2", standin))
    if which == "pairs" and not PAIRS:
        pytest.skip("this processor, or its compiled loops, multiply no pairs of bfloat16")
    multiply = {"rounded": Rounded, "oneMKL": mkl.Mkl, "pairs": Paired}[which]()
    (error, found), (true_error, wanted) = (
        gradients(NETWORKS[name], multiply),
        gradients(NETWORKS[name], FLOAT32, np.float64),
    )
    assert error == pytest.approx(true_error, rel=2**-8) and error != true_error
    for array, gradient in wanted.items():
        assert np.linalg.norm(found[array] - gradient) <= 2**-6 * np.linalg.norm(gradient) + 1e-6, array


@pytest.fixture
def pairs(monkeypatch):
    """A processor of AMD's with AVX-512's instructions for bfloat16."""
    if not PAIRS:
        pytest.skip("this processor, or its compiled loops, multiply no pairs of bfloat16")
    monkeypatch.setattr(products, "_cpu_info", lambda: AMD)
    products.obstacle.cache_clear()


@pytest.mark.usefixtures("pairs")
def test_trainings_by_pairs_are_the_same_on_any_number_of_threads_and_all_but_those_by_numpy(monkeypatch):
    def train(threads):
        network, backend, losses = network_of(NETWORKS["softmax"], SETS), Cpu(), []
        given = TrainSettings(epochs=2, batch=16, precision="auto")
        with workers(threads) as each:
            backend = Cpu(each)
            done = loop.fit(network, examples_of(network.spec, SETS, "d"), given, backend, losses.append)
        assert done.precision == "bf16"
        return bits(done.network), [epoch.loss for epoch in losses], backend.versions

    monkeypatch.setattr(net, "BLOCK", 16)
    one, losses, versions = train(1)
    assert versions == {PAIRED: "avx512"} and train(3)[0] == one
    monkeypatch.setattr(products, "products_of", lambda *_: Rounded())
    monkeypatch.setattr("nnlib.cpu.engine.products_of", lambda *_: Rounded())
    assert train(1)[1] == pytest.approx(losses, rel=1e-5)


@pytest.mark.usefixtures("pairs")
def test_bits_do_not_depend_on_what_is_worth_a_second_thread(monkeypatch):
    """Neither in float32: pieces are the same, whoever does them."""

    def train(precision):
        network = network_of(NETWORKS["dense"], SETS)
        given = TrainSettings(epochs=1, batch=16, precision=precision)
        with workers(2) as each:
            done = loop.fit(network, examples_of(network.spec, SETS, "d"), given, Cpu(each), print)
        return bits(done.network)

    monkeypatch.setattr(net, "BLOCK", 16)
    wanted = [train(precision) for precision in ("float32", "bf16")]
    monkeypatch.setattr("nnlib.util.threads.LEAST_WORK", 1 << 40)
    assert [train(precision) for precision in ("float32", "bf16")] == wanted


@pytest.mark.parametrize("precision", ["bf16", "auto"])
def test_any_number_of_threads_gives_the_same_bits(library, monkeypatch, precision):
    monkeypatch.setattr(net, "BLOCK", 16)
    found = set()
    for threads in (1, 2, 3, 8):
        network = network_of(NETWORKS["sigmoid"], SETS)
        given = TrainSettings(epochs=1, batch=16, precision=precision)
        with workers(threads) as each:
            done = loop.fit(network, examples_of(network.spec, SETS, "d"), given, Cpu(each), print)
        assert done.precision == "bf16"
        found.add(bits(done.network))
    assert len(found) == 1


def test_rounded_and_by_the_library_are_one_training(library, monkeypatch):
    def train():
        network, backend = network_of(NETWORKS["softmax"], SETS), Cpu()
        given, losses = TrainSettings(epochs=2, batch=16, precision="bf16"), []
        loop.fit(network, examples_of(network.spec, SETS, "d"), given, backend, losses.append)
        return [epoch.loss for epoch in losses], backend.versions

    fast, versions = train()
    assert list(versions) == ["mkl"]
    monkeypatch.setattr(products, "obstacle", lambda: "none")
    slow, versions = train()
    assert versions == {} and slow == pytest.approx(fast, rel=1e-5) and slow != train_in_float32()


def train_in_float32():
    network, losses = network_of(NETWORKS["softmax"], SETS), []
    given = TrainSettings(epochs=2, batch=16)
    loop.fit(network, examples_of(network.spec, SETS, "d"), given, Cpu(), losses.append)
    return [epoch.loss for epoch in losses]


def test_what_is_chosen_where_it_is_faster(library):
    assert [choose_precision(name) for name in PRECISIONS] == ["float32", "float32", "bf16", "bf16"]
    assert isinstance(products_of("auto", np.float32), mkl.Mkl) and products_of("bf16", np.float64) is FLOAT32
    assert describe_precision("auto") == "precision auto is bf16 here: by oneMKL, on AMX"
    assert describe_precision("float32") == describe_precision("tf32") == ""


def test_what_is_chosen_where_it_is_not(without):
    assert [choose_precision(name) for name in PRECISIONS] == ["float32", "float32", "bf16", "float32"]
    assert type(products_of("bf16", np.float32)) is Rounded and products_of("auto", np.float32) is FLOAT32
    assert describe_precision("auto") == "precision auto is float32 here: this processor multiplies bfloat16 no faster"
    assert describe_precision("bf16").startswith("precision bf16 is bf16 here, which takes longer than float32: ")


@pytest.mark.usefixtures("pairs")
def test_amd_needs_no_library():
    assert describe_precision("auto") == (
        "precision auto is bf16 here: by compiled loops, with AVX-512's instructions for it"
    )
    assert type(products_of("auto", np.float32)) is Paired


def test_amd_needs_compiled_loops(monkeypatch):
    monkeypatch.setattr(products, "_cpu_info", lambda: AMD)
    monkeypatch.setattr(products, "LOOPS", None)
    products.obstacle.cache_clear()
    assert describe_precision("auto") == (
        "precision auto is float32 here: no compiled loops, to install them: pip install 'regiondag[fast]'"
    )


def test_a_library_that_is_missing_is_told_with_what_brings_it(monkeypatch):
    monkeypatch.setattr(products, "_cpu_info", lambda: AMX)
    monkeypatch.setattr(mkl, "find", lambda: None)
    products.obstacle.cache_clear()
    assert describe_precision("auto") == (
        "precision auto is float32 here: oneMKL is missing, to install it: pip install 'regiondag[bf16]'"
    )


class File:
    def __init__(self, name):
        self.name = name

    def locate(self):
        return f"/nonexistent/{self.name}"


class Package:
    """What is installed under oneMKL's name."""

    version = "1"

    def __init__(self, *names):
        self.files = [File(name) for name in names]


@pytest.mark.parametrize(
    "package", [None, Package(), Package("libmkl_rt.so.3"), Package("libmkl_rt.so.2", "libmkl_rt.so.3")]
)
def test_what_cannot_be_loaded_is_not_there(monkeypatch, package):
    def distribution(name):
        if package is None:
            raise mkl.metadata.PackageNotFoundError(name)
        return package

    monkeypatch.setattr(mkl.metadata, "distribution", distribution)
    assert mkl.find.__wrapped__() is None
