"""Pictures of trials, and what a forest says of them."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from nnlib.util.process import install_line
from regiondag.cli import main
from regiondag.study.space import Choice, Integer, Real
from regiondag.trials.importance import _columns, measure_importance, place_on_scale
from regiondag.trials.plots import draw_region
from tests.workflows.commands.test_study import HOSTILE_NAMES, settle
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.trials.test_rows import region_trials

pytestmark = pytest.mark.slow

ALL = ["history", "importance", "parallel", "slices"]
OUTCOMES = [0.1 + 0.01 * (number % 7) for number in range(10)] + ["diverged", "pruned", None]
SEARCHED = (Real("rate", 0.001, 0.1, log=True), Real("noise", 0.0, 1.0), Choice("kind", ("a", "b", "c")))


def drawn(trials, folder):
    pytest.importorskip("matplotlib")
    return {path.stem: path.read_text(encoding="utf-8") for path in draw_region(trials, folder)}


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]  # noqa: S314


def test_the_same_trials_give_the_same_bytes(tmp_path):
    first, second = (drawn(region_trials(OUTCOMES), tmp_path / name) for name in "ab")
    assert sorted(first) == ALL and first == second
    assert "Germany: ndcg@5 of 10 trials, 1 failed" in texts(first["history"])
    assert {"best so far", "failed"} <= set(texts(first["history"]))
    assert {"momentum", "absent", "ndcg@5"} <= set(texts(first["parallel"])) and "kind" not in texts(first["parallel"])
    assert {"adam", "sgd", "hidden"} <= set(texts(first["slices"]))
    assert all("<script" not in svg and "mathdefault" not in svg for svg in first.values())


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "\ufffe\uffff\x1b", "$\\frac{", "</svg>"])
def test_hostile_names_and_options_are_text(tmp_path, name):
    space = (Choice("kind", (name[:20], "other")), *SEARCHED[:2])
    points = [{"kind": name[:20] if i % 2 else "other", "rate": 0.01, "noise": i / 10} for i in range(10)]
    svgs = drawn(region_trials([0.1 * i for i in range(10)], name, space=space, points=points), tmp_path)
    assert sorted(svgs) == ALL
    shown = texts(svgs["history"])[0] if len(name) > 50 else next(t for t in texts(svgs["history"]) if "ndcg@5 of" in t)
    assert shown is not None


@pytest.mark.parametrize(
    ("outcomes", "pictures"),
    [([], []), ([None, None], []), (["diverged"], ["history"]), ([0.5], ["history"]),
     ([0.5, 0.5], ["history", "parallel", "slices"]), ([0.5] * 10, ["history", "parallel", "slices"])],
)  # fmt: skip
def test_what_there_is_to_draw(tmp_path, outcomes, pictures):
    assert sorted(drawn(region_trials(outcomes), tmp_path)) == pictures
    assert sorted(path.stem for path in tmp_path.iterdir()) == pictures


@pytest.mark.parametrize("values", [[1e-3 * 10**i for i in range(9)], [-1e9, 0.0, 1e9], [1e300, -1e300, 1.0]])
def test_losses_of_any_size(tmp_path, values):
    svgs = drawn(region_trials(values, metric="loss", minimize=True), tmp_path)
    assert all("mathdefault" not in svg and ElementTree.fromstring(svg) is not None for svg in svgs.values())  # noqa: S314


def test_the_report_links_the_pictures(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    run = create(write_study(tmp_path, STUDY), tmp_path / "runs")
    for number, value in enumerate((0.25, 0.5)):
        settle(run.region("germany"), "germany", number, value)
    assert main(["study", "plot", str(run.path)]) == 0
    captured = capsys.readouterr()
    assert captured.out.strip().endswith("report/summary.md") and "United Kingdom: nothing to draw" in captured.err
    text = (run.report / "summary.md").read_text()
    assert "## Pictures" in text and "- Germany: [history](regions/germany/history.svg), " in text
    assert (run.report / "regions/germany/slices.svg").exists()
    raw = json.loads((run.report / "summary.json").read_text())
    assert raw["regions"][1]["pictures"][0] == "regions/germany/history.svg" and raw["regions"][0]["pictures"] == []
    assert main(["study", "plot", str(run.path), "Nowhere"]) == 2


def test_without_matplotlib_the_extra_is_named(tmp_path, capsys, monkeypatch):
    run = create(write_study(tmp_path, STUDY), tmp_path / "runs")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["study", "plot", str(run.path)]) == 1
    assert install_line("plots") in capsys.readouterr().err
    assert not run.report.exists()


def test_the_forest_finds_what_matters():
    generator = random.Random(7)
    points = [
        {"rate": 10 ** generator.uniform(-3, -1), "noise": generator.random(), "kind": generator.choice("abc")}
        for _ in range(60)
    ]
    values = [-(abs(1000 * point["rate"] - 10) ** 3) + 5 * (point["kind"] == "b") for point in points]
    shares = measure_importance(region_trials(values, space=SEARCHED, points=points))
    assert sum(shares.values()) == pytest.approx(1) and shares["rate"] > 0.6
    assert shares["noise"] < 0.2 and shares == measure_importance(region_trials(values, space=SEARCHED, points=points))
    halves = [1.0 if point["kind"] == "b" else 0.0 for point in points]
    assert measure_importance(region_trials(halves, space=SEARCHED, points=points))["kind"] > 0.8


def test_ordered_options_are_one_scale_to_the_forest():
    sizes = ("tiny", "small", "medium", "large", "huge")
    space = (Choice("size", sizes, ordered=True), Real("noise", 0.0, 1.0))
    points = [{"size": sizes[number % 5], "noise": number * 7 % 40 / 40} for number in range(40)]
    trials = region_trials([number % 5 * 1.0 for number in range(40)], space=space, points=points)
    assert _columns(space[0], trials.rows[:5]) == [[0.0, 0.25, 0.5, 0.75, 1.0]]
    assert _columns(replace(space[0], ordered=False), trials.rows[:2]) == [
        [float(n == k) for n in (0, 1)] for k in range(5)
    ]
    assert measure_importance(trials)["size"] > 0.9


@pytest.mark.parametrize("outcomes", [[0.1, 0.2, 0.3], ["diverged"] * 20, [0.5] * 20, []])
def test_the_forest_is_not_asked_about_nothing(outcomes):
    assert measure_importance(region_trials(outcomes)) is None


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        (Real("x", 0.001, 0.1, log=True), 0.01, 0.5),
        (Integer("x", 0, 4), 1, 0.25),
        (Choice("x", (1, True, "1")), True, 0.5),
        (Choice("x", ("a",)), "a", 0.0),
        (Choice("x", ("a",)), "b", None),
        (Real("x", 0.0, 1.0), None, None),
    ],
)
def test_positions(parameter, value, expected):
    assert place_on_scale(parameter, value) == expected
