"""Who is asked about which examples under a plan by examples, and how the answers come together."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.data.rows import Csr, from_rows
from nnlib.errors import DivergedError, NotFiniteError
from nnlib.model.examples import Examples, examples_of
from nnlib.ops import ranking
from nnlib.shards.evaluator import ShardsEvaluator
from nnlib.shards.tree import RANKS, tree_sum
from nnlib.util.threads import map_in_turn
from tests.nnlib.cpu.test_by_examples import PLAIN, SETS
from tests.nnlib.samples import network_of
from tests.nnlib.shards.together import run_ranks

UNITS = 35
NETWORK = network_of(dict(PLAIN), SETS)
COUNTS = (1, 5, 8, 9, 41, 45)


def first(count: int) -> Examples:
    """Examples in memory."""
    return examples_of(NETWORK.spec, SETS, "d").take(np.arange(count))


@dataclasses.dataclass
class Noting(CpuEvaluator):
    """Notes what it was asked about; scores are the first inputs, so that there are equal ones."""

    seen: list[int]
    losses: list[tuple[int, int]]
    broken: tuple[float, ...] = ()

    network = NETWORK

    def _scores(self, examples: Examples) -> np.ndarray:
        x = examples.sets[0].rows.values
        self.seen.append(len(x))
        wrong = [n for n, value in enumerate(x[:, 0].tolist()) if value in self.broken]
        if wrong:
            raise NotFiniteError(wrong[0])
        return np.round(np.tile(x, 2)[:, :UNITS], 1)

    def top(self, examples, output, k, owned):
        return ranking.top(self._scores(examples), k, owned)

    def sums(self, examples, output):
        return self._scores(examples)

    def values(self, examples, layer):
        return self._scores(examples)[:, :13]

    def total_loss(self, examples, low, high):
        self.losses.append((low, high))
        return float(examples.sets[0].rows.values[low:high].sum(dtype=np.float64))


def ask(ranks, question, broken=()):
    """What each rank answers, and what each one looked at."""

    def work(together):
        asked = Noting([], [], broken)
        evaluator = ShardsEvaluator(asked, NETWORK.spec, np.float32, map_in_turn, together)
        try:
            return question(evaluator), asked
        except (NotFiniteError, DivergedError) as error:
            return error, asked

    return zip(*run_ranks(ranks, work), strict=True)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("ranks", RANKS)
def test_each_example_is_asked_about_once_and_all_ranks_answer_alike(ranks, count):
    examples = first(count)
    owned = from_rows([[n % UNITS, (n + 1) % UNITS] for n in range(count)], UNITS)
    x = np.round(np.tile(examples.sets[0].rows.values, 2)[:, :UNITS], 1)
    for wanted, question in (
        (ranking.top(x.copy(), 7, owned), lambda evaluator: evaluator.top(examples, 2, 7, owned)),
        (ranking.top(x.copy(), 99), lambda evaluator: evaluator.top(examples, 2, 99, None)),
        ((x,), lambda evaluator: (evaluator.sums(examples, 2),)),
        ((x[:, :13],), lambda evaluator: (evaluator.values(examples, 1),)),
    ):
        found, asked = ask(ranks, question)
        for one in found:
            for array, right in zip(one, wanted, strict=True):
                np.testing.assert_array_equal(array, right)
                assert array.dtype == right.dtype
        each = -(-count // 8)
        seen = [size for one in asked for size in one.seen]
        assert seen == [min(each, count - low) for low in range(0, count, each)]


@pytest.mark.parametrize("count", COUNTS)
def test_losses_are_added_by_the_tree(count):
    examples = first(count)
    x, each = examples.sets[0].rows.values, -(-count // 8)
    parts = [float(x[n * each : (n + 1) * each].sum(dtype=np.float64)) for n in range(8)]
    for ranks in RANKS:
        found, asked = ask(ranks, lambda evaluator: evaluator.mean_loss(examples))
        assert set(found) == {tree_sum(list(parts)) / count}
        asked_about = [place for one in asked for place in one.losses]
        assert asked_about == [(min(n * each, count), min((n + 1) * each, count)) for n in range(8)]


@pytest.mark.parametrize("ranks", RANKS)
def test_the_first_example_that_is_not_finite_is_named_by_all(ranks):
    examples = first(45)
    broken = tuple(examples.sets[0].rows.values[[38, 17, 43], 0].tolist())
    found, _ = ask(ranks, lambda evaluator: evaluator.top(examples, 2, 7, None), broken)
    assert [type(error) for error in found] == [NotFiniteError] * ranks
    found, _ = ask(ranks, lambda evaluator: evaluator.sums(examples, 2), broken)
    assert [error.example for error in found] == [17] * ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_a_loss_that_is_not_finite_is_one_on_all_ranks(ranks):
    examples = first(45)
    examples.sets[0].rows.values[44] = np.inf
    found, _ = ask(ranks, lambda evaluator: evaluator.mean_loss(examples))
    assert [str(error) for error in found] == ["the validation loss is inf; lower learning_rate"] * ranks


def test_what_is_owned_goes_with_its_example():
    examples, nobody = first(9), Csr(np.zeros(10, np.int64), np.zeros(0, np.int32), UNITS, None)
    everything = from_rows([list(range(UNITS))] * 9, UNITS)
    for ranks in RANKS:
        found, _ = ask(ranks, lambda evaluator: evaluator.top(examples, 2, 3, everything))
        assert all((items == ranking.NO_ITEM).all() for items, _ in found)
        found, _ = ask(ranks, lambda evaluator: evaluator.top(examples, 2, 3, nobody))
        assert all((items >= 0).all() for items, _ in found)
