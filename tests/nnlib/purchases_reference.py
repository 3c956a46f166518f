"""The splits by windows as plain dicts and lists: what the import must give, slowly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nnlib.importing.splits import Split

Had = tuple[str, int, int | None, int | None]  # item, first day; where buying again counts last day, on how many days
Row = tuple[str, list[Had], list[str]]  # a customer, what he had, what he took then


def reference_parts(purchases: Iterable[tuple[str, str, str, int]], split: Split) -> dict[str, dict[str, list[Row]]]:
    """Return the parts of each region; those of which nobody is asked are missing."""
    lines = list(purchases)
    end = max(day for *_, day in lines) + 1
    valid, test = end - split.test - split.validate, end - split.test
    windows = {
        "train": (valid, None),
        "valid": (valid, test),
        "final": (test, None),
        "test": (test, end),
        "all": (end, None),
    }
    found: dict[str, dict[str, list[Row]]] = {}
    for region in sorted({line[0] for line in lines}):
        customers: dict[str, list[tuple[str, int]]] = {}
        for where, customer, item, day in lines:
            if where == region:
                customers.setdefault(customer, []).append((item, day))
        for part, window in windows.items():
            rows = [_row(name, customers[name], window, split) for name in sorted(customers)]
            if window[1] is None:
                kept = [row for row in rows if row[1]] or rows
            else:
                kept = [row for row in rows if len(row[1]) >= split.min_history and row[2]]
            if kept:
                found.setdefault(region, {})[part] = kept
    return found


def _row(name: str, bought: Sequence[tuple[str, int]], window: tuple[int, int | None], split: Split) -> Row:
    start, end = window
    had: dict[str, set[int]] = {}
    for item, day in bought:
        if day < start:
            had.setdefault(item, set()).add(day)
    history = [
        (item, min(days), *((max(days), len(days)) if split.repeats else (None, None)))
        for item, days in sorted(had.items())
    ]
    if end is None:
        return name, history, sorted(had)
    then = {item for item, day in bought if start <= day < end}
    return name, history, sorted(then if split.repeats else then - set(had))
