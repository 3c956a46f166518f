"""A model card: what a champion is, of which data, how good, until when, and what it is not for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from regiondag.registry.describe import VersionFacts, describe_version
from regiondag.registry.figures import BESIDE, Figure, name_beside, show_interval
from regiondag.registry.read import Champion
from regiondag.registry.tables import show_time
from regiondag.util.text import escape_markdown

FEW = 30  # customers below whom a test is mostly chance
LIMITS = """\
- It knows what customers bought before {until}. Items that came later are never recommended, and it grows old:
  fit its recipe anew rather than use it for months.
- A customer without any purchase gets what is popular; nothing is known of him.
- It was judged by whether customers bought, in the days after, what it would have shown them first. Nobody was shown
  anything: what people do when they see the list was not measured, nor was profit.
- {customers}
- It learns from what was bought, and so repeats what that was shaped by: price, season, stock, earlier lists."""


def write_card(champion: Champion, files: Mapping[str, str], usage: str) -> str:
    """Return the card as Markdown; `files` are SHA-256 by name, `usage` is how the model is asked."""
    facts = describe_version(champion, serves=False)
    return (
        "\n\n".join(
            [
                f"# {escape_markdown(facts.region)}: what to recommend, study {escape_markdown(facts.study)}",
                f"{escape_markdown(facts.recipe)}, version {facts.version}, from the run {escape_markdown(facts.run)}, "
                f"in the registry since {show_time(facts.promoted)}. {usage}",
                "## How good",
                _how_good(facts),
                "## Of which data",
                f"Purchases before {facts.fitted_until or 'the day it was made'}. For the test its "
                f"recipe was fitted on those before {facts.tested_from or 'the test window'}, so that nothing was "
                "known of what was asked.",
                _table(("file of the run", "SHA-256"), [*facts.inputs.items()]),
                "## Recipe",
                f"```json\n{_recipe(champion)}\n```",
                f"Seed {facts.made.get('seed', '?')}, code {facts.made.get('code', '?')[:12]}; with the data above it "
                "makes this model again.",
                "## Limits",
                LIMITS.format(until=facts.fitted_until or "it was made", customers=_chance(facts)),
                "## Files",
                _table(("file", "SHA-256"), [*files.items()]),
            ]
        )
        + "\n"
    )


def write_program_card(champion: Champion, files: Mapping[str, str]) -> str:
    """Return the same of what a program has made, of which less is known."""
    facts = describe_version(champion, serves=False)
    figures = [(one.metric, f"{one.value:.4f}") for one in facts.figures]
    return (
        "\n\n".join(
            [
                f"# {escape_markdown(facts.region)}: study {escape_markdown(facts.study)}",
                f"{escape_markdown(facts.recipe)}, version {facts.version}, from the run {escape_markdown(facts.run)}, "
                f"in the registry since {show_time(facts.promoted)}. `artifact` is what the program has left.",
                "## What it reported",
                _table(("last training", "value"), figures),
                "## How it was made",
                f"```json\n{_recipe(champion)}\n```",
                f"Seed {facts.made.get('seed', '?')}; the program with its files:",
                _table(("file of the run", "SHA-256"), [*facts.inputs.items()]),
                "## Files",
                _table(("file", "SHA-256"), [*files.items()]),
            ]
        )
        + "\n"
    )


def _how_good(facts: VersionFacts) -> str:
    if not facts.figures:
        return "It was not tested: nobody of this region bought anything in the days that were kept for it."
    names = [name for name in BESIDE if any(getattr(one, name) is not None for one in facts.figures)]
    rows = [_row(figure, names) for figure in facts.figures]
    table = _table(
        ("test", "this model", "95 %", *(name_beside(name, facts.figures[0].floor_name) for name in names)), rows
    )
    return (
        f"{table}\n\nMeans over {facts.customers:,} customers; intervals are Student's. Why it serves: "
        f"{escape_markdown(facts.reason or 'nothing is noted')}."
    )


def _row(figure: Figure, names: Iterable[str]) -> tuple[str, ...]:
    beside = [getattr(figure, name) for name in names]
    texts = ("-" if value is None else f"{value:.4f}" for value in beside)
    return (figure.metric, f"{figure.value:.4f}", show_interval(figure), *texts)


def _chance(facts: VersionFacts) -> str:
    if facts.customers < FEW:
        return f"The test had {facts.customers} customers: its figures are mostly chance."
    return f"The test had {facts.customers:,} customers of one window of time; another window gives other figures."


def _recipe(champion: Champion) -> str:
    raw = champion.facts.get("recipe")
    known = raw if raw is not None else {key: champion.facts.get(key) for key in ("hyperparameters", "train")}
    return json.dumps(known, indent=1, ensure_ascii=True).replace("`", "\\u0060")


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    headings = list(headings)
    lines = [headings, ["---"] * len(headings), *(map(escape_markdown, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
