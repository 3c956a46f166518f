"""Ranks on GPUs over an NCCL that is played by threads, which fails where NCCL would hang or copy nonsense."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from nnlib.gpu.runtime import Runtime
from nnlib.gpu.shards.nccl import IDENTITY, INTERFACE, Nccl, connect
from nnlib.shards.collectives import Alone, Collectives
from nnlib.shards.tree import tree_sum
from tests.kernels import played_nccl
from tests.kernels.played_nccl import NCCL_FLOAT32, NCCL_FLOAT64, NcclCommunicator, PlayedError
from tests.kernels.standin import Cupy, write_kernels
from tests.nnlib.shards.together import run_ranks

SIZES = [1, 5, 8, 1000, 4096 * 3 + 7]


def mixed(size: int, seed: int = 0) -> np.ndarray:
    """Numbers of mixed size, among them both zeros and the smallest, whose sums depend on the order."""
    random = np.random.default_rng(seed)
    found = (random.standard_normal((8, size)) * 10.0 ** random.integers(-6, 6, (8, size))).astype(np.float32)
    found[random.random(found.shape) < 0.1] = -0.0
    found[random.random(found.shape) < 0.1] = 1e-45
    return found


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    write_kernels()


def on_gpus(ranks: int, work: Any) -> list[Any]:
    """Return what `work` gave on each rank: (the collectives, its GPU's runtime) -> anything."""

    def rank(host: Collectives) -> Any:
        cupy = Cupy()
        runtime = cupy.runtime()
        found = work(connect(host, runtime), runtime)
        runtime.compute.synchronize()
        cupy.check()
        return found

    return run_ranks(ranks, rank)


def array_of(runtime: Any, values: np.ndarray) -> Any:
    found = runtime.zeros(values.shape, values.dtype)
    runtime.upload(found, values)
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_sums_have_the_bits_of_one_rank(ranks, size):
    parts = mixed(size)
    wanted = tree_sum([part.copy() for part in parts])

    def work(nccl: Nccl, runtime: Any) -> tuple[np.ndarray, np.ndarray, int]:
        given = [array_of(runtime, parts[shard]) for shard in nccl.own]
        whole = runtime.download(nccl.tree_sum(given))
        sent = nccl.sent.total()
        mine = array_of(runtime, tree_sum([parts[shard].copy() for shard in nccl.own]))
        return whole, runtime.download(nccl.sum_ranks(mine)), sent

    for whole, again, sent in on_gpus(ranks, work):
        np.testing.assert_array_equal(whole.view(np.int32), wanted.view(np.int32))
        np.testing.assert_array_equal(again.view(np.int32), wanted.view(np.int32))
        padded = -(-size // ranks) * ranks
        assert sent == 2 * (ranks - 1) * 4 * padded // ranks  # those of a ring


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32])
@pytest.mark.parametrize("ranks", [2, 4])
def test_gather_copies_bits_in_the_order_of_ranks(ranks, kind):
    def work(nccl: Nccl, runtime: Any) -> np.ndarray:
        given = array_of(runtime, np.arange(6, dtype=kind).reshape(2, 3) + 10 * nccl.rank)
        found = runtime.download(nccl.gather(given))
        assert nccl.sent == {"gather": (ranks - 1) * given.nbytes}
        return found

    wanted = np.stack([np.arange(6, dtype=kind).reshape(2, 3) + 10 * rank for rank in range(ranks)])
    for found in on_gpus(ranks, work):
        np.testing.assert_array_equal(found, wanted)


def test_an_exchange_that_is_captured_is_done_as_often_as_the_graph_is_launched():
    parts = mixed(64)

    def work(nccl: Nccl, runtime: Any) -> np.ndarray:
        array = array_of(runtime, tree_sum([parts[shard].copy() for shard in nccl.own]))
        start = runtime.zeros(array.shape)
        runtime.move(start, array)
        nccl.sum_ranks(array)  # takes the memory
        graph = runtime.capture(lambda: (runtime.move(array, start), nccl.sum_ranks(array)))
        for _ in range(3):
            runtime.replay(graph)
        return runtime.download(array)

    wanted = tree_sum([part.copy() for part in parts])
    for found in on_gpus(2, work):
        np.testing.assert_array_equal(found, wanted)


def test_the_identity_comes_from_the_first_rank_and_ranks_meet_over_the_loopback(monkeypatch):
    monkeypatch.delenv(INTERFACE, raising=False)
    made = []
    monkeypatch.setattr(
        played_nccl, "get_unique_id", lambda: made.append(bytes([7, 200] * (IDENTITY // 2))) or made[-1]
    )
    on_gpus(2, lambda nccl, runtime: None)
    assert os.environ.pop(INTERFACE) == "lo"
    assert len(made) == 1
    assert made[0] in played_nccl.Fabric.known
    del played_nccl.Fabric.known[made[0]]


def test_numbers_go_through_this_machines_memory():
    def work(nccl: Nccl, runtime: Any) -> np.ndarray:
        return nccl.numbers([nccl.rank, 0.1])

    for found in on_gpus(4, work):
        np.testing.assert_array_equal(found, [[rank, 0.1] for rank in range(4)])


# What is played must be able to fail: each of these would hang, or give nonsense, on GPUs.


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr(played_nccl, "PATIENCE", 0.3)


def mistaken(work: Any) -> None:
    """Assert that what two ranks do is found to be wrong; work(communicator, rank, pointer, stream)."""

    def rank(nccl: Nccl, runtime: Any) -> None:
        array = runtime.zeros(64)
        communicator = nccl._communicator
        work(communicator, nccl.rank, array.data.ptr, runtime.compute.ptr)
        runtime.compute.synchronize()

    with pytest.raises((PlayedError, threading.BrokenBarrierError)):
        on_gpus(2, rank)


@pytest.mark.usefixtures("_impatient")
def test_a_receive_outside_of_its_sends_group_is_found():
    def work(communicator: NcclCommunicator, rank: int, place: int, stream: int) -> None:
        communicator.send(place, 4, NCCL_FLOAT32, 1 - rank, stream)
        communicator.recv(place + 64, 4, NCCL_FLOAT32, 1 - rank, stream)

    mistaken(work)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    "second",
    [
        pytest.param(("swap", 5, NCCL_FLOAT32, 0), id="size"),
        pytest.param(("swap", 4, NCCL_FLOAT64, 0), id="type"),
        pytest.param(("swap", 4, NCCL_FLOAT32, 1), id="peer"),
        pytest.param(("gather", 4, NCCL_FLOAT32, 0), id="call"),
        pytest.param(("gather then swap", 4, NCCL_FLOAT32, 0), id="order"),
        pytest.param(("nothing", 0, 0, 0), id="missing"),
    ],
)
def test_what_ranks_do_differently_is_found(second):
    def work(communicator: NcclCommunicator, rank: int, place: int, stream: int) -> None:
        what, count, kind, peer = ("swap then gather" if "then" in second[0] else "swap", 4, NCCL_FLOAT32, 1)
        if rank == 1:
            what, count, kind, peer = second
        for one in what.split(" then "):
            if one == "swap":
                played_nccl.groupStart()
                communicator.send(place, count, kind, peer, stream)
                communicator.recv(place + 64, count, kind, peer, stream)
                played_nccl.groupEnd()
            elif one == "gather":
                communicator.allGather(place, place + 64, count, kind, stream)

    mistaken(work)


def test_a_rank_that_joins_twice_is_found():
    identity = played_nccl.get_unique_id()
    NcclCommunicator(2, identity, 0)
    for ranks, rank in ((2, 0), (4, 1), (2, 2)):
        with pytest.raises(PlayedError):
            NcclCommunicator(ranks, identity, rank)


@pytest.mark.gpu
def test_cupys_own_wrapper_takes_what_it_is_given():
    """One rank, which gives to itself: what NCCL does on several GPUs `scripts/bench/gpu.sh --only ranks` shows."""
    runtime = Runtime.open()
    with runtime.faults():
        nccl = connect(Alone(), runtime)
        assert nccl.ranks == 1
        values = np.arange(6, dtype=np.float32)
        given, taken = array_of(runtime, values), runtime.zeros(6)
        runtime.nccl.groupStart()
        for call, array in ((nccl._communicator.send, given), (nccl._communicator.recv, taken)):
            call(array.data.ptr, 6, runtime.nccl.NCCL_FLOAT32, 0, runtime.compute.ptr)
        runtime.nccl.groupEnd()
        np.testing.assert_array_equal(runtime.download(taken), values)
        np.testing.assert_array_equal(runtime.download(nccl.gather(given)), [values])
        nccl.sum_ranks(given)  # takes memory, which a capture must not
        graph = runtime.capture(lambda: nccl.sum_ranks(given))
        runtime.replay(graph)
        np.testing.assert_array_equal(runtime.download(given), values)


def test_names_and_arguments_are_those_of_cupy():
    """The real wrapper, which needs NCCL's library but no GPU."""
    nccl = pytest.importorskip("cupy.cuda.nccl")
    if not hasattr(nccl, "NcclCommunicator"):
        pytest.skip("CuPy finds no NCCL")
    identity = nccl.get_unique_id()
    assert isinstance(identity, bytes)
    assert len(identity) == IDENTITY
    for name in ("NCCL_FLOAT32", "NCCL_FLOAT64", "NCCL_INT32"):
        assert getattr(nccl, name) == getattr(played_nccl, name)
    for name in ("send", "recv", "allGather"):
        [real] = getattr(nccl.NcclCommunicator, name).__doc__.splitlines()[:1]
        code = getattr(NcclCommunicator, name).__code__
        assert [part.split()[-1] for part in real.partition("(")[2].rstrip(")").split(", ")] == list(
            code.co_varnames[: code.co_argcount]
        )
    assert callable(nccl.groupStart)
    assert callable(nccl.groupEnd)
