"""A network as one of the families of a study: fitted on the data of all regions, tested, fitted again on all days."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nnlib.contract import sha256_of
from nnlib.data.file import write_data
from nnlib.data.rows import from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.families.model_file import read_recipe_model
from nnlib.model.file import read_model
from regiondag.node.choice import read_decisions
from regiondag.node.post import settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.report.summary import summarise
from regiondag.run.champions import earlier_runs, find_incumbents
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from regiondag.run.region_spec import read_spec
from tests.workflows.conftest import STUDY, WIDTH, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import END, trial_of
from tests.workflows.played import run_job

pytestmark = pytest.mark.slow

FAMILIES = STUDY.replace("network:", "families: [popularity, ease, network]\nnetwork:").replace(
    "method: bayes\n  rounds: 2\n  parallel: 2", "method: random\n  rounds: 1\n  parallel: 5"
)
NETWORK = {"family": "network", "hidden": 4, "learning_rate": 0.02}
TRIALS, FINAL = [NodeName("pooled", number) for number in range(5)], NodeName("pooled", None)
VALID, TEST, END_DAY = 15000, 15028, 15056  # the first days of the windows, and the one after the last
CUSTOMERS = 14


def write_dated(folder, stem, shift):
    """Each customer buys six items in a row of the catalogue, the fourth when it is validated, two later."""
    items = [[(customer + shift + i) % WIDTH for i in range(6)] for customer in range(CUSTOMERS)]
    days = [VALID - 30, VALID - 20, VALID - 10, VALID + 3, TEST + 3, TEST + 4]
    for part, owned, wanted, as_of in (
        ("train", slice(3), slice(3), VALID),
        ("valid", slice(3), slice(3, 4), VALID),
        ("final", slice(4), slice(4), TEST),
        ("test", slice(4), slice(4, 6), TEST),
        ("all", slice(6), slice(6), END_DAY),
    ):
        rows, targets = ([sorted(row[some]) for row in items] for some in (owned, wanted))
        when = [dict(zip(row, days, strict=True))[item] for row, some in zip(items, rows, strict=True) for item in some]
        names = tuple(f"item{n:02d}" for n in range(WIDTH))
        history = DataSet("input", from_rows(rows, WIDTH), names, days=np.array(when, np.int32))
        data = Data((history, DataSet("output", from_rows(targets, WIDTH), names)), region=stem, as_of=as_of)
        write_data(folder / f"{stem}.{part}.nc", data)


@pytest.fixture
def study(tmp_path):
    file = write_study(tmp_path, FAMILIES)
    for shift, stem in enumerate(("uk", "germany")):
        write_dated(tmp_path / "data", stem, 5 * shift)
    return file


def play(folder):
    """Do all trials, the last of them of a network, which is then said to be the best by far."""
    with Journal(folder.journal).locked():
        Journal(folder.journal).append("proposed", trial=4, point=NETWORK)
    for node in TRIALS:
        assert prepare_trial(folder, node)
        run_job(folder, node)
        assert settle_trial(folder, node, END).ok
    scores = folder.trial(TRIALS[4]) / "scores.npy"
    values = np.load(scores)
    assert values.shape == (2, 3, 2 * CUSTOMERS) and np.isfinite(values).all()
    values[0] = 2.0
    np.save(scores, values)


def finish(folder, node):
    assert prepare_final(folder, node)
    run_job(folder, node)
    return settle_final(folder, node, END)


def test_a_network_becomes_the_common_choice_and_stays_it(study, tmp_path):
    run = create(study, tmp_path / "runs")
    pooled = run.region("pooled")
    play(pooled)
    assert read_spec(pooled.spec).window == VALID
    outcome = Journal(pooled.journal).read().settled[4]
    assert (outcome.fitted_until, outcome.customers, outcome.recipe) == (VALID, 2 * CUSTOMERS, None)
    settled = finish(pooled, FINAL)
    assert settled.promoted and settled.reason.startswith("common choice: better than recent popularity")
    trial = trial_of(pooled, FINAL)
    assert (trial.recipe, trial.all_files) == (None, ("data.all.nc",))
    assert set(trial.compare) == set(settled.compared) | {"bestsellers"} == {"bestsellers", "floor", "simple"}
    assert read_model(pooled.champion_model).features[0][0] == "item00"
    assert read_recipe_model(pooled.champion_floor).fitted_until == END_DAY
    for slug in ("germany", "united-kingdom"):
        region = run.region(slug)
        assert prepare_final(region, NodeName(slug, None)) is False
        assert region.champion_model.read_bytes() == pooled.champion_model.read_bytes()
    [_, germany, _] = summarise(run).regions
    assert (germany.customers, germany.status, germany.recipe) == (CUSTOMERS, "promoted", "")
    assert germany.hyperparameters == NETWORK

    names = ["pooled", "germany", "united-kingdom"]
    again = create(study, tmp_path / "runs", find_incumbents(earlier_runs(tmp_path / "runs", "tiny"), names))
    pooled, germany = again.region("pooled"), again.region("germany")
    assert read_spec(pooled.spec).first[0] == NETWORK
    with Journal(pooled.journal).locked():
        for number, proposal in enumerate(read_spec(pooled.spec).first):
            Journal(pooled.journal).append("proposed", trial=number, point=proposal)
    for node in TRIALS:
        assert prepare_trial(pooled, node)
        run_job(pooled, node)
        settle_trial(pooled, node, END)
    scores = pooled.trial(TRIALS[0]) / "scores.npy"
    np.save(scores, np.concatenate([np.full((1, 3, 2 * CUSTOMERS), 2.0, np.float32), np.load(scores)[1:]]))
    settled = finish(pooled, FINAL)
    assert not settled.promoted and "kept" in settled.reason
    prepare_final(germany, NodeName("germany", None))
    assert not Journal(germany.journal).read().final.promoted


def test_a_region_may_have_a_network_of_its_own(study, tmp_path):
    run = create(study, tmp_path / "runs")
    pooled, germany = run.region("pooled"), run.region("germany")
    play(pooled)
    finish(pooled, FINAL)
    decisions = read_decisions(pooled)
    decisions["regions"]["germany"] |= {"kind": "own", "trial": 4, "reason": "own: P = .993"}
    pooled.decisions.write_text(json.dumps(decisions))
    node = NodeName("germany", None)
    assert prepare_final(germany, node)
    for part in ("final", "test", "all"):
        germany.data(part).unlink()
        germany.data(part).symlink_to(pooled.data(part))  # what its final.sub sends
    run_job(germany, node)
    settled = settle_final(germany, node, END)
    assert (settled.reason, settled.customers, settled.promoted) == ("own: P = .993", CUSTOMERS, True)
    assert germany.champion_model.read_bytes() == pooled.champion_model.read_bytes()
    facts = json.loads(germany.champion_metrics.read_text())
    assert facts["sha256"] == sha256_of(germany.champion_model) and facts["hyperparameters"] == NETWORK


def test_families_of_a_region_alone(tmp_path, study):
    study.write_text(FAMILIES.replace("  method: random", "  scope: region\n  method: random"))
    run = create(study, tmp_path / "runs")
    germany = run.region("germany")
    for number in range(5):
        node = NodeName("germany", number)
        assert prepare_trial(germany, node)
        run_job(germany, node)
        settle_trial(germany, node, END)
    settled = finish(germany, NodeName("germany", None))
    assert settled.recipe.family in ("popularity", "ease") and settled.promoted
    assert read_decisions(germany)["floor"] in (0, 1, 2)
    assert read_recipe_model(germany.champion_model).fitted_until == END_DAY
