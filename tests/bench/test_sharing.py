"""The benchmark of sharing: its study is the example's, values become regrets as described, and nothing runs twice."""

from __future__ import annotations

import json
from types import ModuleType

import pytest

from regiondag.study.space import Integer
from tests.workflows.conftest import write_region


@pytest.fixture
def stats(bench) -> ModuleType:
    return bench("sharing_stats")


@pytest.fixture
def work(bench) -> ModuleType:
    return bench("sharing_work")


@pytest.fixture
def sharing(bench) -> ModuleType:
    return bench("sharing")


@pytest.fixture
def area(work, tmp_path):
    """Give an area with the data of two tiny countries."""
    (tmp_path / "data").mkdir()
    for slug in ("norway", work.LARGEST):
        write_region(tmp_path / "data", slug)
    work.make_study(tmp_path)
    return tmp_path


def test_every_country_gets_the_example_s_network_and_space(work, area):
    norway, largest = work.regions(area / "study.yaml", "model", 32)
    assert [norway.slug, largest.slug] == ["norway", work.LARGEST]
    assert (norway.train.epochs, norway.train.batch, norway.train.stop_after, norway.train.seed) == (30, 16, 8, 7)
    assert (largest.train.epochs, largest.train.batch, largest.train.stop_after) == (5, 256, 3)
    assert norway.search == largest.search
    assert (norway.search.share, norway.search.method, norway.search.sizes) == ("model", "bayes", (4,) * 8)
    assert [parameter.name for parameter in norway.search.space] == [
        "hidden",
        "denoising",
        "dropout",
        "learning_rate",
        "l2",
    ]
    assert norway.search.space[0] == Integer("hidden", 8, 512, log=True)
    assert norway.metric.name == "ndcg@20"


@pytest.mark.parametrize("share", ["off", "warm", "model"])
def test_a_run_is_the_same_again_and_trains_nothing_twice(bench, work, area, monkeypatch, share):
    run = bench("sharing_run").run
    countries = work.regions(area / "study.yaml", share, 12)
    first = run(countries, work.Kept(area), seed=1)
    assert {slug: len(values) for slug, values in first["values"].items()} == {"norway": 12, work.LARGEST: 12}
    assert all(0 <= value <= 1 for values in first["values"].values() for value in values)
    usual = {"off": "observed", "warm": "observed", "model": "model"}[share]
    assert next(iter(first["worths"])) == usual
    for worths in first["worths"].values():
        assert {slug: len(curve) for slug, curve in worths.items()} == {"norway": 3, work.LARGEST: 3}
    monkeypatch.setattr(work, "train", None)
    kept = work.Kept(area)
    again = run(countries, kept, seed=1)
    assert (again["values"], again["worths"]) == (first["values"], first["worths"])
    assert set(work.costs(kept.found)) == {"norway", work.LARGEST}


def test_a_point_is_worth_the_mean_of_trainings_with_other_seeds(work, area, monkeypatch):
    [norway] = work.regions(area / "study.yaml", "off", 8, ["norway"])
    seen = []

    def train(region, point):
        seen.append(region.train.seed)
        return work.Trained(None if region.train.seed == work.JUDGES[0] else 0.4, 1.0)

    monkeypatch.setattr(work, "train", train)
    assert work.Kept(area).worth(norway, {"hidden": 8}) == pytest.approx(0.3)
    assert seen == list(work.JUDGES) and norway.train.seed not in seen


def test_a_torn_line_of_results_is_passed_over(work, area):
    kept = work.Kept(area)
    kept.path.write_text('["key", 0.5, 1.0]\n["other", 0.')
    assert list(work.Kept(area).found) == ["key"]


def test_a_run_of_other_sources_is_made_again(bench, area):
    runs = bench("sharing_runs")
    kept, key = runs.Area(area), runs.Key("warm", 0, 8)
    assert kept.find(key) is None
    found = {
        "values": {"norway": [0.1] * 8},
        "worths": {"observed": {"norway": [0.1] * 2}},
        "proposing": 1.0,
        "training": 2.0,
    }
    raw = {"stamp": kept.stamp, **found}
    (area / "warm-0-8-run.json").write_text(json.dumps(raw))
    assert kept.all([key, runs.Key("off", 0, 8)]) == [runs.Run(key, **found)]
    (area / "warm-0-8-run.json").write_text(json.dumps(raw | {"stamp": "other"}))
    assert kept.find(key) is None


def test_regret_goes_from_the_start_of_countries_alone_to_the_best_known(stats):
    values = {"a": [0.2, None, 0.4, 0.2, 0.2, 0.2, 0.6, 0.0], "flat": [0.0] * 8}
    alone = {"a": [0.4, 0.8], "flat": [0.0, 0.0]}
    shared = {"a": [0.2, 1.0], "flat": [0.0, 0.0]}
    by = stats.scales([values], [alone, shared])
    assert by == {"a": stats.Scale(best=1.0, usual=0.2)}
    assert stats.mean_regrets([alone], by) == pytest.approx([0.75, 0.25])
    assert stats.mean_regrets([shared], by) == pytest.approx([1.0, 0.0])
    assert stats.mean_regrets([alone, shared], by) == pytest.approx([0.875, 0.125])
    assert stats.mean_worths([alone]) == pytest.approx([0.2, 0.4])


def test_trials_needed_come_in_whole_batches(stats):
    assert stats.needed([0.9, 0.5, 0.5, 0.1], 0.5) == 8
    assert stats.needed([0.9, 0.5], 0.4) is None


def test_rows_of_kept_runs(bench, sharing, monkeypatch, area):
    runs = bench("sharing_runs")
    measured = sharing.SharingBench(sharing.Sizes(trials=8, seeds=1), runs.Area(area))
    monkeypatch.setattr(sharing.SharingBench, "_larger", lambda self: {"a"})
    found = {"off": [0.2, 0.4], "warm": [0.4, 0.4], "model": [0.2, 0.2], "model, winner: observed": [0.3, 0.4]}
    found["off, winner: model"] = [0.2, 0.2]
    worths = {share: {} for share in ("off", "warm", "model")}
    for way, curve in found.items():
        share, rule = sharing.WAYS[way]
        worths[share][rule] = {"a": curve}
    measured.runs = [runs.Run(measured.key(share, 0), {"a": [0.1] * 8}, by, 1.0, 2.0) for share, by in worths.items()]
    rows = {row.workload: row for row in measured.rows()}
    name = "trials until the mean regret is as good as the best of countries alone in 8: "
    seed = "; 1 seed"
    assert (rows[f"{name}warm{seed}"].ours, rows[f"{name}warm{seed}"].peer, rows[f"{name}warm{seed}"].met) == (
        4,
        8,
        True,
    )
    never = rows[f"{name}model (more than 8){seed}"]
    assert (never.ours, never.ratio) == (12, pytest.approx(8 / 12))
    assert rows[f"{name}model, winner: observed{seed}"].ours == 8
    assert rows[f"{name.replace('alone', 'alone (off, winner: model)')}model{seed}"].ours == 4
    assert rows["mean regret after 8 trials: model (peer: off)"].ours == pytest.approx(2 / 3)
    raw = measured.to_json(list(rows.values()))
    assert raw["curves"]["off"] == {"a": [[0.2, 0.4]]}
    assert "[0.2, 0.4]" in sharing._text(raw)
    assert json.loads(sharing._text(raw)) == json.loads(json.dumps(raw))
