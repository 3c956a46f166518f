"""The performance page and the README's figures, from results files."""

from __future__ import annotations

import pytest

from docs._generate import tuner
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


def test_the_tuners_figures_are_those_of_the_results_files():
    """Else: python -m docs._generate.performance."""
    page = (ROOT / tuner.PAGE).read_text(encoding="utf-8")
    assert insert_figures(page, tuner.render_tuner(read_results())) == page


def test_the_tuners_figures_are_of_the_rows_that_they_name():
    """Made up: each figure differs, so that none can stand in another's place."""
    known = {tuner.PUBLIC: _tuner_results(0.1, 4), tuner.HELD_OUT: _tuner_results(0.5, 2), tuner.VARIANTS: _variants()}
    text = tuner.render_tuner(known)
    first, second, third = (part.splitlines() for part in text.split("\n\n") if part.startswith("|"))
    assert first[2].endswith("| .50 (.51 to .52) | .55 (.56 to .57) |") and first[2].startswith("| 2 held out")
    assert first[3].endswith("| .10 (.11 to .12) | .15 (.16 to .17) |") and first[3].startswith("| 4 for development")
    assert first[4] == "| of these 3 with categories | .28 (.20 to 1.30) | .60 (.50 to .70) |"
    assert first[-1] == "| all 4, in lanes, 5 seeds | .20 (.21 to .22) | .25 (.26 to .27) |"
    assert second[2:] == ["| SMAC3 | 2 | 8 | .40 (.41 to .42) | .45 (.46 to .47) |"]
    assert len(third) == 2 + len(tuner.TRIED)
    assert third[3].startswith("| one proposal in four by the ratio of two Parzen densities | 2 | 41 | ")
    assert third[3].endswith(" | 1.01 (1.11 to 1.21) | 1.04 (1.14 to 1.24) | .91 (.81 to .93) | .94 (.84 to .96) |")
    words = " ".join(text.split())
    assert "After 120 trials (3 seeds) it is .18 (.19 to .20)." in words
    assert "the 4 have .70 (.60 to .80) and .70 (.60 to .80)." in words
    assert "Of all 3 tuners, by the 2 seeds that all of them ran, its mean rank is 1.2 after 28 trials" in words
    assert "and 1.2 after 60, the best of the others' 1.9 and 1.9." in words


def _variants():
    rows, notes, by_problem = [], {}, {}
    for place, name in enumerate(tuner.TRIED):
        for mark, ours in ((28, 1 + 0.01 * place), (60, 1.03 + 0.01 * place)):
            workload = f"regret as a part of the peer's: {name} (peer: bayes), rounds, {mark} trials"
            rows.append({"workload": workload, "ours": ours, "peer": 1.0})
            notes[workload] = (
                f"{40 + place} pairs, 1 won, 1 lost; 90 % of the ratio: {ours + 0.1:.2f} to {ours + 0.2:.2f}; with "
                f"floors ten times as high {ours - 0.1:.2f} ({ours - 0.2:.2f} to {ours - 0.08:.2f}); claim: less; worst"
            )
            by_problem[workload] = {"a": 1.0, "b": 1.0}
    return {"rows": rows, "notes": notes, "by_problem": by_problem}


def _tuner_results(ratio, problems):
    known, marks = {"rounds": (problems, 10), "lanes": (problems, 5)}, {28: 0.0, 60: 0.05}
    rows, notes = [], {}

    def add(workload, ours, pairs, peer=1.0):
        rows.append({"workload": workload, "ours": ours, "peer": peer})
        notes[workload] = (
            f"{pairs} pairs, 1 won, 1 lost; 90 % of the ratio: {ours + 0.01:.2f} to {ours + 0.02:.2f}; "
            "with floors ten times as high 0.70 (0.60 to 0.80); claim: less; worst: a 2.00"
        )

    regret = "regret as a part of the peer's: "
    for mark, more in marks.items():
        rank = f"mean rank of all 3 tuners: rounds, {mark} trials"
        rows += [{"workload": rank.replace("all 3", "the 2"), "ours": 1.0, "peer": 1.5}]
        rows += [{"workload": rank, "ours": 1.2, "peer": 1.9}]
        notes[rank] = f"{problems * 2} runs of each: bayes 1.20"
        for mode, (of, seeds) in known.items():
            add(f"{regret}Optuna's TPE, {mode}, {mark} trials", ratio + more + 0.1 * (mode == "lanes"), of * seeds)
        add(f"{regret}random, rounds, {mark} trials", 0.01, problems * 10)
        add(f"{regret}SMAC3, rounds, {mark} trials", 0.4 + more, problems * 2)
    add(f"{regret}Optuna's TPE, rounds, 120 trials", 0.18, problems * 3)
    headings = ["tuner", "numbers (4)", "categories (3)", "conditions (2)", "failures (1)", "from sklearn (1)"]
    cells = {28: "0.28 [0.20, 1.30]", 60: "0.60 [0.50, 0.70]"}
    return {
        "rows": rows,
        "notes": notes,
        "seeds": {
            **{f"{mode}, {mark}": {"bayes": [seeds] * 2} for mode, (_, seeds) in known.items() for mark in marks},
            "rounds, 120": {"bayes": [3, 3]},
        },
        "tables": {
            f"rounds, {mark}": {"classes beside tpe": [headings, ["tpe", *"-----"], ["bayes", "-", *[cells[mark]] * 4]]}
            for mark in marks
        },
    }
