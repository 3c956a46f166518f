"""Metrics with intervals, against plain loops and what is known of the normal distribution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from nnlib.cpu.backend import Cpu
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.data.rows import from_rows
from nnlib.data.sets import DataSet, as_data_set
from nnlib.errors import DataError
from nnlib.evaluation import metrics
from nnlib.evaluation.evaluate import EvaluationOptions, estimate_intervals, evaluate
from nnlib.prediction.exclusion import exclude_inputs
from nnlib.prediction.predictor import compute_outputs, prepare
from nnlib.util.threads import map_in_turn, workers
from tests.nnlib.prediction.test_predictor import made, raw_network, sets_of
from tests.nnlib.samples import clustered, network_scorer


def evaluated(model, sets, plan=None, popular=None, excluded=False, each=map_in_turn, **keys):
    ready = prepare(model, sets, "data", supervised=True)
    owned = exclude_inputs(model, ready, 2) if excluded else None
    plan = plan or EvaluationOptions((1, 5))
    return evaluate(ready.network, ready.examples, 2, plan, Cpu(each), owned, popular, each, **keys)


@pytest.mark.parametrize("excluded", [True, False])
def test_ranking_metrics_are_those_of_training(excluded):
    sets = sets_of()
    model = made(raw_network(), sets)
    ready = prepare(model, sets, "data", supervised=True)
    part = metrics.RankedExamples(ready.examples, 2, 0 if excluded else None)
    wanted = metrics.measure(metrics.rank_by(network_scorer(ready.network)), part, (1, 5))
    found = evaluated(model, sets, excluded=excluded)
    assert {name: one.value for name, one in found.metrics.items() if name != "loss"} == pytest.approx(wanted)
    assert found.metrics["loss"].value == Cpu().evaluator(ready.network).mean_loss(ready.examples)
    assert found.metrics["loss"].low is None
    empty = int((np.diff(sets["output"].rows.indptr) == 0).sum())
    assert (found.examples, found.with_targets, found.without_targets) == (50, 50 - empty, empty)
    assert empty > 0


@pytest.mark.parametrize("dense", [False, True])
def test_as_many_are_asked_about_at_a_time_as_the_evaluator_says(monkeypatch, dense):
    sets = sets_of()
    if dense:
        sets["output"] = as_data_set("output", np.eye(sets["output"].width, dtype=np.float32)[np.arange(50) % 7])
    asked, (sums, top) = [], (CpuEvaluator.sums, CpuEvaluator.top)

    def count(ask):
        def counted(self, examples, *more):
            asked.append(examples.count)
            return ask(self, examples, *more)

        return counted

    monkeypatch.setattr(CpuEvaluator, "sums", count(sums))
    monkeypatch.setattr(CpuEvaluator, "top", count(top))
    whole = evaluated(made(raw_network(), sets), sets)
    assert max(asked) > 12
    asked.clear()
    monkeypatch.setattr("nnlib.cpu.evaluator.choose_at_once", lambda _: 12)
    found = evaluated(made(raw_network(), sets), sets)
    assert max(asked) <= 12 and len(asked) == 5
    assert {name: one.value for name, one in found.metrics.items()} == pytest.approx(
        {name: one.value for name, one in whole.metrics.items()}
    )


def test_intervals_are_those_of_single_resamples():
    values = np.random.default_rng(1).random((37, 3))
    low, high = estimate_intervals(values, 500, 9)
    random = np.random.default_rng(9)
    means = [values[random.integers(0, 37, 37)].mean(axis=0) for _ in range(500)]
    np.testing.assert_allclose([low, high], np.percentile(means, (2.5, 97.5), axis=0))


def test_intervals_of_many_examples_are_normal_and_repeatable(monkeypatch):
    values = np.random.default_rng(2).normal(size=(4000, 1))
    low, high = estimate_intervals(values, 2000, 1)
    error = 1.96 * values.std() / np.sqrt(4000)
    np.testing.assert_allclose(
        [low, high], [values.mean(axis=0) - error, values.mean(axis=0) + error], atol=0.1 * error
    )
    monkeypatch.setattr("nnlib.evaluation.evaluate.NUMBERS", 4001)  # one resample at a time draws the same
    np.testing.assert_allclose(estimate_intervals(values, 2000, 1), (low, high), rtol=1e-12)
    assert estimate_intervals(values, 2000, 2)[0] != low


def test_threads_and_seeds():
    sets = sets_of(examples=600)
    model = made(raw_network(), sets)
    with workers(1) as each:
        one = evaluated(model, sets, each=each)
    with workers(3) as each:
        assert evaluated(model, sets, each=each) == one
    other = evaluated(model, sets, EvaluationOptions((1, 5), seed=2))
    assert other.metrics["p@5"].value == one.metrics["p@5"].value
    assert other.metrics["p@5"].low != one.metrics["p@5"].low
    bare = evaluated(model, sets, EvaluationOptions((1, 5), resamples=0))
    assert bare.metrics["p@5"].value == one.metrics["p@5"].value
    assert bare.metrics["p@5"].low is bare.metrics["p@5"].high is None


def test_popularity():
    data = clustered(40, 1, 6)
    sets = {data_set.name: data_set for data_set in data.sets}
    model = made(raw_network(), sets)
    popular = DataSet("output", from_rows([[0, 0, 1], [1, 2], [1]], 40))  # 1 three times, 0 once and 2 once
    found = evaluated(model, sets, EvaluationOptions((1, 3)), popular)
    rows = sets["output"].rows
    wanted = [set(rows.indices[a:b].tolist()) for a, b in zip(rows.indptr, rows.indptr[1:], strict=False)]
    assert found.baseline["p@1"].value == pytest.approx(np.mean([1 in row for row in wanted]))
    assert found.baseline["p@3"].value == pytest.approx(np.mean([len(row & {0, 1, 2}) / 3 for row in wanted]))
    assert found.baseline["p@3"].low <= found.baseline["p@3"].value <= found.baseline["p@3"].high


@pytest.mark.parametrize("sparse_targets", [True, False])
def test_accuracy_of_classes(sparse_targets):
    random = np.random.default_rng(3)
    classes = random.integers(0, 30, 50)
    one_hot = np.eye(30)[classes]
    sets = {"input": sets_of()["input"]}
    sets["output"] = as_data_set("output", sparse.csr_array(one_hot) if sparse_targets else one_hot)
    for activation in ("SoftMax", "Sigmoid"):
        model = made(raw_network(activation), sets)
        ready = prepare(model, sets, "data")
        best = np.concatenate(list(compute_outputs(ready.network, ready.examples, 2, Cpu()))).argmax(axis=1)
        found = evaluated(model, sets).metrics
        if sparse_targets:
            assert found["p@1"].value == pytest.approx((best == classes).mean())
        if activation == "SoftMax" or not sparse_targets:
            assert found["accuracy"].value == pytest.approx((best == classes).mean())
        assert "rmse" not in found


def test_error_of_a_regression():
    sets = {"input": sets_of()["input"]}
    sets["output"] = as_data_set("output", np.random.default_rng(3).normal(size=(50, 4)))
    model = made(raw_network("Linear"), sets)
    ready = prepare(model, sets, "data")
    values = np.concatenate(list(compute_outputs(ready.network, ready.examples, 2, Cpu())))
    found = evaluated(model, sets)
    rmse = np.sqrt(((values - sets["output"].rows.values) ** 2).mean())
    assert found.metrics["rmse"].value == pytest.approx(rmse, rel=1e-6)
    assert found.metrics["rmse"].low < rmse < found.metrics["rmse"].high
    assert (found.with_targets, set(found.metrics)) == (50, {"rmse", "loss"})


def test_without_any_target():
    sets = sets_of()
    model = made(raw_network(), sets)
    sets["output"] = DataSet("output", from_rows([[]] * 50, 30))
    with pytest.raises(DataError, match="data: no example has a target"):
        evaluated(model, sets)


def test_what_is_done_is_told():
    sets = sets_of()
    done: list[int] = []
    evaluated(made(raw_network(), sets), sets, watch=done.append)
    assert sum(done) == 50
