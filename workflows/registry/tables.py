"""Champions as tables, words and JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from nnlib.util.columns import fold_text
from nnlib.util.terminal import width_of
from regiondag.registry.describe import ServedRegion, VersionFacts, VersionsCompared, run_of
from regiondag.registry.figures import BESIDE, LARGEST, Figure, half_of, name_beside, show_figure_in_full
from regiondag.registry.read import Champion, Registry
from regiondag.study.families import name_floors
from regiondag.util.intervals import show_figure
from regiondag.util.terminal import Narrow, print_table
from regiondag.util.text import spell_out

NARROW = Narrow(
    drop=("since", "version"),
    fold={"served by": 12, "region": 8},
)


def title_of(registry: Registry, served: Sequence[ServedRegion]) -> str:
    """Return what the table is about, in one line."""
    broken, pinned = sum(bool(one.damage) for one in served), sum(one.pinned for one in served)
    notes = [f"{count} {words}" for count, words in ((pinned, "pinned"), (broken, "damaged")) if count]
    return ", ".join([f"{registry.path.name}: {len(served)} regions", *notes])


def headings_of(served: Sequence[ServedRegion]) -> list[str]:
    """Return the columns' names; the figures are of the metric that regions are judged by."""
    metrics = {one.figure.metric for one in served if one.figure}
    metric = f"test {metrics.pop()}" if len(metrics) == 1 else "test"
    pinned = ["pinned"] if any(one.pinned for one in served) else []
    return ["region", "since", "version", metric, *_list_floor(served), *pinned, "served by"]


def _list_floor(served: Sequence[ServedRegion]) -> list[str]:
    """Return the heading of what had to be beaten; none where that is not known of any region."""
    names = [one.figure.floor_name for one in served if one.figure and one.figure.floor is not None]
    return [name_floors(names)] if names else []


def rows_of(served: Sequence[ServedRegion]) -> list[list[str]]:
    """Return a row a region, in the columns of `headings_of`."""
    pinned = any(one.pinned for one in served)
    floor = _list_floor(served)
    return [
        [
            spell_out(one.region),
            show_time(one.since),
            one.version or "-",
            show_figure(one.figure.value, half_of(one.figure), one.customers) if one.figure else "-",
            *([show_figure(one.figure.floor) if one.figure else "-"] if floor else []),
            *(["yes" if one.pinned else ""] if pinned else []),
            "DAMAGED" if one.damage else spell_out(one.recipe),
        ]
        for one in served
    ]


def served_to_json(registry: Registry, served: Sequence[ServedRegion]) -> str:
    """Return the table for programs."""
    known = {"study": registry.path.name, "registry": str(registry.path), "regions": [asdict(one) for one in served]}
    return json.dumps(known, indent=1, ensure_ascii=False)


def version_to_json(facts: VersionFacts) -> str:
    """Return a version for programs."""
    return json.dumps(asdict(facts), indent=1, ensure_ascii=False)


def version_in_words(registry: Registry, facts: VersionFacts, champion: Champion) -> str:
    """Return all that is known of a version, a fact a line."""
    state = "serves" if facts.serves else "does not serve"
    lines = [f"{facts.region}, {facts.version}: {state}{', pinned' if facts.pinned else ''}"]
    run = run_of(registry, champion)
    room = width_of(sys.stdout)
    table = [
        ("run", f"{facts.run}{'' if run else ' (removed)'}"),
        ("since", f"{show_time(facts.promoted)}, by {facts.by}"),
        ("served by", facts.recipe),
        ("because", facts.reason or "-"),
        ("fitted until", f"{facts.fitted_until}, the first day it has not seen" if facts.fitted_until else "-"),
        ("tested from", facts.tested_from or "-"),
        *((f"test {figure.metric}", _figure_in_words(figure)) for figure in facts.figures),
        *(
            [("customers", f"{facts.customers:,}")]
            if facts.customers or facts.recipe.split(",")[0] != "program"
            else []
        ),
        *((f"data {name}", digest) for name, digest in facts.data.items()),
        *((f"input {name}", digest) for name, digest in facts.inputs.items()),
        *((file.name, f"{file.sha256} {file.damage or 'as it was'}") for file in facts.files if file.sha256),
        ("folder", facts.folder),
        *facts.made.items(),
    ]
    width = max(len(name) for name, _ in table)
    for name, text in table:
        lines += fold_text(f"  {name:<{width}}  {spell_out(text)}", room, " " * 4)
    return "\n".join(lines)


def _figure_in_words(figure: Figure) -> str:
    others = {name_beside(name, figure.floor_name): getattr(figure, name) for name in BESIDE}
    beside = [f"{words} {value:.4f}" for words, value in others.items() if value is not None]
    return "; ".join([show_figure_in_full(figure), *beside])


def differences_to_json(compared: VersionsCompared) -> str:
    """Return what two versions differ in, for programs."""
    return json.dumps(asdict(compared), indent=1, ensure_ascii=False)


def print_differences(compared: VersionsCompared) -> None:
    """Print what two versions differ in, side by side."""
    rows = [[_mark(one.fact, one.changed), *_cells(one.old, one.new)] for one in compared.facts]
    narrow = Narrow(fold={"fact": 12, compared.old: 12, compared.new: 12})
    print_table(f"{compared.region}: old and new", ["fact", compared.old, compared.new], rows, narrow)
    if not compared.comparable:
        print("The test data are not the same, so the figures do not say which is better.")


def _mark(fact: str, changed: bool) -> str:
    return fact if changed else f"{fact} (same)"


def _cells(*values: str | None) -> Iterator[str]:
    yield from ("-" if value is None else spell_out(value) for value in values)


def show_time(when: float) -> str:
    """Return a time for people."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when)) if 0 < when < LARGEST * 10 else "-"
