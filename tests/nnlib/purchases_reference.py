"""The next-items protocol as plain dicts and lists: what the import must give, slowly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nnlib.importing.histories import PARTS

History = Mapping[str, Mapping[str, list[str]]]  # region -> customer -> items, oldest first


def reference_histories(purchases: Iterable[tuple[str, str, str, Any]], min_items: int) -> History:
    first: dict[str, dict[str, dict[str, Any]]] = {}
    for region, customer, item, time in purchases:
        items = first.setdefault(region, {}).setdefault(customer, {})
        if item not in items or time < items[item]:
            items[item] = time
    return {
        region: {
            customer: sorted(items, key=lambda item: (items[item], item))
            for customer, items in sorted(customers.items())
            if len(items) >= min_items
        }
        for region, customers in sorted(first.items())
    }


def reference_catalogue(history: History) -> tuple[str, ...]:
    return tuple(sorted({item for region in history.values() for items in region.values() for item in items}))


def reference_split(customers: Mapping[str, Sequence[str]], items: Sequence[str]) -> dict[str, list[Any]] | None:
    """(customer, input units, target units) of each part, None when a part would be empty."""
    number = {item: n for n, item in enumerate(items)}
    rows: dict[str, list[Any]] = {part: [] for part in PARTS}
    for customer, bought in customers.items():
        units = [number[item] for item in bought]
        cut = len(units) * 8 // 10
        past, test = units[:cut], units[cut:]
        kept = len(past) - len(past) // 10
        for part, inputs, targets in (
            ("train", past[:kept], past[:kept]),
            ("valid", past[:kept], past[kept:]),
            ("final", past, past),
            ("test", past, test),
        ):
            if targets:
                rows[part].append((customer, sorted(inputs), sorted(targets)))
    return rows if all(rows.values()) else None
