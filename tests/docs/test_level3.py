"""The tables of predictions in docs/concepts are those that the model gives today."""

from __future__ import annotations

import json
from pathlib import Path

from docs._generate.markdown import table
from scripts.bench.level3 import predict

ROOT = Path(__file__).parents[2]


def test_predicted_figures():
    """`python -m scripts.bench.level3.predict` prints them, and writes the file."""
    pages = "".join((ROOT / f"docs/concepts/{name}.md").read_text("utf-8") for name in ("level3", "beyond-one-machine"))
    made = predict.tables()
    for headings, rows in made.values():
        assert table(headings, rows) in pages
    kept = json.loads((ROOT / f"scripts/bench/results/{predict.NAME}.json").read_text(encoding="utf-8"))
    assert kept["predicted, not measured"] == {name: list(map(list, rows)) for name, (_, rows) in made.items()}
