"""Public sets: Recall@20 and NDCG@20 of every family and of their blend, beside what others have published.

    python -m scripts.bench.quality gowalla --data FOLDER

Settings and weights are chosen on a tenth of each user's training items; then everything is fitted on all training
items, and the test items are ranked once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from nnlib.families.blend import Blend, find_weights
from nnlib.families.family import Fitted
from scripts.bench.common.harness import Row, finish, measure_groups
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.quality import tune
from scripts.bench.quality.metrics import Figures, interval, measure, without_known
from scripts.bench.quality.sets import SETS, Pairs, Set, cut

SEED = 0
BLEND = "blend"
METHODS = {"ease": "EASE", "knn": "ItemCF", "graph": "GF-CF"}  # what was published of the same family
BLOCK = 1024  # users whose scores are in memory at once
QUICK_USERS = 300


def tuned_on(part: Pairs) -> dict[str, tune.Tuned]:
    """Return the best settings of each family; one that does not fit in memory is left out."""
    found = {}
    for family in tune.searched(part):
        try:
            found[family] = tune.tune(family, part)
        except NotMeasuredError as error:
            print(f"left out: {error}", file=sys.stderr)
    return found


def ranked(models: Mapping[str, Fitted], pairs: Pairs) -> dict[str, Figures]:
    """Return each user's figures by each model."""
    found: dict[str, list[Figures]] = {name: [] for name in models}
    for low in range(0, len(pairs.asked), BLOCK):
        users = pairs.asked[low : low + BLOCK]
        for name, model in models.items():
            scores = without_known(model.scores(pairs.known, users), pairs.known, users)
            found[name].append(measure(scores, pairs.wanted[users]))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def rows_of(name: str, public: Set, figures: Mapping[str, Figures]) -> Iterator[Row]:
    """Yield a row for each method and metric; the peer is the same family's published figure, or the best one."""
    best = max(public.published, key=lambda method: public.published[method])
    for method, values in sorted(figures.items(), key=lambda one: one[0] != BLEND):
        peer = METHODS.get(method, best)
        peer = peer if peer in public.published else best
        for column, metric in enumerate(("Recall@20", "NDCG@20")):
            low, high = interval(values[:, column])
            mean, other = float(values[:, column].mean()), public.published[peer][column]
            goal = public.goal if method == BLEND and not column else None
            note = f"95 % [{low:.4f}, {high:.4f}]"
            yield Row(f"{name}: {metric}, {method} (peer: {peer})", mean, other, "", goal, note, higher=True)


def details_of(
    tuned: Mapping[str, tune.Tuned], weights: Sequence[float], figures: Mapping[str, Figures]
) -> dict[str, object]:
    """Return what is kept beside the rows: what was chosen, on what, and how sure the differences are."""
    differences = {
        f"{BLEND} - {name}": [interval(figures[BLEND][:, column] - values[:, column]) for column in (0, 1)]
        for name, values in figures.items()
        if name != BLEND
    }
    intervals = {name: [interval(values[:, column]) for column in (0, 1)] for name, values in figures.items()}
    return {
        "chosen": {name: asdict(one) for name, one in tuned.items()},
        "weights": dict(zip(tuned, weights, strict=True)),
        "users": len(figures[BLEND]),
        "intervals": intervals,
        "paired differences": differences,
    }


def shortened(pairs: Pairs) -> Pairs:
    """Return the first users' part of a set."""
    users = np.arange(min(QUICK_USERS, pairs.known.customers))
    return Pairs(pairs.known.take(users), pairs.wanted[users])


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; the harness asks for `only`, which there is none of."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("set", choices=sorted(SETS))
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="where the set's files lie")
    parser.add_argument("--quick", action="store_true", help="some users, first settings only; nothing is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.set_defaults(only=None)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure one set."""
    arguments = parse(argv)
    public, details = SETS[arguments.set], {}

    def group() -> Iterator[Row]:
        pairs = public.read(arguments.data)
        pairs = shortened(pairs) if arguments.quick else pairs
        part = cut(pairs.known, SEED)
        tuned = tuned_on(part)
        models = {name: tune.fitted(name, one.settings, part) for name, one in tuned.items()}
        weights = find_weights(list(models.values()), part.window())
        models = {name: tune.fitted(name, one.settings, pairs) for name, one in tuned.items()}
        models[BLEND] = Blend(tuple(models.values()), weights)
        figures = ranked(models, pairs)
        details.update(details_of(tuned, weights, figures))
        yield from rows_of(arguments.set, public, figures)

    rows = measure_groups({arguments.set: group}, None)
    return finish(f"quality_{arguments.set}", rows, arguments, details)


if __name__ == "__main__":
    sys.exit(main())
