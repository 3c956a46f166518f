"""The performance page and the README's figures, from results files."""

from __future__ import annotations

import pytest

from docs._generate.performance import (
    BEGIN,
    END,
    NOT_SHOWN,
    ROOT,
    benchmarks,
    insert_figures,
    read_results,
    render_figures,
    render_performance,
)
from scripts.bench.common.harness import number

ROW = {"workload": "a|b", "ours": 1.0, "peer": 2.0, "unit": "s", "ratio": 2.0, "goal": 3, "met": True}
RESULTS = {
    "bench": "orchestration",
    "date": "2026-11-21",
    "machine": "two cores",
    "versions": {"python": "3.11.7"},
    "rows": [ROW, {**ROW, "goal_is_ratio": True, "met": False}, {**ROW, "ours": None, "goal": None, "met": None}],
}


def test_the_page_has_measured_and_unmeasured_rows():
    lines = render_performance(["orchestration", "training"], {"orchestration": RESULTS}).splitlines()
    assert lines[0] == "## orchestration"
    assert lines[4] == "| a\\|b | 1 s | 2 s | 2 | 3 s | yes |"
    assert lines[5] == "| a\\|b | 1 s | 2 s | 2 | ratio 3 | NO |"
    assert lines[6] == "| a\\|b | not measured | 2 s | 2 | - | - |"
    assert lines[8] == "2026-11-21, two cores; python 3.11.7."
    assert lines[-3:] == ["## training", "", "not measured"]


def test_goals_that_no_gpu_was_there_for_stay_visible():
    page = render_performance(["gpu"], {})
    assert page.startswith("## gpu\n\nnot measured yet.")
    wide = "| 27,278-1,024x3-27,278, batch 256, Adam, float32 (peer: "
    for row in (
        f"{wide}PyTorch, EmbeddingBag, eager) | not measured | - | - | ratio 1.3 | - |",
        f"{wide}PyTorch, EmbeddingBag, compiled) | not measured | - | - | ratio 1.1 | - |",
        f"{wide}the floor) | not measured | - | - | ratio 0.7 | - |",
        "| 784-512-512-10, batch 256, Adam, float32 (peer: PyTorch, eager) | not measured | - | - | ratio 3 | - |",
    ):
        assert row in page
    measured = render_performance(["gpu"], {"gpu-tesla-t4": {**RESULTS, "bench": "gpu-tesla-t4"}})
    assert "On [tesla-t4](#gpu-tesla-t4)" in measured and "not measured yet" not in measured


@pytest.mark.parametrize(
    ("value", "text"), [(0.0876, "0.0876 s"), (1234.5, "1,234 s"), (99.96, "100 s"), (None, "-"), (0, "0 s")]
)
def test_figures_have_three_digits(value, text):
    assert number(value, "s") == text


def test_every_benchmark_of_the_checkout_is_on_the_page():
    names = benchmarks()
    assert "orchestration" in names
    page = render_performance(names, read_results())
    for name in {*names, *read_results()} - NOT_SHOWN:
        assert f"## {name}\n" in page


def test_readme_keeps_everything_outside_the_markers():
    readme = f"head\n{BEGIN}\nold\n{END}\ntail\n"
    once = insert_figures(readme, "new")
    assert once == f"head\n{BEGIN}\nnew\n{END}\ntail\n"
    assert insert_figures(once, "new") == once


@pytest.mark.parametrize("readme", ["", "{b}", "{e}{b}", "{b}{e}{b}{e}", "{b}{b}{e}"])
def test_readme_without_markers_is_refused(readme):
    with pytest.raises(ValueError, match="once each"):
        insert_figures(readme.format(b=BEGIN, e=END), "new")


def test_the_readmes_figures_are_those_of_the_results_files():
    """Else: python -m docs._generate.performance."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    figures = render_figures(read_results())
    assert len(figures.splitlines()) == 6
    assert insert_figures(readme, figures) == readme
