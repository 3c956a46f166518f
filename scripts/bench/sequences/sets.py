"""What is learned from and asked for: public sets, each customer's last item left out, and a shop cut at a day."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.quality import rules_shop
from scripts.bench.sequences.windows import Histories, Longs, Part

VARIABLE = "REGIONDAG_SEQUENCES"
AS_OF = (
    1 << 14
)  # the day that is asked about where there are no days but an order: the item before it has the day before
WINDOW = 28  # days of the shop that are asked for, and the validation's before them


@dataclass(frozen=True, eq=False)
class Problem:
    """A set, divided."""

    valid: Part
    test: Part
    timed: bool  # days are days, and `test` is learned from up to its own first day

    def save(self, path: Path) -> None:
        """Write what the peers read."""
        arrays: dict[str, Any] = {"width": self.valid.fit.width}
        for name, part in (("valid", self.valid), ("test", self.test)):
            arrays[f"{name}_as_of"] = part.fit.as_of
            for side in ("fit", "asked", "wanted"):
                histories: Histories = getattr(part, side)
                arrays |= {f"{name}_{side}_{key}": getattr(histories, key) for key in ("indptr", "items", "days")}
        np.savez(path, **arrays)


def read_public(name: str, first: int) -> list[Longs]:
    """Return each line's numbers from the `first` on, as items numbered from 0, of a file in the folder of the data."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise NotMeasuredError(f"{VARIABLE} is not set; scripts/bench/README.md says where the sets come from")
    path = Path(folder) / name
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError as error:
        raise NotMeasuredError(f"{path} is missing; scripts/bench/README.md says where the sets come from") from error
    rows = [np.array(line.split()[first:], np.int64) for line in lines if line.strip()]
    numbers = np.unique(np.concatenate(rows))
    return [np.searchsorted(numbers, row) for row in rows]


def leave_last_out(sequences: Iterable[Longs], width: int) -> Problem:
    """Ask for each customer's last item, with all before it; learn from all but the last two. `valid` has the other."""
    known = [row for row in sequences if len(row) >= 3]
    fit = in_order([row[:-2] for row in known], width)
    valid = Part(fit, fit, in_order([row[-2:-1] for row in known], width))
    return Problem(
        valid,
        Part(fit, in_order([row[:-1] for row in known], width), in_order([row[-1:] for row in known], width)),
        False,
    )


def in_order(rows: list[Longs], width: int) -> Histories:
    """Return histories without days: an item has a day of its own, the last one that before AS_OF."""
    lengths = np.array([len(row) for row in rows])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    days = AS_OF - (np.repeat(indptr[1:], lengths) - np.arange(indptr[-1]))
    return Histories(indptr, np.concatenate(rows), days, width, AS_OF)


def read_shop() -> Problem:
    """Return the retail example: first purchases before a day, and those of the 28 days from it on."""
    shop = rules_shop.read_shop()
    return Problem(_by_days(shop, shop.end - 2 * WINDOW), _by_days(shop, shop.end - WINDOW), timed=True)


def _by_days(shop: rules_shop.Shop, start: int) -> Part:
    """Return what is known on the morning of `start`, and what those with some history take in WINDOW days."""
    window = rules_shop.window(shop, start, WINDOW)
    known = _pick(shop, shop.day < start, np.arange(len(shop.region)), start)
    later = (shop.day >= start) & (shop.day < start + WINDOW)
    asked, wanted = (_pick(shop, some, window.asked, start) for some in (shop.day < start, later))
    return Part(known, asked, wanted)


def _pick(shop: rules_shop.Shop, some: np.ndarray, customers: Longs, as_of: int) -> Histories:
    """Return what these customers took in some of the purchases."""
    place = np.full(len(shop.region), -1)
    place[customers] = np.arange(len(customers))
    owner = place[shop.customer]
    chosen = np.flatnonzero(some & (owner >= 0))
    chosen = chosen[np.lexsort((shop.item[chosen], shop.day[chosen], owner[chosen]))]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(owner[chosen], minlength=len(customers)))])
    return Histories(indptr, shop.item[chosen], shop.day[chosen], shop.items, as_of)


def made(customers: int = 300, items: int = 60) -> Problem:
    """Return made-up customers who mostly take the item after their last one, going round."""
    random = np.random.default_rng(0)
    rows = []
    for _ in range(customers):
        steps = np.where(random.random(random.integers(8, 16)) < 0.7, 1, random.integers(1, items))
        row = (random.integers(items) + np.cumsum(steps)) % items
        rows.append(row[np.sort(np.unique(row, return_index=True)[1])])
    return leave_last_out(rows, items)


def _public(name: str, first: int) -> Callable[[], Problem]:
    def read() -> Problem:
        rows = read_public(name, first)
        return leave_last_out(rows, 1 + max(int(row.max()) for row in rows))

    return read


SETS: dict[str, Callable[[], Problem]] = {
    "ml-1m": _public("ml-1m.txt", 0),
    "beauty": _public("Beauty.txt", 1),
    "retail": read_shop,
}
