"""The trial's objective, measured on the part that was held out, once for every epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import Metric
from nnlib.data.blockwise import run_in_order
from nnlib.data.rows import Csr
from nnlib.data.sets import DataSet, say_mixed_repeats
from nnlib.engines import Evaluator
from nnlib.errors import DataError, NnlibError
from nnlib.evaluation import metrics
from nnlib.evaluation.owned import find_excluded_input
from nnlib.model.examples import Examples, examples_of
from nnlib.spec.metric_names import canonical_metric, parse_metric
from nnlib.spec.types import LayerKind, NetworkSpec
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each

METRIC = "trial.json: metric.name"


@dataclass(frozen=True, slots=True, eq=False)
class DataPart:
    """A part of a region's data, read from one file or several: the data sets by name."""

    file: str
    sets: Mapping[str, DataSet]
    region: str
    repeats: bool = False  # as in Data

    def examples(self, spec: NetworkSpec) -> Examples:
        """Return the data sets of a network's layers."""
        return examples_of(spec, self.sets, self.file)


@dataclass(frozen=True, slots=True)
class Objective:
    """The trial's metric: its key in a result's metrics, its k, and which way is better."""

    key: str
    k: int | None
    minimize: bool


@dataclass(frozen=True, eq=False)
class Validator:
    """Measures networks on the part that was held out, once for every epoch."""

    goal: Objective
    spec: NetworkSpec
    part: DataPart
    each: Each

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of all ranking metrics in a result."""
        return metrics.USUAL_KS if self.goal.k is None else (*metrics.USUAL_KS, self.goal.k)

    @cached_property
    def ranked(self) -> metrics.RankedExamples | None:
        """What is ranked: the first output, if its targets are sparse, without what is owned (see `owned`).

        Where data say `repeats` that is ranked, too.
        """
        examples = self.part.examples(self.spec)
        output = self.spec.places[self.spec.layers_of(LayerKind.OUTPUT)[0].name]
        targets = examples.sets[output]
        if not targets.sparse:
            return None
        owned = None if self.part.repeats else find_excluded_input(self.spec, examples, output)
        return metrics.RankedExamples(examples, output, owned)

    def value(self, evaluator: Evaluator) -> float:
        """Return the trial's metric alone, for every epoch."""
        if self.goal.k is None or self.ranked is None:
            return self.loss(evaluator)
        return float(self._measure(evaluator, self.ranked, (self.goal.k,))[self.goal.key].mean())

    def ranking(self, evaluator: Evaluator) -> dict[str, Floats]:
        """Return the ranking metrics of a result, of each example: NaN of those without targets."""
        ranked, found = self.ranked, {}
        if ranked is None:
            return {}
        for name, values in self._measure(evaluator, ranked, self.ks).items():
            found[name] = np.full(len(self._asked), np.nan)
            found[name][self._asked] = values
        return found

    def loss(self, evaluator: Evaluator) -> float:
        """Return the mean loss."""
        return evaluator.mean_loss(self.part.examples(self.spec))

    def popularity(self, learned: DataPart) -> dict[str, float]:
        """Return the ranking metrics of the order by frequency in the targets of `learned`."""
        ranked = self.ranked
        if ranked is None:
            return {}
        targets = learned.examples(self.spec).sets[ranked.output]
        rank = metrics.rank_by(metrics.popularity_scorer(targets, self.each))
        return metrics.measure(rank, ranked, self.ks, self.each)

    def _measure(self, evaluator: Evaluator, ranked: metrics.RankedExamples, ks: tuple[int, ...]) -> dict[str, Floats]:
        def rank(examples: Examples, k: int, owned: Csr | None) -> Longs:
            return evaluator.top(examples, ranked.output, k, owned)[0]

        return metrics.measure_examples(rank, ranked, ks, self.each, at_once=evaluator.at_once)

    @cached_property
    def _asked(self) -> NDArray[np.bool_]:
        """Which examples have a target."""
        ranked = self.ranked
        assert ranked is not None, "the caller has made sure"
        found = run_in_order(lambda rows: np.diff(ranked.wanted(rows).indptr) > 0, ranked.examples.count, 1)
        return np.concatenate(list(found))


def objective_of(metric: Metric, where: str = METRIC) -> Objective:
    """Return what a metric asks for; NnlibError, with `where` before it, when there is no such metric."""
    try:
        _, k = parse_metric(metric.name)
        key = canonical_metric(metric.name)
    except ValueError as error:
        raise NnlibError(f"{where}: {error}") from error
    return Objective(key, k, metric.minimize)


def check_some(part: DataPart, spec: NetworkSpec) -> None:
    """Raise DataError when a part has no example, or data sets of different numbers of them."""
    if not part.examples(spec).count:
        raise DataError(f"{part.file}: 0 examples are not legal, legal: 1 or more")


def check_fit(spec: NetworkSpec, goal: Objective, learned: DataPart, held_out: DataPart, where: str = METRIC) -> None:
    """Raise DataError when the two parts do not mean the same units, or the metric (of `where`) cannot be measured."""
    for layer in (*spec.layers_of(LayerKind.INPUT), *spec.layers_of(LayerKind.OUTPUT)):
        name = layer.data_set
        if name not in held_out.sets:
            raise DataError(f"{held_out.file}: no data set {name!r}, {learned.file} has one; legal: {[*held_out.sets]}")
        one, other = learned.sets[name], held_out.sets[name]
        if one.width != other.width:
            raise DataError(
                f"{held_out.file}: {name} of width {other.width}, {learned.file} has {one.width}; import both at once"
            )
        if one.features != other.features:
            raise DataError(f"{held_out.file}: other names of units than {learned.file}; import both at once")
        if one.sparse != other.sparse:
            raise DataError(f"{held_out.file}: {name} is not of the kind that {learned.file} has; import both at once")
    if learned.repeats != held_out.repeats:
        raise DataError(say_mixed_repeats(learned.file, learned.repeats, held_out.file))
    check_some(held_out, spec)
    targets = held_out.sets[spec.layers_of(LayerKind.OUTPUT)[0].data_set]
    if goal.k is not None and not targets.sparse:
        raise NnlibError(f"{where}: {goal.key} needs sparse targets, {targets.name!r} is dense; legal: loss")
    if targets.sparse and not _any_target(targets):
        raise DataError(f"{held_out.file}: no example has a target, so nothing can be measured")


def _any_target(targets: DataSet) -> bool:
    return any(run_in_order(lambda rows: bool(targets.take(rows).rows.nonzeros), targets.examples, 1))  # type: ignore[union-attr]
