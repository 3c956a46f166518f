"""Regions of pictures beside logistic regression: a network of all, one that goes on from it, and what serves them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nnlib.contract import Recipe, load_result
from nnlib.data.file import check_data_file, write_data
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.families.model_file import read_recipe_model
from nnlib.prediction.recommender import open_recommender
from regiondag.config.load import load_config
from regiondag.generate.write_run import create_run
from regiondag.node.choice import read_decisions
from regiondag.node.post import settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.registry.read import open_registry
from regiondag.report.markdown import headings, table
from regiondag.report.summary import summarise
from regiondag.run.layout import NodeName
from regiondag.run.region_spec import read_spec
from regiondag.study.init import choose_init
from tests.workflows.conftest import NETWORK, STUDY
from tests.workflows.node.test_pre_and_post import END, trial_of
from tests.workflows.played import run_job

pytestmark = pytest.mark.slow

FLOOR = Recipe("logistic")
CLASSES, SIDE = 4, 4
TEXT = STUDY.replace("metric: ndcg@5", "metric: p@1\ninit: pooled\npooled: {search: {rounds: 1, parallel: 2}}").replace(
    "train: {epochs: 2, batch: 4, seed: 7}", "train: {epochs: EPOCHS, batch: 4, seed: 7}"
)


def write_pictures(folder, stem, seed):
    """Write a region's pictures: of each class one bright pixel more than noise, which a line tells."""
    random = np.random.default_rng(seed)
    for part, count in (("train", 40), ("valid", 40), ("final", 80), ("test", 40)):
        classes = np.arange(count) % CLASSES
        pixels = random.integers(0, 100, (count, SIDE * SIDE))
        pixels[np.arange(count), classes] += 100
        sets = DataSet("input", Dense(pixels.astype(np.uint8))), DataSet("output", from_rows(classes[:, None], CLASSES))
        write_data(folder / f"{stem}.{part}.nc", Data(sets))


def write_study(folder, epochs):
    (folder / "data").mkdir()
    for seed, stem in enumerate(("uk", "germany")):
        write_pictures(folder / "data", stem, seed)
    first, *others = NETWORK["Layers"]
    layers = [{name: value for name, value in first.items() if name != "Sparse"}, *others]
    (folder / "network.json").write_text(json.dumps(NETWORK | {"Layers": layers}))
    (folder / "study.yaml").write_text(TEXT.replace("EPOCHS", str(epochs)))
    return folder / "study.yaml"


def create(folder, epochs):
    config = choose_init(load_config(write_study(folder, epochs)), {}, {})
    files = {file for region in config.regions for file in region.data.values()}
    summaries = {file: check_data_file(file) for file in files}
    return create_run(
        config, folder / "runs", htcondor=(23, 9, 6), incumbents={}, progress=lambda *_: None, summaries=summaries
    )


def train(run, slug, trials):
    """Train a region's trials and its champion; return the outcome."""
    folder = run.region(slug)
    for number in range(trials):
        node = NodeName(slug, number)
        assert prepare_trial(folder, node)
        assert trial_of(folder, node).compare == {"floor": FLOOR}
        run_job(folder, node)
        assert load_result(folder.trial(node) / "result.json").compared["floor"]["p@1"] > 0.9
        settle_trial(folder, node, END)
    node = NodeName(slug, None)
    assert prepare_final(folder, node)
    run_job(folder, node)
    return settle_final(folder, node, END)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A run of networks that have learned next to nothing."""
    run = create(tmp_path_factory.mktemp("pictures"), 1)
    return run, {slug: train(run, slug, trials) for slug, trials in (("pooled", 2), ("germany", 4))}


def test_all_regions_and_that_of_all_have_it_to_beat(served):
    run, settled = served
    assert all(read_spec(run.region(slug).spec).floor == FLOOR for slug in ("pooled", "germany", "united-kingdom"))
    for slug, final in settled.items():
        assert final.recipe == FLOOR and final.reason.startswith("floor: ") and "logistic regression" in final.reason
        assert read_decisions(run.region(slug))["common"]["kind"] == "floor"
        assert final.metrics["p@1"] == final.compared["floor"]["p@1"] > final.baseline["p@1"]


def test_what_serves_is_its_model_and_the_registry_has_it(served):
    run, _ = served
    model = read_recipe_model(run.region("germany").champion_model)
    assert (model.recipe.family, len(model.items)) == ("logistic", CLASSES)
    champion = open_registry(run.path.parent, "tiny").current("germany")
    assert champion.facts["recipe"]["family"] == champion.facts["floor_recipe"]["family"] == "logistic"
    assert champion.model.read_bytes() == champion.floor.read_bytes()
    recommender = open_recommender(champion.model, run.path / "../../data/germany.test.nc", champion.floor)
    answers = recommender.recommend([str(n) for n in range(40)], k=1)
    assert {answer.by for answer in answers} == {"logistic regression"}
    assert np.mean([answer.items[0].item == str(n % CLASSES) for n, answer in enumerate(answers)]) > 0.9


def test_the_next_starts_from_the_network_that_did_not_serve(served):
    run, _ = served
    facts = json.loads(run.region("germany").init_facts.read_text())
    assert (facts["region"], facts["kind"]) == ("pooled", "pooled")
    assert (
        run.region("germany").init_model.read_bytes()
        == (run.region("pooled").trial(NodeName("pooled", None)) / "model.nc").read_bytes()
    )


def test_the_report_names_it(served):
    found = summarise(served[0])
    at = headings(found).index("logistic regression")
    rows = {row[0]: row for row in table(found)}
    assert float(rows["Germany"][at]) > 0.9 and rows["Germany"][-1] == "logistic"
