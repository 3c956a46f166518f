"""The page on instances has the tables that the model gives today, and says of them what they say."""

from __future__ import annotations

import json
from pathlib import Path

from docs._generate.markdown import table
from regiondag.accounting.prices import read_prices
from scripts.bench.gpu import cost_tables

ROOT = Path(__file__).parents[2]


def test_predicted_figures():
    """`python -m scripts.bench.gpu.costs` prints them, and writes the file."""
    page = (ROOT / "docs/guides/instances.md").read_text(encoding="utf-8")
    made = cost_tables.to_keep(read_prices(), cost_tables.Job())
    kept = (ROOT / f"scripts/bench/results/{cost_tables.PREDICTED}.json").read_text(encoding="utf-8")
    assert json.loads(kept) == json.loads(json.dumps(made))
    for one in (one for one in made.values() if isinstance(one, dict)):
        assert table(one["headings"], one["rows"]) in page
    parts = [[float(row[column]) for row in cost_tables.published_rows()] for column in (6, 8)]
    for found in parts:
        assert f"{min(found):.2f} to {max(found):.2f}" in page
