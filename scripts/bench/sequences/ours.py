"""Our side: families tuned on the validation part one hyperparameter after the other, and the trivial rule."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from nnlib.contract import Recipe
from nnlib.data.events import FOREVER, Events
from nnlib.data.rows import Csr
from nnlib.families.common.regional import Regional
from nnlib.families.family import Fitted, Value
from nnlib.families.fit import fit_recipe
from nnlib.ops.ranking import top
from nnlib.util.arrays import Floats
from nnlib.util.threads import workers
from scripts.bench.sequences.metrics import measure
from scripts.bench.sequences.sets import Problem
from scripts.bench.sequences.windows import Histories, Longs, Part, next_days

KEPT, BLOCK = 100, 512
MOST = 3000  # customers by whom hyperparameters are chosen
MANY = 10_000  # items, from which on a fit takes a minute and little is tried
SCORING = "ask_half_life"  # which a fitted knn or ease can be given anew
MARKOV = "markov"

Grid = Mapping[str, Sequence[Value]]
AGELESS: dict[str, Value] = {"fit_half_life": FOREVER, "ask_half_life": FOREVER}
ITEMS_AGO = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # half-lives where an order stands for days
DAYS_AGO = (20.0, 40.0, 80.0, 160.0, 320.0)
# Where the search begins, and what it tries, in this order. Of sets in order, and of those with days.
IN_ORDER: dict[str, tuple[dict[str, Value], Grid]] = {
    "popularity": ({"half_life": FOREVER}, {}),
    "knn": (AGELESS, {SCORING: ITEMS_AGO, "q": (0.25, 0.35, 0.45), "k": (20, 50, 500)}),
    "ease": (AGELESS, {SCORING: ITEMS_AGO, "l2": (30.0, 100.0, 1000.0)}),
    "days": (
        {"fit_half_life": FOREVER, "ask_half_life": 4.0, "ahead_half_life": 0.2, "l2": 100.0},
        {"l2": (30.0, 300.0), "ask_half_life": (2.0,), "ahead_half_life": (1.0,)},
    ),
    MARKOV: ({"half_life": 0.0, "q": 0.5}, {"half_life": (0.5, 1.0, 2.0, 4.0), "q": (0.0, 1.0)}),
}
BY_DAYS: dict[str, tuple[dict[str, Value], Grid]] = {
    "popularity": ({"half_life": FOREVER}, {"half_life": (5.0, 10.0, 20.0, 40.0)}),
    "knn": ({}, {SCORING: DAYS_AGO, "fit_half_life": (20.0, 80.0, FOREVER), "k": (50, 500), "q": (0.35, 0.45)}),
    "ease": ({}, {SCORING: DAYS_AGO, "fit_half_life": (20.0, 80.0, FOREVER), "l2": (100.0, 1000.0)}),
    "days": ({}, {"fit_half_life": (30.0, 120.0), "ask_half_life": (80.0,), "ahead_half_life": (40.0,)}),
    MARKOV: ({"half_life": 0.0, "q": 0.5}, {"half_life": (20.0, 80.0, 320.0), "q": (0.0, 1.0)}),
}
FEW: dict[str, Grid] = {"ease": {SCORING: ITEMS_AGO, "l2": (100.0,)}, "days": {}}


@dataclass(frozen=True, eq=False)
class Chosen:
    """A family with its best hyperparameters: its lists of `valid` and `test`, and what it takes."""

    hyperparameters: Mapping[str, Value]
    lists: Mapping[str, tuple[Longs, Floats]]  # part -> items and scores (customers, KEPT)
    tried: int
    seconds: float  # of the processor, for a fit
    asking: float  # of the processor, for the lists of `test`
    megabytes: float


@dataclass(frozen=True, eq=False)
class Markov:
    """What was taken directly after each item, over items: sums of counts / (takers of the item) ** q, by age."""

    counts: sparse.csr_array
    popular: Floats
    half_life: float  # days from what was taken last; 0: that alone

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return float32 (len(rows), items); where nothing is known to follow, popularity decides."""
        taken = asked.take(rows).aged_from_last(max(self.half_life, 1e-3))
        return np.asarray((taken @ self.counts).toarray() + 1e-6 * self.popular, np.float32)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what it keeps."""
        return {"counts": self.counts.data, "items": self.counts.indices}


def fit_markov(histories: Histories, q: float, half_life: float) -> Markov:
    """Count successors, over a day's items all those of the next day, a pair's weight one over their number."""
    begin, end = next_days(histories)
    follow = end - begin
    before = np.repeat(np.arange(len(begin)), follow)
    after = np.arange(len(before)) - np.repeat(np.cumsum(follow) - follow, follow) + np.repeat(begin, follow)
    weights = (1 / np.repeat(np.maximum(follow, 1), follow)).astype(np.float32)
    shape = (histories.width, histories.width)
    counts = sparse.csr_array((weights, (histories.items[before], histories.items[after])), shape)
    popular = np.bincount(histories.items, minlength=histories.width).astype(np.float32)
    counts.data *= np.repeat(np.maximum(popular, 1) ** -q, np.diff(counts.indptr)).astype(np.float32)
    return Markov(counts, popular / popular.max(), half_life)


def to_events(histories: Histories) -> Events:
    """Return the same as families take it: items of a customer ascending, in one region."""
    order = np.lexsort((histories.items, histories.owner()))
    bought = Csr(histories.indptr, histories.items[order].astype(np.int32), histories.width)
    names, region = tuple(map(str, range(histories.width))), np.zeros(histories.customers, np.int32)
    return Events(bought, names, region, ("",), histories.days[order].astype(np.int32), histories.as_of)


def fit(family: str, hyperparameters: Mapping[str, Value], histories: Histories) -> Fitted:
    """Return a fitted family, or the trivial rule."""
    if family == MARKOV:
        return fit_markov(histories, float(hyperparameters["q"]), float(hyperparameters["half_life"]))
    return fit_recipe(Recipe(family, hyperparameters, 0), to_events(histories)).fitted


def lists_of(model: Fitted, asked: Histories) -> tuple[Longs, Floats]:
    """Return the KEPT best items (customers, KEPT) that each does not have, and their scores."""
    events, found = to_events(asked), []
    for low in range(0, asked.customers, BLOCK):
        rows = np.arange(low, min(low + BLOCK, asked.customers))
        with workers(1):
            found.append(top(model.scores(events, rows), KEPT, events.unranked(rows)))
    return np.concatenate([items for items, _ in found]), np.concatenate([scores for _, scores in found])


@dataclass(frozen=True, eq=False)
class Tried:
    """A fitted model, what it reaches on the validation part, and the processor's seconds of its fit."""

    settings: Mapping[str, Value]
    model: Fitted
    seconds: float
    value: float = 0.0


def choose_once(folder: Path, name: str, family: str, problem: Problem) -> Chosen:
    """Return the same as `choose`, or what it gave in an earlier run that left it in `folder`."""
    path = folder / f"{name}-{family}.npz"
    if not path.exists():
        chosen = choose(family, problem)
        said = {key: getattr(chosen, key) for key in ("hyperparameters", "tried", "seconds", "asking", "megabytes")}
        arrays: dict[str, Any] = {
            f"{part}_{n}": one for part, both in chosen.lists.items() for n, one in enumerate(both)
        }
        np.savez(path.with_suffix(".part.npz"), said=np.array(json.dumps(said)), **arrays)
        path.with_suffix(".part.npz").rename(path)
    with np.load(path) as file:
        lists = {part: (file[f"{part}_0"], file[f"{part}_1"]) for part in ("valid", "test")}
        return Chosen(lists=lists, **json.loads(str(file["said"])))


def choose(family: str, problem: Problem) -> Chosen:
    """Return a family with what is best by NDCG@10 of MOST customers of `valid`."""
    start, grid = (BY_DAYS if problem.timed else IN_ORDER)[family]
    if problem.valid.fit.width >= MANY:
        grid = FEW.get(family, grid)
    part, count = draw(problem.valid), 1
    best = _judged(family, _fitted(family, start, part.fit), part)
    for name, values in grid.items():
        for value in values:
            settings = {**best.settings, name: value}
            if settings == best.settings:
                continue
            again = name == SCORING and isinstance(best.model, Regional)
            tried = _asked_with(best, settings) if again else _fitted(family, settings, part.fit)
            best, count = max(best, _judged(family, tried, part), key=lambda one: one.value), count + 1
    final = _fitted(family, best.settings, problem.test.fit) if problem.timed else best
    valid, began = lists_of(best.model, problem.valid.asked), time.process_time()
    test = lists_of(final.model, problem.test.asked)
    asking = time.process_time() - began
    megabytes = sum(array.nbytes for array in final.model.arrays().values()) / (1 << 20)
    return Chosen(best.settings, {"valid": valid, "test": test}, count, final.seconds, asking, megabytes)


def _fitted(family: str, settings: Mapping[str, Value], histories: Histories) -> Tried:
    began = time.process_time()
    model = fit(family, settings, histories)
    return Tried(settings, model, time.process_time() - began)


def _asked_with(tried: Tried, settings: Mapping[str, Value]) -> Tried:
    """Return the same model with another SCORING, which its fit has nothing to do with."""
    assert isinstance(tried.model, Regional)  # noqa: S101 -- for the type checker
    hyperparameters = {**tried.model.hyperparameters, SCORING: settings[SCORING]}
    return replace(tried, settings=settings, model=replace(tried.model, hyperparameters=hyperparameters))


def _judged(family: str, tried: Tried, part: Part) -> Tried:
    value = float(measure(lists_of(tried.model, part.asked)[0], part.wanted)[:, 0].mean())
    print(f"{family} {dict(tried.settings)}: {value:.4f}, {tried.seconds:.1f} s", file=sys.stderr, flush=True)
    return replace(tried, value=value)


def draw(part: Part) -> Part:
    """Return the part with MOST of those who are asked, at random."""
    rows = np.sort(np.random.default_rng(1).permutation(part.asked.customers)[:MOST])
    return Part(part.fit, part.asked.take(rows), part.wanted.take(rows))
