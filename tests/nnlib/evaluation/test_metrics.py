import numpy as np
import pytest

from nnlib.cpu import evaluator
from nnlib.cpu.backend import Cpu
from nnlib.data import blockwise
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import DataSet
from nnlib.errors import DataError, DivergedError
from nnlib.evaluation import metrics
from nnlib.evaluation.metrics import RankedExamples
from nnlib.model.examples import Examples
from nnlib.util.threads import workers
from tests.nnlib.samples import network_of, network_scorer, random_rows

INPUT, OUTPUT = 0, 1
RAW = {"Layers": [{"N": "auto", "DataSet": "x"}, {"N": "auto", "DataSet": "y"}]}
SCORES = np.array([0.5, 0.4, 0.7, 0.1, 0.9])


def part_of(inputs, targets, owned=True):
    return RankedExamples(
        Examples({INPUT: DataSet("x", inputs), OUTPUT: DataSet("y", targets)}, "f"), OUTPUT, INPUT if owned else None
    )


def always(scores):
    return metrics.rank_by(lambda examples: np.tile(scores, (examples.count, 1)))


def test_the_usual_ks():
    assert metrics.USUAL_KS == (5, 10, 20, 100)  # what is compared over years


def test_by_hand():
    """Scores rank 4, 2, 0, 1, 3; item 4 is the first example's own, the third has no target."""
    part = part_of(from_rows([[4], [], [1]], 5), from_rows([[0, 3], [4], []], 5))
    found = metrics.measure(always(SCORES), part, (1, 2, 9))
    gain = 1 / np.log2(3)
    assert found == pytest.approx(
        {
            "p@1": (0 + 1) / 2,
            "recall@1": (0 + 1) / 2,
            "ndcg@1": (0 + 1) / 2,
            "map@1": (0 + 1) / 2,
            "mrr@1": (0 + 1) / 2,
            "p@2": (1 / 2 + 1 / 2) / 2,
            "recall@2": (1 / 2 + 1) / 2,
            "ndcg@2": (gain / (1 + gain) + 1) / 2,
            "map@2": ((1 / 2) / 2 + 1) / 2,
            "mrr@2": (1 / 2 + 1) / 2,
            "p@9": (2 / 9 + 1 / 9) / 2,
            "recall@9": 1,
            "ndcg@9": ((gain + 1 / np.log2(5)) / (1 + gain) + 1) / 2,
            "map@9": ((1 / 2 + 2 / 4) / 2 + 1) / 2,
            "mrr@9": (1 / 2 + 1) / 2,
        }
    )


def test_the_textbook_example_of_mean_average_precision():
    """Hits at ranks 1, 3, 6, 9 and 10 of ten, one at a time."""
    part = part_of(from_rows([[]], 10), from_rows([[0, 2, 5, 8, 9]], 10), owned=False)
    found = metrics.measure(always(-np.arange(10.0)), part, (2, 5, 10))
    assert found["map@10"] == pytest.approx((1 + 2 / 3 + 3 / 6 + 4 / 9 + 5 / 10) / 5)
    assert found["map@5"] == pytest.approx((1 + 2 / 3) / 5)
    assert found["map@2"] == pytest.approx(1 / 2)


def test_the_first_hit_beyond_k_has_no_reciprocal_rank():
    part = part_of(from_rows([[], []], 5), from_rows([[1], [3]], 5), owned=False)
    found = metrics.measure(always(SCORES), part, (3, 4, 5))
    assert [found[f"mrr@{k}"] for k in (3, 4, 5)] == pytest.approx([0, 1 / 8, (1 / 4 + 1 / 5) / 2])


def test_own_items_are_never_hits():
    inputs = from_rows([[0, 1, 2]], 3)
    found = metrics.measure(always(np.ones(3)), part_of(inputs, inputs), (3,))
    assert set(found.values()) == {0}


def test_nothing_to_measure():
    assert metrics.measure(always(SCORES), part_of(from_rows([[1]], 5), from_rows([[]], 5))) == {}


def test_targets_that_come_twice_are_one():
    part = part_of(from_rows([[]], 5), from_rows([[2, 4, 2]], 5))
    assert metrics.measure(always(SCORES), part, (2,))["recall@2"] == 1


def test_every_example_with_a_target_has_its_values():
    part = part_of(from_rows([[], [], []], 5), from_rows([[4], [], [2]], 5))
    found = metrics.measure_examples(always(SCORES), part, (1,))
    assert found["p@1"].tolist() == [1, 0]


def test_batches_and_threads_do_not_matter(monkeypatch):
    part = part_of(random_rows(40, 30, 1), random_rows(40, 30, 2))
    whole = metrics.measure(always(np.random.default_rng(0).random(30)), part)
    monkeypatch.setattr(blockwise, "BATCH", 7)
    with workers(3) as each:
        assert metrics.measure(always(np.random.default_rng(0).random(30)), part, each=each) == pytest.approx(whole)


@pytest.mark.parametrize(
    ("most", "at_once", "sizes"),
    [
        (1 << 24, 0, [7] * 5 + [5]),
        (1 << 24, 30, [30, 10]),
        (60 * 12, 30, [12, 12, 12, 4]),
        (1 << 24, 6, [6] * 6 + [4]),
    ],
)
def test_as_many_are_asked_about_at_a_time_as_is_best_where_neither_inputs_nor_outputs_are_wide(
    monkeypatch, most, at_once, sizes
):
    part, asked = part_of(random_rows(40, 60, 1), from_rows([[3]] * 40, 30), owned=False), []
    monkeypatch.setattr(blockwise, "BATCH", 7)
    monkeypatch.setattr(blockwise, "MOST_OUTPUTS", most)

    def rank(examples, k, owned):
        asked.append(examples.count)
        return always(np.arange(30.0))(examples, k, owned)

    metrics.measure_examples(rank, part, at_once=at_once)
    assert asked == sizes


def test_popularity_counts_targets():
    score = metrics.popularity_scorer(DataSet("y", from_rows([[1, 2], [2], [2, 0]], 4)))
    assert score(part_of(from_rows([[], []], 4), from_rows([[], []], 4)).examples).tolist() == [[1, 1, 3, 0]] * 2


@pytest.mark.parametrize("width", [3, 9])
def test_inputs_of_other_units_hide_no_item(width):
    """Input unit 2 is not item 2, whether the inputs are wider or narrower than the items."""
    part = part_of(from_rows([[2], [0, width - 1]], width), from_rows([[2], [0]], 5), owned=False)
    found = metrics.measure(always(SCORES[[0, 1, 4, 3, 2]]), part, (1, 2))
    assert (found["p@1"], found["recall@2"]) == (1 / 2, 1 / 2)


def test_a_networks_scores_rank_as_its_outputs_do():
    sets = {"x": DataSet("x", random_rows(20, 9, 1)), "y": DataSet("y", random_rows(20, 9, 2))}
    for activation, error in (("Sigmoid", "CrossEntropy"), ("SoftMax", "CrossEntropy"), ("RELUMax", "L2")):
        raw = {"ErrorFunction": error, "Layers": [RAW["Layers"][0], RAW["Layers"][1] | {"Activation": activation}]}
        network = network_of(raw, sets)
        part = part_of(sets["x"].rows, sets["y"].rows)
        x = np.zeros((20, 9))
        np.add.at(x, (np.repeat(np.arange(20), np.diff(sets["x"].rows.indptr)), sets["x"].rows.indices), 1)
        wanted = x @ network.matrix(0) + network.biases[0]
        np.testing.assert_allclose(network_scorer(network)(part.examples), wanted, rtol=1e-5, atol=1e-6)


def test_the_loss_is_a_mean_over_examples(monkeypatch):
    sets = {"x": DataSet("x", random_rows(20, 9, 1)), "y": DataSet("y", random_rows(20, 7, 2))}
    network = network_of(RAW | {"Denoising": {"p": 0.9}}, sets, np.float64)
    examples = part_of(sets["x"].rows, sets["y"].rows).examples
    whole = Cpu().evaluator(network).mean_loss(examples)
    single = [Cpu().evaluator(network).mean_loss(examples.take(np.array([n]))) for n in range(20)]
    assert whole == pytest.approx(np.mean(single))
    monkeypatch.setattr(evaluator, "BATCH", 3)
    assert Cpu().evaluator(network).mean_loss(examples) == pytest.approx(whole)


def test_a_network_that_is_not_finite_is_told():
    sets = {"x": DataSet("x", random_rows(20, 9, 1)), "y": DataSet("y", random_rows(20, 7, 2))}
    network = network_of(RAW, sets)
    network.biases[0][3] = np.nan
    part = part_of(sets["x"].rows, sets["y"].rows, owned=False)
    with pytest.raises(DivergedError, match="an output is not a finite number; lower learning_rate"):
        metrics.measure(metrics.rank_by(network_scorer(network)), part)
    with pytest.raises(DivergedError, match="the validation loss is nan; lower learning_rate"):
        Cpu().evaluator(network).mean_loss(part.examples)


def test_dense_targets_cannot_be_ranked():
    part = RankedExamples(Examples({OUTPUT: DataSet("y", Dense(np.ones((2, 3))))}, "f"), OUTPUT, None)
    with pytest.raises(DataError, match="f: data set 'y' is dense, ranking metrics need sparse targets; legal metric"):
        metrics.measure(always(np.ones(3)), part)
