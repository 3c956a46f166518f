"""Trials as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from nnlib.contract import Status
from regiondag.study.families import FAMILY, name_floors
from regiondag.study.space import Value
from regiondag.trials.query import Places
from regiondag.trials.rows import RunTrials, TrialRow, hyperparameter_names
from regiondag.util.intervals import show_figure
from regiondag.util.terminal import Narrow
from regiondag.util.text import show_value, spell_out

CSV_COLUMNS = (
    *("study", "run", "region", "slug", "trial", "status", "metric", "minimize", "value"),
    *("epochs", "best_epoch", "seconds", "settled", "reason", "won", "stderr", "customers", "floor"),
)


def sort_rows(rows: Sequence[TrialRow], by: str) -> list[TrialRow]:
    """Return the rows `by` trial (as they are), value (the best first) or seconds (the longest first).

    Values of different metrics are not compared: each metric's trials stand together. Rows without what is sorted by
    come last.
    """
    if by == "trial":
        return list(rows)
    keys: dict[str, Callable[[TrialRow], tuple[Any, ...]]] = {
        "value": lambda row: (row.metric, row.minimize, not row.ok, row.cost),
        "seconds": lambda row: (row.seconds is None, -(row.seconds or 0.0)),
    }
    return sorted(rows, key=keys[by])


def summary_line(trials: RunTrials) -> str:
    """Return what the table is about, in one line."""
    rows = trials.rows
    planned = sum(region.spec.search.planned for region in trials.regions)
    running = sum(row.status == Status.RUNNING for row in rows)
    pruned = sum(row.status == Status.PRUNED for row in rows)
    failed = sum(row.failed for row in rows)
    names = {row.region for row in rows} or {region.spec.name for region in trials.regions}
    only = f", {names.pop()}" if len(names) == 1 else ""
    floors = {show_figure(row.floor, None, row.customers) for row in rows if row.floor is not None}
    floor = f"; {_name_floors(rows)} {floors.pop()}" if only and len(floors) == 1 else ""
    return (
        f"{trials.study}{only}: {len(rows) - running} of {planned} trials settled, {failed} failed, {pruned} pruned, "
        f"{running} waiting or running{floor}"
    )


# --- text, JSON, CSV ---------------------------------------------------------------------------------------


def list_headings(rows: Iterable[TrialRow]) -> list[str]:
    """Return the columns' names: a value for each metric in use, what it stands on, and every hyperparameter.

    Where trials are of families, each has hyperparameters of its own: they stand in one column.
    """
    rows = list(rows)
    names = hyperparameter_names(rows)
    first = ["region", "trial", "status", *_metrics(rows), *_list_judged(rows)]
    if FAMILY in names:
        return [*first, FAMILY, "settings", "seconds", "reason"]
    return [*first, *names, "epochs", "seconds", "reason"]


def to_rows(rows: Iterable[TrialRow]) -> list[list[str]]:
    """Return the rows as text, in the columns of `list_headings`."""
    rows = list(rows)
    metrics, names, judged = _metrics(rows), hyperparameter_names(rows), len(_list_judged(rows))
    return [
        [
            spell_out(row.region),
            str(row.trial),
            spell_out(row.status) + " (won)" * row.won,
            *(format_value(row.value) if metric == row.metric else "-" for metric in metrics),
            *_judged(row)[:judged],
            *(_settings(row) if FAMILY in names else [*_values(row, names), format_value(row.epochs)]),
            "-" if row.seconds is None else f"{row.seconds:.1f}",
            spell_out(row.reason),
        ]
        for row in rows
    ]


def when_narrow(rows: Iterable[TrialRow]) -> Narrow:
    """Return what a narrow terminal does to the columns of `list_headings`, those of the queue among them."""
    rows = list(rows)
    drop = ["seconds", "epochs", "priority", "customers", "machine"]
    if not any(row.reason for row in rows):
        drop.insert(0, "reason")
    if len({row.region for row in rows}) == 1:  # of which the title tells
        drop = ["region", *drop, _name_floors(rows)]
    drop += ["status", "settings", *reversed(hyperparameter_names(rows))]
    return Narrow(tuple(name for name in drop if name != FAMILY), {"settings": 20, "reason": 20, "region": 12})


def _list_judged(rows: Sequence[TrialRow]) -> list[str]:
    """Return the columns of what a value stands on, and of what it has to beat.

    A loss has none, as it is no mean over customers; a program says its error alone.
    """
    if any(row.customers for row in rows):
        return ["error", "customers", _name_floors(rows)]
    return ["error"] if any(row.stderr is not None for row in rows) else []


def _name_floors(rows: Iterable[TrialRow]) -> str:
    return name_floors(row.floor_name for row in rows if row.floor is not None)


def _judged(row: TrialRow) -> list[str]:
    error = "-" if row.stderr is None else f"{row.stderr:.4f}"
    return [error, str(row.customers) if row.customers else "-", format_value(row.floor)]


def _values(row: TrialRow, names: Iterable[str]) -> list[str]:
    return [format_value(row.hyperparameters.get(name)) for name in names]


def _settings(row: TrialRow) -> list[str]:
    family = str(row.hyperparameters.get(FAMILY, "-"))
    settings = [
        f"{name.removeprefix(f'{family}_')} {show_value(value)}"
        for name, value in row.hyperparameters.items()
        if name != FAMILY
    ]
    return [spell_out(family), spell_out(", ".join(settings) or row.blend)]


def to_json(trials: RunTrials, rows: Iterable[TrialRow], places: Places) -> str:
    """Return `rows` as a JSON object, at full precision, each with where its job is."""
    queued = {where: asdict(place) for where, place in places.items()}
    shown = [asdict(row) | {"queued": queued.get((row.slug, row.trial))} for row in rows]
    return json.dumps({"study": trials.study, "run": trials.run, "trials": shown}, ensure_ascii=False)


def to_csv(trials: RunTrials) -> str:
    """Return all rows as CSV with a heading; times as ISO 8601 in UTC, absent values as empty fields."""
    rows = trials.rows
    names = hyperparameter_names(rows)
    metrics = list(dict.fromkeys(metric for row in rows for metric in row.metrics))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # With prefixes: a hyperparameter may be called `value`, and a metric is measured beside the one that counts.
    writer.writerow([*CSV_COLUMNS, *(f"hyperparameter.{n}" for n in names), *(f"metrics.{m}" for m in metrics)])
    for row in rows:
        known = {**asdict(row), "study": trials.study, "run": trials.run, "settled": _iso(row.settled)}
        known["reason"] = _no_formula(row.reason)
        more = [*(row.hyperparameters.get(n) for n in names), *(row.metrics.get(m) for m in metrics)]
        writer.writerow([*(known[column] for column in CSV_COLUMNS), *more])
    return text.getvalue()


def _no_formula(text: str) -> str:
    """Return what a worker wrote so that no spreadsheet takes it for a formula; the study's own names stay exact."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def format_value(value: Value | None) -> str:
    """Return a value in a few characters; `-` for none.

    >>> format_value(0.0123456), format_value(None), format_value(True)
    ('0.01235', '-', 'true')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else spell_out(str(value))


def _metrics(rows: Sequence[TrialRow]) -> list[str]:
    return list(dict.fromkeys(row.metric for row in rows))


def _iso(when: float | None) -> str:
    return "" if when is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
