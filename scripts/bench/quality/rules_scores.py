"""NDCG@20 of every customer by every candidate, on windows of the past; kept, since it takes minutes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scripts.bench.quality.rules_shop import (
    FOREVER,
    Floats,
    History,
    Longs,
    Model,
    Shop,
    Window,
    ease,
    ials,
    knn,
    popularity,
    standard,
    window,
)

DAYS = 28  # of a window
AHEAD, NIGHTS = 7, 8  # days from one night of the walk to the next
WEIGHTS = [w for w in itertools.product((1.0,), (0.0, 0.5), (0.0, 0.25, 0.5, 1.0), (0.0, 0.5, 1.0)) if any(w[1:])]
PARTS = ("ease 20 40", "knn 40 80", "recent 10 1", "ials 40 80")  # of a blend, in the order of WEIGHTS


@dataclass(frozen=True, eq=False)
class Scored:
    """One window: NDCG@20 (candidates, customers), who was asked, and his country."""

    names: tuple[str, ...]
    ndcg: NDArray[np.float64]
    customer: Longs
    region: Longs

    def take(self, chosen: NDArray[np.bool_]) -> Scored:
        """Return some customers."""
        return Scored(self.names, self.ndcg[:, chosen], self.customer[chosen], self.region[chosen])


def singles(history: History) -> Iterator[tuple[str, Model]]:
    """Fit all candidates but blends; a name says family, half-life of the counts, half-life of the asked."""
    yield from _without_ials(history)
    yield "ials 40 80", ials(history, 40, 80)


def _without_ials(history: History) -> Iterator[tuple[str, Model]]:
    yield "popularity", popularity(history)
    for half_life, own in itertools.product((5, 10, 20), (0, 1, 5)):
        yield f"recent {half_life} {own}", popularity(history, half_life, own)
    for counts, asked, norm in ((FOREVER, FOREVER, 0.5), (140, 170, 0.5), (40, 80, 0.35), (40, 40, 0.5)):
        yield f"knn {counts:g} {asked:g}", knn(history, counts, asked, norm=norm)
    for counts, several in ((FOREVER, (FOREVER, 80)), (100, (80, 40)), (40, (80, 40)), (20, (80, 40))):
        for asked, model in zip(several, ease(history, counts, several), strict=True):
            yield f"ease {counts:g} {asked:g}", model


def score(asked: Window) -> Scored:
    """Fit every candidate on what a window's first day knows, and measure it on the window."""
    names: list[str] = []
    found: list[Floats] = []
    parts: dict[str, Floats] = {}
    for name, model in singles(asked.history):
        scores = model(asked)
        names.append(name)
        found.append(asked.ndcg(scores))
        if name in PARTS:
            parts[name] = standard(scores)
    for weights in WEIGHTS:
        mixed = sum(weight * parts[name] for weight, name in zip(weights, PARTS, strict=True) if weight)
        names.append("blend " + " ".join(f"{weight:g}" for weight in weights))
        found.append(asked.ndcg(np.asarray(mixed, np.float32)))
    return Scored(tuple(names), np.stack(found).astype(float), asked.asked, asked.history.shop.region[asked.asked])


RECIPES = ("recent 5 1", "recent 10 1", "recent 20 1", "knn 40 80", "ease 1e+09 1e+09", "ease 100 80", "ease 40 80")
BLEND = "blend"  # the eighth: EASE 40 80 and half of recent 10 1


@dataclass(frozen=True)
class Past:
    """A shop's windows, scored once and kept in a folder."""

    shop: Shop
    folder: Path

    def window(self, number: int) -> Scored:
        """Return window `number` counted from the last one, which is 1."""
        path = self.folder / f"window-{number}.npz"
        if not path.exists():
            _save(path, score(window(self.shop, self.shop.end - DAYS * number, DAYS)))
        return _load(path)

    def night(self, number: int, kind: str) -> Scored:
        """Return the recipes on a night of the walk, 0 to NIGHTS - 1, by when they were fitted.

        `name@-28` was fitted 28 days before. `valid`: on the 28 days before the night; those that were fitted later
        than 28 days ago have seen some of them. `serve`: on the 7 days after it.
        """
        path = self.folder / f"{kind}-{number}.npz"
        if not path.exists():
            for (one, night), scored in _walk(self.shop).items():
                _save(self.folder / f"{one}-{night}.npz", scored)
        return _load(path)


def _walk(shop: Shop) -> dict[tuple[str, int], Scored]:
    """Fit all recipes on every day that a night needs, and measure them on the nights' windows."""
    nights = [shop.end - AHEAD * (NIGHTS - number) for number in range(NIGHTS)]
    windows = {("valid", n): window(shop, night - DAYS, DAYS) for n, night in enumerate(nights)}
    windows |= {("serve", n): window(shop, night, AHEAD) for n, night in enumerate(nights)}
    found: dict[tuple[str, int], dict[str, Floats]] = {key: {} for key in windows}
    for day in sorted({*nights, *(night - DAYS for night in nights)}):
        models = dict(_recipes(shop.before(day)))
        for (kind, n), asked in windows.items():
            ago = nights[n] - day
            if (ago >= 0 and day in nights) or ago == DAYS:
                found[kind, n] |= {f"{name}@{-ago}": asked.ndcg(model(asked)) for name, model in models.items()}
    return {
        key: Scored(
            tuple(found[key]), np.stack(list(found[key].values())).astype(float), asked.asked, shop.region[asked.asked]
        )
        for key, asked in windows.items()
    }


def _recipes(history: History) -> Iterator[tuple[str, Model]]:
    known = {name: model for name, model in _without_ials(history) if name in RECIPES or name == "popularity"}
    one, other = known["ease 40 80"], known["recent 10 1"]
    yield from known.items()
    yield BLEND, lambda asked: standard(one(asked)) + np.float32(0.5) * standard(other(asked))


def _load(path: Path) -> Scored:
    with np.load(path) as kept:
        return Scored(tuple(map(str, kept["names"])), kept["ndcg"].astype(float), kept["customer"], kept["region"])


def _save(path: Path, made: Scored) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, names=made.names, ndcg=made.ndcg.astype(np.float32), customer=made.customer, region=made.region)
    partial.replace(path)
