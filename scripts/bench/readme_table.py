#!/usr/bin/env python3
"""Rewrite README.md's performance table from results/*.json: `readme_table.py [--check] [README]`.

Between the markers `<!-- performance:begin -->` and `<!-- performance:end -->` stands one row for each measured
workload, and one `not measured` for each benchmark of this folder without results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import harness

BEGIN, END = "<!-- performance:begin -->", "<!-- performance:end -->"
HEADINGS = ("benchmark", *harness.HEADINGS)
NOT_MEASURED = {"kernels"}  # what a compiler says, for whoever changes kernels


def benches(folder: Path) -> list[str]:
    """Return the names of the benchmarks in a folder: modules that say `BENCH = "name"`."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    return [found[1] for text in texts if (found := re.search(r'^BENCH = "([\w-]+)"$', text, re.MULTILINE))]


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what full runs left, by benchmark."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {result["bench"]: result for result in results}


def markdown(names: Iterable[str], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table and what it was measured on."""
    lines = [_line(HEADINGS), _line(["---"] * len(HEADINGS))]
    for name in sorted({*names, *results}):
        rows = [harness.row_from_json(raw) for raw in results[name]["rows"]] if name in results else []
        for row in rows or [harness.Row("all of it", None, None, "")]:
            lines.append(_line([name, *harness.cells(row)]))
    return "\n".join([*lines, "", *_origins(results)])


def _line(texts: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def _origins(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say once for each benchmark when and where it ran, and with which versions."""
    return [
        f"- {name}: {result['date']}, {result['machine']}; "
        + ", ".join(f"{package} {version}" for package, version in result["versions"].items())
        for name, result in sorted(results.items())
    ]


def insert(readme: str, text: str) -> str:
    """Return `readme` with `text` between the markers; ValueError if they are not there once, in this order."""
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in head + tail:
        raise ValueError(f"needs {BEGIN} and {END} once each, in this order")
    return f"{head}{BEGIN}\n{text}\n{END}{tail}"


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite the table, or with --check only say whether it is up to date."""
    parser = argparse.ArgumentParser(prog="scripts/bench/readme_table.py", allow_abbrev=False)
    parser.add_argument("readme", nargs="?", type=Path, default=harness.REPOSITORY / "README.md")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the table is out of date")
    arguments = parser.parse_args(argv)
    readme: Path = arguments.readme
    try:
        old = readme.read_text(encoding="utf-8")
        results = {name: kept for name, kept in read_results(harness.RESULTS).items() if name not in NOT_MEASURED}
        new = insert(old, markdown(benches(Path(__file__).parent), results))
    except (OSError, ValueError, KeyError) as error:
        print(f"{readme}: {error}", file=sys.stderr)
        return 2
    if not arguments.check:
        readme.write_text(new, encoding="utf-8")
    elif new != old:
        print(f"{readme}: the performance table is out of date; run scripts/bench/readme_table.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
