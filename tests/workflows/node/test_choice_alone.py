"""A region whose trials are its own: what serves it, by the customers of the validation part or by a loss."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from nnlib.contract import Recipe, sha256_of
from regiondag.accounting.stats import measure_gain
from regiondag.errors import RegiondagError
from regiondag.monitor.status import read_status
from regiondag.node.choice import read_decisions
from regiondag.node.post import JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.registry.figures import figures_of
from regiondag.registry.read import open_registry
from regiondag.report.headline import say_against
from regiondag.report.markdown import headings
from regiondag.report.summary import summarise
from regiondag.run.champions import earlier_runs, find_incumbents, select_networks
from regiondag.run.layout import NodeName
from regiondag.run.region_spec import read_spec
from regiondag.run.trial_recipes import EVER
from regiondag.study.families import FIRST, POPULARITY
from tests.workflows.conftest import STUDY
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import END, FINAL, trial_of
from tests.workflows.played import play_job, run_job

TRIALS = [NodeName("germany", number) for number in range(4)]
SPREAD = np.resize([0.05, -0.05], 12)  # by which customers differ


def play(folder, values, **more):
    """Play the trials: a value each, or what each customer gets."""
    for node, each in zip(TRIALS, values, strict=True):
        assert prepare_trial(folder, node)
        play_job(folder, node, float(np.mean(each)), customers=np.broadcast_to(each, 12), **more)
        settle_trial(folder, node, END)


def finish(folder, value=0.4, **more):
    """Play the final job; return its outcome."""
    assert prepare_final(folder, FINAL)
    play_job(folder, FINAL, value, **more)
    return settle_final(folder, FINAL, END)


def change(folder, **values):
    """Change what the run knows of the region."""
    folder.spec.write_text(json.dumps(json.loads(folder.spec.read_text()) | values))


def incumbents(tmp_path):
    return find_incumbents(earlier_runs(tmp_path / "runs", "tiny"), ["germany"])


@pytest.fixture
def tomorrow(study_file, tmp_path, folder):
    """The next run's region, whose first trial has the recipe in office."""
    play(folder, [0.1, 0.4, 0.3, 0.2])
    finish(folder)
    return create(study_file, tmp_path / "runs", incumbents(tmp_path)).region("germany")


def test_the_best_trial_serves_where_it_beats_recent_popularity(folder, run):
    play(folder, [0.1, 0.4, 0.3, 0.2])
    settled = finish(folder, 0.35, customers=0.35 + SPREAD)
    assert settled.promoted and settled.reason == "better than recent popularity with P > .999 (12 customers)"
    decision = read_decisions(folder)["common"]
    assert (decision["trial"], decision["kind"], decision["customers"]) == (1, "common", 12)
    assert decision["difference"] == pytest.approx(0.39) and read_decisions(folder)["floor"] is None
    assert settled.customers == 12 and settled.compared["floor"]["ndcg@5"] == 0.01
    low, high = settled.intervals["ndcg@5"]
    assert low < 0.35 < high
    row = summarise(run).regions[1]
    assert (row.test["ndcg@5"], row.recipe, row.customers) == (0.35, "", 12)


def test_a_region_in_which_popularity_is_better_is_served_that(folder, run, study_file, tmp_path):
    play(folder, [0.1, 0.4, 0.3, 0.2], floor=0.5)
    settled = finish(folder, 0.45, floor=0.6)
    assert settled.promoted and settled.recipe == Recipe("popularity")
    assert settled.reason == "floor: no candidate is better than recent popularity (12 customers)"
    assert settled.metrics["ndcg@5"] == 0.6 and settled.compared["chosen"]["ndcg@5"] == 0.45
    served = folder.champion_model.read_bytes()
    assert served == (folder.trial(FINAL) / "floor.nc").read_bytes()
    facts = json.loads(folder.champion_metrics.read_text())
    assert (facts["recipe"]["family"], facts["sha256"]) == ("popularity", sha256_of(folder.champion_model))
    assert set(facts["hyperparameters"]) == {"hidden", "learning_rate"}  # of the best network, for tomorrow
    assert summarise(run).regions[1].recipe == "popularity"
    assert prepare_final(folder, FINAL) is False
    assert select_networks(incumbents(tmp_path)) == set()  # nothing that a training could start from
    spec = read_spec(create(study_file, tmp_path / "runs", incumbents(tmp_path)).region("germany").spec)
    assert spec.incumbent == Recipe("popularity") and spec.first == (facts["hyperparameters"],)


LOGISTIC = Recipe("logistic")


@pytest.fixture
def of_pictures(folder):
    """The region as one of dense inputs: its networks have logistic regression to beat."""
    change(folder, floor=asdict(LOGISTIC))
    return folder


def test_a_network_of_pictures_has_to_beat_logistic_regression(of_pictures, run):
    play(of_pictures, [0.1, 0.4, 0.3, 0.2])
    assert all(trial_of(of_pictures, node).compare == {"floor": LOGISTIC} for node in TRIALS)
    settled = finish(of_pictures, 0.35, customers=0.35 + SPREAD)
    assert settled.reason == "better than logistic regression with P > .999 (12 customers)"
    assert trial_of(of_pictures, FINAL).compare == {"bestsellers": EVER, "floor": LOGISTIC}
    facts = json.loads(of_pictures.champion_metrics.read_text())
    assert (facts["recipe"], facts["floor_recipe"]["family"]) == (None, "logistic")
    found = summarise(run)
    assert headings(found)[4:] == ["logistic regression", "bestsellers", "served by"]
    assert say_against(found.headline).startswith("Better or worse than logistic regression with 95 %")
    assert measure_gain(read_spec(of_pictures.spec), settled) == (pytest.approx(0.34), "logistic regression")
    [_, germany] = read_status(run, None).regions
    assert (germany.test.floor, germany.floor_name) == (0.01, "logistic regression")
    champion = open_registry(run.path.parent, "tiny").current("germany")
    assert {figure.floor_name for figure in figures_of(champion)} == {"logistic regression"}


def test_a_region_in_which_logistic_regression_is_better_is_served_that(of_pictures, run, study_file, tmp_path):
    play(of_pictures, [0.1, 0.4, 0.3, 0.2], floor=0.5)
    settled = finish(of_pictures, 0.45, floor=0.6)
    assert settled.recipe == LOGISTIC and settled.metrics["ndcg@5"] == 0.6
    assert settled.reason == "floor: no candidate is better than logistic regression (12 customers)"
    assert of_pictures.champion_model.read_bytes() == (of_pictures.trial(FINAL) / "floor.nc").read_bytes()
    assert summarise(run).regions[1].serves == "logistic"
    tonight = create(study_file, tmp_path / "runs", incumbents(tmp_path)).region("germany")
    change(tonight, floor=asdict(LOGISTIC))
    play(tonight, [0.1, 0.5005 + SPREAD, 0.3, 0.2], floor=0.5)
    kept = finish(tonight)  # what is in office goes only for what is surely better
    assert not kept.promoted and "floor: nothing beat logistic regression (best: network, hidden " in kept.reason


def test_a_doubt_says_logistic_regression_too(of_pictures):
    play(of_pictures, [0.1, 0.4, 0.3, 0.2])
    finish(of_pictures, 0.05, floor=0.3)
    [doubt] = [text for text in read_decisions(of_pictures)["cautions"] if "disagree" in text]
    assert ": against logistic regression +0.3900 on validation (12 customers), -0.2500 on test (12);" in doubt


def test_a_range_that_is_doubted_is_the_network_s_where_the_floor_serves(folder):
    play(folder, [0.1, 0.4, 0.3, 0.2], floor=0.5)
    search = json.loads(folder.spec.read_text())["search"]
    [hidden] = [parameter for parameter in search["space"] if parameter["name"] == "hidden"]
    hidden |= {"int": [2, 10**6], "log": False}  # so that all that was tried is at the lower end
    change(folder, search=search)
    finish(folder, floor=0.6)
    [doubt] = [text for text in read_decisions(folder)["cautions"] if "range" in text]
    assert doubt.startswith("Germany: network, hidden ") and " (trial 1): hidden = " in doubt


def test_a_region_leaves_popularity_only_for_what_is_surely_better(study_file, tmp_path, folder):
    play(folder, [0.1, 0.4, 0.3, 0.2], floor=0.5)
    finish(folder)
    region = create(study_file, tmp_path / "runs", incumbents(tmp_path)).region("germany")
    play(region, [0.1, 0.5005 + SPREAD, 0.3, 0.2], floor=0.5)
    settled = finish(region)
    assert not settled.promoted and "floor: nothing beat recent popularity (best: network, hidden " in settled.reason
    assert " (trial 1), P = " in settled.reason


def test_the_recipe_in_office_stays_where_no_newcomer_is_surely_better(tomorrow):
    play(tomorrow, [0.4, 0.4005 + SPREAD, 0.3, 0.2])
    settled = finish(tomorrow, 0.1)  # whatever the test says
    assert not settled.promoted
    assert settled.reason.startswith("kept, better than recent popularity with P > .999 (12 customers); network, hidd")
    assert " (trial 1) is better with P = " in settled.reason
    assert trial_of(tomorrow, FINAL).hyperparameters == trial_of(tomorrow, TRIALS[0]).hyperparameters
    assert tomorrow.champion_model.read_bytes() == b"model.nc 0.1"  # fitted on today's days


def test_a_newcomer_that_is_surely_better_takes_its_place(tomorrow):
    play(tomorrow, [0.4, 0.45 + SPREAD / 2, 0.3, 0.2])
    assert finish(tomorrow, 0.1).promoted
    assert trial_of(tomorrow, FINAL).hyperparameters == trial_of(tomorrow, TRIALS[1]).hyperparameters


def test_a_recipe_in_office_that_failed_is_no_bar(tomorrow):
    assert prepare_trial(tomorrow, TRIALS[0])
    settle_trial(tomorrow, TRIALS[0], JobEnd(3, 0, 2))
    for node, value in zip(TRIALS[1:], (0.2, 0.3, 0.1), strict=True):
        prepare_trial(tomorrow, node)
        play_job(tomorrow, node, value)
        settle_trial(tomorrow, node, END)
    assert finish(tomorrow).promoted


def test_too_few_customers_judge_nothing(folder):
    change(folder, min_customers=13)
    play(folder, [0.1, 0.4, 0.3, 0.2], floor=0.5)
    settled = finish(folder)
    assert settled.reason == "the best trial: too few customers to judge it (12)" and settled.recipe is None


@pytest.mark.parametrize(("value", "kept"), [(0.4005 + SPREAD, True), (0.5, False)])
def test_data_without_a_floor(tomorrow, value, kept):
    change(tomorrow, final_parts=["train", "valid"])
    play(tomorrow, [0.4, value, 0.3, 0.2], floor=0.9)
    settled = finish(tomorrow)
    assert settled.promoted is not kept
    assert settled.reason.startswith(
        "kept: network, hidden" if kept else "the best trial (12 customers; there is no recent popularity"
    )
    assert (" (trial 1) is better with P = " in settled.reason) == kept


def test_a_network_beside_which_nothing_can_be_measured_gets_its_champion(study_file, tmp_path):
    """Without a part `final` it learns from two files in the end, to which no recipe is fitted."""
    for file in (tmp_path / "data").glob("*.final.nc"):
        file.unlink()
    folder = create(study_file, tmp_path / "runs").region("germany")
    for node in TRIALS:
        assert prepare_trial(folder, node)
        run_job(folder, node)
        settle_trial(folder, node, END)
    assert prepare_final(folder, FINAL)
    run_job(folder, FINAL)
    settled = settle_final(folder, FINAL, END)
    assert settled.ok and settled.compared == {} and settled.customers == 8
    assert settled.reason.startswith("the best trial: too few customers to judge it (8)")
    assert folder.champion_model.read_bytes() == (folder.trial(FINAL) / "model.nc").read_bytes()


@pytest.mark.parametrize(("losses", "winner"), [([3.0, 2.0, 1.0, 4.0], 2), ([1.0, 2.0, 1.0, 4.0], 0)])
def test_by_a_loss_the_values_alone_decide(study_file, tmp_path, losses, winner):
    study_file.write_text(STUDY.replace("metric: ndcg@5", "minimize: loss"))
    names = []
    for _ in range(2):
        folder = create(study_file, tmp_path / "runs", incumbents(tmp_path)).region("germany")
        for node, value in zip(TRIALS, losses, strict=True):
            assert prepare_trial(folder, node)
            play_job(folder, node, value, metrics={"loss": value}, scores="")
            (folder.trial(node) / "scores.npy").write_bytes(b"")
            settle_trial(folder, node, END)
        prepare_final(folder, FINAL)
        assert trial_of(folder, FINAL).compare == {}
        play_job(folder, FINAL, 1.0, metrics={"loss": 1.0}, compared={}, baseline={})
        settled = settle_final(folder, FINAL, END)
        names.append((read_decisions(folder)["common"]["trial"], settled.promoted, settled.reason))
    assert names == [
        (winner, True, "the trial with the least loss"),
        (winner, winner != 0, "the trial with the least loss"),
    ]


def test_what_knows_the_days_that_it_is_judged_by_is_refused(folder):
    change(folder, window=15000)
    play(folder, [0.1, 0.4, 0.3, 0.2], fitted_until=15001)
    with pytest.raises(RegiondagError, match=r"window that begins on 2011-01-26: t0001 was fitted until 2011-01-27"):
        prepare_final(folder, FINAL)


def test_scores_of_other_customers_are_told(tomorrow):
    play(tomorrow, [0.1, 0.4, 0.3, 0.2])
    np.save(tomorrow.trial(TRIALS[1]) / "scores.npy", np.zeros((2, 3, 11), np.float32))
    with pytest.raises(RegiondagError, match=r"of t0001, t0000 are of different numbers of customers \(11, 12\)"):
        prepare_final(tomorrow, FINAL)


def test_the_usual_floor_is_what_trials_of_popularity_begin_with():
    from nnlib.families.popularity import DEFAULTS

    assert FIRST[0] == (POPULARITY, DEFAULTS)


def test_who_starts_from_a_region_that_popularity_serves_gets_its_network(study_file, tmp_path):
    study_file.write_text(STUDY.replace("germany.nc}", "germany.nc, init: neighbour, neighbour: United Kingdom}"))
    run = create(study_file, tmp_path / "runs")
    source = run.region("united-kingdom")
    for number in range(4):
        node = NodeName("united-kingdom", number)
        prepare_trial(source, node)
        play_job(source, node, 0.1, floor=0.5)
        settle_trial(source, node, END)
    node = NodeName("united-kingdom", None)
    prepare_final(source, node)
    play_job(source, node, 0.1, floor=0.5)
    settle_final(source, node, END)
    assert source.champion_model.read_bytes() == b"floor.nc 0.1"
    prepare_trial(run.region("germany"), TRIALS[0])
    assert run.region("germany").init_model.read_bytes() == b"model.nc 0.1"
