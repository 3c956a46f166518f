"""How good a network is on examples: metrics with bootstrap intervals, and plain popularity to compare with.

Sparse targets are ranked: precision, recall, NDCG, MAP and MRR as `metrics` has them. Dense targets have the accuracy
(SoftMax outputs, or targets with a single one: how often the largest output is that of the largest target), else the
root mean squared error. An interval is that of the middle 95 % of the means of resamples: as many examples, drawn
with replacement (Efron 1979). The loss has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.blockwise import Lookup, Watch, run_in_order
from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import DataSet
from nnlib.data.sources import open_files
from nnlib.engines import Backend
from nnlib.errors import DataError
from nnlib.evaluation import metrics
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.ops.activations import activate
from nnlib.spec.json_section import show
from nnlib.spec.types import Activation
from nnlib.util.arrays import Longs
from nnlib.util.threads import Each, map_in_turn

Floats = NDArray[np.float64]

OUTSIDE = (2.5, 97.5)  # percent
NUMBERS = 1 << 22  # of drawn examples at a time


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric and the interval it lies in; both ends None where there is none."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics by name, of the network and of the baseline, and how many examples there are."""

    examples: int
    with_targets: int
    metrics: Mapping[str, Measured]
    baseline: Mapping[str, Measured]

    @property
    def without_targets(self) -> int:
        """How many examples have no target and are in no ranking metric."""
        return self.examples - self.with_targets


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """What to measure, and how."""

    ks: Sequence[int] = metrics.USUAL_KS
    resamples: int = 1000
    seed: int = 1
    loss: bool = True  # whether the loss has a value


def evaluate(
    network: Network,
    examples: Examples,
    output: int,
    plan: EvaluationOptions,
    backend: Backend,
    excluded: Lookup | None = None,
    popular: DataSet | None = None,
    each: Each = map_in_turn,
    rankable: NDArray[np.bool_] | None = None,
    watch: Watch | None = None,
) -> Evaluation:
    """Measure one Output layer on the examples' targets; `popular` are targets whose frequencies are the baseline.

    `watch` is called with how many more examples are ranked, or classified.
    Units in `excluded`, and those not `rankable`, have no rank. Raises DataError when no example has a target.
    """
    evaluator, targets = backend.evaluator(network), examples.sets[output]
    size = metrics.choose_asked(examples, output, evaluator.at_once)
    found = {"loss": Measured(evaluator.mean_loss(examples))} if plan.loss else {}

    def score(some: Examples) -> NDArray[Any]:
        return evaluator.sums(some, output)

    if not targets.sparse:
        values, squares = _dense(network, examples, output, score, each, watch, size)
        name, root = ("rmse", np.sqrt) if squares else ("accuracy", np.positive)
        [measured] = summarize({name: values}, plan).values()
        ends = [None if end is None else float(root(end)) for end in (measured.low, measured.high)]
        return Evaluation(len(values), len(values), {name: Measured(float(root(measured.value)), *ends), **found}, {})
    rankers: dict[str, metrics.Ranker] = {"network": lambda some, k, owned: evaluator.top(some, output, k, owned)[0]}
    if rankable is not None and not rankable.all():
        rankers["network"] = metrics.rank_by(_among(score, ~rankable))
    if popular is not None:
        rankers["popularity"] = metrics.rank_by(metrics.popularity_scorer(popular, each))
    part, watched = metrics.RankedExamples(examples, output, None), watch
    parts = {}
    for name, rank in rankers.items():
        parts[name] = metrics.measure_examples(rank, part, plan.ks, each, excluded, watched, evaluator.at_once)
        watched = None  # the second one goes over the same examples
    if not parts["network"]:
        raise DataError(f"{examples.file}: no example has a target, so nothing can be measured")
    extra = _accuracy(network, examples, output, score, each, size)
    return Evaluation(
        examples.count,
        len(next(iter(parts["network"].values()))),
        summarize(parts["network"] | extra, plan) | found,
        summarize(parts.get("popularity", {}), plan),
    )


def rank_popular_targets(path: Path, targets: DataSet) -> DataSet:
    """Return the data set of a file that means the same as `targets`; DataError when there is none."""
    found = open_files([path])
    if targets.name not in found.sets:
        raise DataError(f"{found.file}: no data set {show(targets.name)}, legal: {', '.join(map(show, found.sets))}")
    popular = found.sets[targets.name]
    if not (popular.sparse and targets.sparse):
        raise DataError(f"{found.file}: popularity needs sparse targets, {show(targets.name)} is dense")
    if popular.width != targets.width or (popular.features and popular.features != targets.features):
        raise DataError(
            f"{found.file}: data set {show(targets.name)} has {popular.width} units, {targets.width} and of the same "
            "names are legal, as in the data to measure on; import both at once"
        )
    return popular


def estimate_intervals(values: Floats, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of the means of values (n, m), each (m,); the same seed draws the same."""
    count, random = len(values), np.random.default_rng(seed)
    means = np.empty((resamples, values.shape[1]))
    step = max(1, NUMBERS // count)
    for low in range(0, resamples, step):
        some = min(step, resamples - low)
        drawn = random.integers(0, count, (some, count)) + np.arange(some)[:, None] * count
        often = np.bincount(drawn.reshape(-1), minlength=some * count).reshape(some, count)
        means[low : low + some] = often @ values / count
    low_end, high_end = np.percentile(means, OUTSIDE, axis=0)
    return low_end, high_end


def summarize(values: Mapping[str, Floats], plan: EvaluationOptions) -> dict[str, Measured]:
    """Return the mean of each metric over its values, one an example, with its interval."""
    if not values:
        return {}
    table = np.column_stack(list(values.values()))
    if not plan.resamples:
        return {name: Measured(float(mean)) for name, mean in zip(values, table.mean(axis=0), strict=True)}
    ends = zip(*estimate_intervals(table, plan.resamples, plan.seed), strict=True)
    return {
        name: Measured(float(mean), float(low), float(high))
        for name, mean, (low, high) in zip(values, table.mean(axis=0), ends, strict=True)
    }


def _accuracy(
    network: Network, examples: Examples, output: int, score: metrics.Scorer, each: Each, size: int
) -> dict[str, Floats]:
    """Return for a SoftMax over sparse targets, one each, whether the best unit is the target."""
    targets = examples.sets[output]
    if network.spec.layers[output].activation is not Activation.SOFTMAX:
        return {}

    def block(rows: Longs) -> NDArray[np.bool_] | None:
        wanted = targets.take(rows).rows
        assert isinstance(wanted, Csr), "the caller has made sure"
        wanted = wanted.sets()
        if not np.all(np.diff(wanted.indptr) == 1):
            return None
        return np.asarray(score(examples.take(rows)).argmax(axis=1) == wanted.indices)

    blocks = list(run_in_order(block, examples.count, targets.width, each, at_once=size))
    right = [found for found in blocks if found is not None]
    return {"accuracy": np.concatenate(right).astype(np.float64)} if len(right) == len(blocks) else {}


def _dense(
    network: Network, examples: Examples, output: int, score: metrics.Scorer, each: Each, watch: Watch | None, size: int
) -> tuple[Floats, bool]:
    """Return for each example whether its class was found, or the mean squared error of its units (True)."""
    layer, targets = network.spec.layers[output], examples.sets[output]

    def block(rows: Longs) -> tuple[NDArray[np.bool_], Floats, bool]:
        wanted = targets.take(rows).rows
        assert isinstance(wanted, Dense), "the caller has made sure"
        t = wanted.floats(as_input=False, dtype=np.float64)
        z = score(examples.take(rows))
        right = z.argmax(axis=1) == t.argmax(axis=1)
        single = bool(np.all((t != 0).sum(axis=1) == 1) and np.all(t.max(axis=1) == 1))
        return right, ((activate(layer, z) - t) ** 2).mean(axis=1), single

    blocks = list(run_in_order(block, examples.count, targets.width, each, watch, size))
    if layer.activation is Activation.SOFTMAX or (targets.width > 1 and all(single for _, _, single in blocks)):
        return np.concatenate([right for right, _, _ in blocks]).astype(np.float64), False
    return np.concatenate([errors for _, errors, _ in blocks]), True


def _among(score: metrics.Scorer, unranked: NDArray[np.bool_]) -> metrics.Scorer:
    """Return a scorer that gives some units no rank."""

    def some(examples: Examples) -> NDArray[Any]:
        scores = score(examples)
        scores[:, unranked] = -np.inf
        return scores

    return some
