"""The order of sums over shards: the same bits whoever adds which branch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.shards.tree import RANKS, SHARDS, Tree, shards_of, tree_sum

ODD = [0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 3e38, -3e38, float("inf"), float("-inf"), float("nan"), 1.0, 1e-7]
PARTS = st.lists(
    st.lists(st.sampled_from(ODD) | st.floats(width=32), min_size=3, max_size=3), min_size=SHARDS, max_size=SHARDS
)


def arrays(rows):
    return [np.array(row, np.float32) for row in rows]


def written_out(p):
    with np.errstate(all="ignore"):
        return ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]))


def bits_of(array):
    """Bits, with one NaN for all of them: which one a sum of two gives is the processor's choice."""
    return np.where(np.isnan(array), np.uint32(0x7FC00000), np.asarray(array).view(np.uint32)).tolist()


@given(PARTS)
def test_it_is_the_sum_written_out(rows):
    with np.errstate(all="ignore"):
        found = tree_sum(arrays(rows))
    assert bits_of(found) == bits_of(written_out(arrays(rows)))


@pytest.mark.parametrize("ranks", RANKS)
@given(PARTS)
def test_branches_of_ranks_add_up_to_the_same_bits(ranks, rows):
    with np.errstate(all="ignore"):
        branches = [tree_sum([arrays(rows)[shard] for shard in shards_of(rank, ranks)]) for rank in range(ranks)]
        found = tree_sum(branches)
    assert bits_of(found) == bits_of(written_out(arrays(rows)))


def test_another_order_gives_other_bits():
    parts = np.random.default_rng(1).normal(size=(SHARDS, 1000)).astype(np.float32)
    parts *= np.float32(10) ** np.arange(SHARDS, dtype=np.float32)[:, None]
    in_turn = sum(part.copy() for part in parts)
    assert (tree_sum([part.copy() for part in parts]) != in_turn).mean() > 0.1
    assert (tree_sum([parts[n].copy() for n in (0, 6, 2, 3, 4, 5, 1, 7)]) != written_out(parts)).any()


def test_few_parts_are_kept_at_a_time():
    tree, most = Tree[int](), 0
    for part in range(1, 65):
        tree.add(part)
        most = max(most, len(tree._branches))
    assert (tree.total(), most) == (64 * 65 // 2, 6)


def test_numbers_are_summed_as_arrays_are():
    values = [1e16, 1.0, -1e16, 3.0, 1e-3, 2.5, 7.0, -2.0]
    assert tree_sum(values) == written_out(values)


@pytest.mark.parametrize("count", [0, 3, 6])
def test_what_is_no_tree_is_refused(count):
    with pytest.raises(ValueError, match=f"{count} parts are no tree, legal: a power of two"):
        tree_sum([1.0] * count)


def test_ranks_share_all_shards_in_order():
    for ranks in RANKS:
        assert [n for rank in range(ranks) for n in shards_of(rank, ranks)] == list(range(SHARDS))
    for rank, ranks in ((0, 3), (0, 16), (2, 2), (-1, 2)):
        with pytest.raises(ValueError, match=f"rank {rank} of {ranks} is not legal, legal: one of 1, 2, 4, 8 ranks"):
            shards_of(rank, ranks)
