"""The benchmark of public sets: its files, its validation part, its metrics, and a whole run on a made-up set."""

import json

import numpy as np
import pytest
from scipy import sparse

from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.quality import __main__ as quality
from scripts.bench.quality import tune
from scripts.bench.quality.metrics import interval, measure, without_known
from scripts.bench.quality.sets import cut, ones, read_adjacency, read_text, to_events

TRAIN = [(0, 0), (0, 2), (1, 1), (2, 0), (2, 1), (2, 3)]
TEST = [(0, 1), (2, 2)]


def write_lists(path, pairs):
    users = sorted({user for user, _ in pairs})
    path.write_text("".join(f"{one} {' '.join(str(i) for u, i in pairs if u == one)}\n" for one in users))


def as_pairs(rows):
    return sorted(zip(*(part.tolist() for part in rows.nonzero()), strict=True))


def test_lists_of_items_are_read(tmp_path):
    write_lists(tmp_path / "train.txt", TRAIN)
    write_lists(tmp_path / "test.txt", TEST)
    found = read_text(tmp_path)
    assert as_pairs(found.known.aged(1e9)) == TRAIN
    assert as_pairs(found.wanted) == TEST
    assert found.wanted.shape == (3, 4)
    assert found.asked.tolist() == [0, 2]


def test_training_pairs_come_from_the_matrix_of_users_and_items(tmp_path):
    known = ones(*np.array(TRAIN).T, (3, 4)) * 0.25  # normalised: only where it is not zero counts
    both = sparse.block_array([[None, known], [known.T, sparse.csr_array((4, 4))]])
    sparse.save_npz(tmp_path / "s_adj_mat.npz", both.tocsr())
    write_lists(tmp_path / "test.txt", TEST)
    assert as_pairs(read_adjacency(tmp_path).known.aged(1e9)) == TRAIN


def test_a_set_that_is_not_there_says_where_it_comes_from(tmp_path):
    with pytest.raises(NotMeasuredError, match=r"train.txt is missing; scripts/bench/README.md"):
        read_text(tmp_path)


def test_a_tenth_of_each_users_items_is_held_back():
    counts = [0, 1, 2, 14, 16, 30]
    users = np.repeat(np.arange(6), counts)
    known = to_events(ones(users, np.concatenate([np.arange(n) for n in counts]), (6, 30)))
    part = cut(known, 0)
    assert np.diff(part.wanted.indptr).tolist() == [0, 0, 1, 1, 2, 3]
    left = part.known.aged(1e9)
    assert as_pairs(left + part.wanted) == as_pairs(known.aged(1e9))
    assert as_pairs(cut(known, 0).wanted) == as_pairs(part.wanted) != as_pairs(cut(known, 1).wanted)


def test_figures_are_those_of_lightgcn():
    """By hand: hits at places 1 and 3 of 20, of three wanted; the third is known, so that it is never ranked."""
    scores = np.linspace(1, 0, 40, dtype=np.float32)[None].repeat(2, axis=0)
    known = to_events(ones(np.array([0, 1]), np.array([1, 39]), (2, 40)))
    wanted = ones(np.array([0, 0, 0, 1]), np.array([0, 3, 39, 38]), (2, 40))
    found = measure(without_known(scores, known, np.arange(2)), wanted)
    ideal = 1 + 1 / np.log2(3) + 1 / np.log2(4)
    np.testing.assert_allclose(found, [[2 / 3, (1 + 1 / np.log2(4)) / ideal], [0, 0]], rtol=1e-6)


def test_an_interval_covers_the_mean_and_shrinks_with_users():
    values = np.random.default_rng(0).random(2000)
    low, high = interval(values)
    assert low < values.mean() < high
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(2000), rel=0.1)


def test_a_whole_run_measures_every_family_and_the_blend(tmp_path, monkeypatch):
    small = {
        "graph": ({"vectors": 4}, {"sharpen": (1.0,)}),
        "ials": ({"dims": 4, "sweeps": 2}, {}),
        "ease": ({"l2": 10.0}, {}),
    }
    monkeypatch.setattr(tune, "SEARCH", small)
    random = np.random.default_rng(0)
    pairs = [(u, i) for u in range(60) for i in range(50) if u % 2 == i % 2 and random.random() < 0.4]
    held = random.random(len(pairs)) < 0.2
    for name, part in (("train", ~held), ("test", held)):
        write_lists(tmp_path / f"{name}.txt", [pair for pair, here in zip(pairs, part, strict=True) if here])
    words = ["ml-1m", "--data", str(tmp_path), "--quick", "--json", str(tmp_path / "found.json")]
    assert quality.main(words) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert len(found["rows"]) == 2 * 4
    assert all(row["ours"] > 0.3 for row in found["rows"])  # half of all items are of the wrong kind: by chance .1
    assert found["chosen"]["graph"]["tried"] == 2
    assert set(found["weights"]) == set(small)
