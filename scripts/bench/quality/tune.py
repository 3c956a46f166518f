"""Each family's settings, chosen on the validation part alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnlib.families import family_of
from nnlib.families.family import Fitted, Size, Value
from nnlib.util.memory import show_bytes
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.quality.metrics import measure, without_known
from scripts.bench.quality.sets import Pairs

USERS = 3000  # whose items are ranked for each setting; all are learned from
MANY = 10_000  # items of a large set
MEMORY = 6 << 30  # a family that needs more is left out
SCORING = {"low_pass", "sharpen"}  # hyperparameters that a fitted model can be given anew

Settings = Mapping[str, Value]
# Where the search begins, and the values that it tries one hyperparameter after the other, keeping the best.
SEARCH: dict[str, tuple[Settings, Mapping[str, Sequence[Value]]]] = {
    "popularity": ({}, {}),
    "knn": ({}, {"k": (20, 50, 200), "q": (0.25, 0.45, 0.5)}),
    "ease": ({}, {"l2": (100.0, 200.0, 500.0, 1000.0)}),
    "graph": (
        {"vectors": 128},
        {
            "item_exponent": (0.35, 0.4, 0.5, 0.6),
            "customer_exponent": (0.3, 0.5, 0.6),
            "vectors": (32, 64, 256, 512, 1024),
            "low_pass": (0.03, 0.3, 1.0, 3.0),
            "sharpen": (0.5, 1.0, 1.5, 2.0),
        },
    ),
    "ials": (
        {"dims": 128, "sweeps": 8},
        {"alpha": (0.03, 0.1, 1.0, 3.0), "l2": (0.0005, 0.001, 0.002, 0.005), "nu": (0.8,), "dims": (64, 256)},
    ),
    "elsa": (
        {"batch": 512, "epochs": 20, "learning_rate": 0.1},
        {"learning_rate": (0.05, 0.2, 0.4), "dims": (128, 512), "epochs": (10, 40)},
    ),
}

# Of sets with tens of thousands of items, where a fit takes a minute.
LARGE: dict[str, tuple[Settings, Mapping[str, Sequence[Value]]]] = {
    "popularity": ({}, {}),
    "knn": ({}, {"q": (0.25, 0.45), "k": (50, 300)}),
    "graph": (
        {"vectors": 512, "customer_exponent": 0.3, "item_exponent": 0.45},
        {
            "customer_exponent": (0.2, 0.4),
            "item_exponent": (0.35, 0.5),
            "low_pass": (0.03, 0.05, 0.2),
            "sharpen": (0.5, 1.0, 2.0),
            "vectors": (1024,),
        },
    ),
    "ials": ({"dims": 128, "sweeps": 8, "alpha": 0.03}, {"l2": (0.001, 0.01), "alpha": (0.1,)}),
    "elsa": ({"dims": 256, "batch": 1024, "epochs": 10, "learning_rate": 0.2}, {"epochs": (20,)}),
}


@dataclass(frozen=True)
class Tuned:
    """A family's best settings, all of them, what they reach on the validation part, and how many were tried."""

    family: str
    settings: Settings
    recall: float
    tried: int
    seconds: float  # of a fit with the best settings


def searched(pairs: Pairs) -> dict[str, tuple[Settings, Mapping[str, Sequence[Value]]]]:
    """Return the families with what is tried of each."""
    return LARGE if len(pairs.known.items) >= MANY else SEARCH


def some(pairs: Pairs, seed: int = 1, count: int = USERS) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return users who want something, at most `count`, at random."""
    return np.sort(np.random.default_rng(seed).permutation(pairs.asked)[:count])


def fitted(family: str, settings: Settings, pairs: Pairs) -> Fitted:
    """Return a family fitted on the known part; NotMeasuredError where that takes too much memory."""
    module, known = family_of(family), pairs.known
    hyperparameters = {**module.DEFAULTS, **settings}
    needed = module.bytes_needed(Size(known.customers, len(known.items), known.bought.nonzeros), hyperparameters)
    if needed > MEMORY:
        raise NotMeasuredError(f"{family} would take {show_bytes(needed)}")
    return module.fit(known, hyperparameters, 0)


def tune(family: str, part: Pairs) -> Tuned:
    """Return the best settings of a family on the validation part, by Recall@20."""
    start, ranges = searched(part)[family]
    best, model = _tried(family, start, part)
    count = 1
    for name, values in ranges.items():
        known = best, model
        for value in values:
            settings = {**known[0].settings, name: value}
            found, other = _tried(family, settings, part, known if name in SCORING else None)
            count += 1
            if found.recall > best.recall:
                best, model = found, other
    return replace(best, settings={**family_of(family).DEFAULTS, **best.settings}, tried=count)


def _tried(
    family: str, settings: Settings, part: Pairs, alike: tuple[Tuned, Fitted] | None = None
) -> tuple[Tuned, Fitted]:
    """Return what a family reaches with these settings, fitted or made of a model that differs in scoring alone."""
    began = time.monotonic()
    if alike is None:
        model = fitted(family, settings, part)
        seconds = time.monotonic() - began
    else:
        module, seconds = family_of(family), alike[0].seconds
        model = module.restore(alike[1].arrays(), {**module.DEFAULTS, **settings}, part.known.regions)
    users = some(part)
    scores = without_known(model.scores(part.known, users), part.known, users)
    recall, gain = measure(scores, part.wanted[users]).mean(axis=0)
    print(f"{family} {settings}: {recall:.4f} {gain:.4f}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return Tuned(family, settings, float(recall), 1, seconds), model
