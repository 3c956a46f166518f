"""What ranks do together: the same bits on any number of them, and bytes as counted."""

import numpy as np
import pytest

from nnlib.shards.collectives import Ranks
from nnlib.shards.tree import RANKS, SHARDS, tree_sum
from tests.nnlib.shards.together import Threads, run_ranks


def parts(shape, dtype=np.float32):
    random = np.random.default_rng(5)
    return (random.normal(size=(SHARDS, *shape)) * 10.0 ** random.integers(-6, 6, (SHARDS, *shape))).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1,), (7,), (5, 3), (16, 8)])
def test_a_sum_has_the_same_bits_on_any_number_of_ranks(shape, dtype):
    wanted = tree_sum(list(parts(shape, dtype))).tobytes()
    for ranks in RANKS:
        found = run_ranks(ranks, lambda together: together.tree_sum([parts(shape, dtype)[s] for s in together.own]))
        assert {array.tobytes() for array in found} == {wanted}
        assert {(array.shape, array.dtype) for array in found} == {(shape, np.dtype(dtype))}


def test_what_was_added_by_the_caller_is_summed_over_the_ranks():
    for ranks in RANKS:
        found = run_ranks(
            ranks, lambda together: together.sum_ranks(tree_sum([parts((3, 2))[s] for s in together.own]))
        )
        assert {array.tobytes() for array in found} == {tree_sum(list(parts((3, 2)))).tobytes()}


@pytest.mark.parametrize("ranks", RANKS)
def test_a_rank_may_take_its_row_of_a_sum_and_give_what_it_made_of_it(ranks):
    wanted = tree_sum(list(parts((16, 3)))).reshape(ranks, -1)

    def ask(together):
        mine = tree_sum([parts((16, 3))[s] for s in together.own]).reshape(ranks, -1)
        row = together.scatter_sum(mine)
        return row.tobytes() == wanted[together.rank].tobytes(), together.collect(2 * row)

    for is_own, found in run_ranks(ranks, ask):
        assert is_own and found.tobytes() == (2 * wanted).tobytes()


@pytest.mark.parametrize("ranks", RANKS)
def test_parts_and_numbers_come_in_the_order_of_ranks(ranks):
    def ask(together):
        return together.gather(np.full((2, 3), together.rank, np.float32)), together.numbers([together.rank, 0.5])

    for gathered, numbers in run_ranks(ranks, ask):
        assert gathered.tolist() == np.broadcast_to(np.arange(ranks)[:, None, None], (ranks, 2, 3)).tolist()
        assert numbers.tolist() == [[rank, 0.5] for rank in range(ranks)]
        assert numbers.dtype == np.float64


@pytest.mark.parametrize("ranks", RANKS[1:])
def test_a_sum_takes_the_bytes_of_a_ring(ranks):
    def ask(together):
        together.tree_sum([parts((256, 64))[s] for s in together.own])
        return together.sent

    assert run_ranks(ranks, ask) == [{"sum": 2 * (ranks - 1) * 4 * 256 * 64 // ranks}] * ranks


def test_a_rank_that_asks_for_something_else_is_found():
    with pytest.raises(AssertionError, match="all ranks ask for the same exchange"):
        run_ranks(2, lambda together: together.gather(np.zeros(2 + together.rank)))


def test_transports_have_to_copy_in_both_ways():
    assert Ranks.__abstractmethods__ == {"swap", "gather"}
    assert issubclass(Threads, Ranks)
