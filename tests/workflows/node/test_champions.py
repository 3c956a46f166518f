"""A study of families without a pool: PRE, jobs and POST up to the champion of every region, and what comes after."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pytest

from nnlib.contract import Recipe, recipe_of, sha256_of, trial_from_json
from nnlib.families.legal import complete_recipe
from regiondag import cli
from regiondag.champions.choose import Rule
from regiondag.errors import GiveUpError, RegiondagError
from regiondag.node.choice import doubt_test_of, read_decisions, read_scores, read_trial_scores
from regiondag.node.post import JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.registry.read import CHAMPION_FILE, open_registry
from regiondag.report.markdown import to_markdown
from regiondag.report.summary import summarise
from regiondag.run.champions import champion_of
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import read_spec
from regiondag.run.trial_recipes import best_by_family, find_trial, incumbent_trial, recipe_of_trial
from regiondag.study.families import FIRST, describe_recipe
from tests.workflows import shop
from tests.workflows.shop import FINAL, POOLED, SLUGS, STUDY

BLEND = NodeName(POOLED, 8)
END = JobEnd(0, 0, 2)


@pytest.fixture(scope="module")
def searched_once(tmp_path_factory):
    """A run whose trials have ended; nobody may change it."""
    run = shop.generate(shop.write_shop(tmp_path_factory.mktemp("shop")))
    shop.play_search(run)
    return run


@pytest.fixture(scope="module")
def played_once(searched_once, tmp_path_factory):
    """A run that has ended; nobody may change it."""
    run = copy(searched_once, tmp_path_factory.mktemp("played"))
    shop.play_final(run.region(POOLED), FINAL)
    for slug in SLUGS:
        shop.play_final(run.region(slug), NodeName(slug, None))
    return run


def copy(run, folder):
    """A copy of the study's folder, in which a run may go on."""
    shutil.copytree(run.path.parents[1], folder, symlinks=True, dirs_exist_ok=True)
    return RunFolder(folder / "runs" / run.path.name)


@pytest.fixture
def searched(searched_once, tmp_path):
    return copy(searched_once, tmp_path)


@pytest.fixture
def played(played_once, tmp_path):
    return copy(played_once, tmp_path)


def history_of(run, slug=POOLED):
    return Journal(run.region(slug).journal).read()


def facts_of(run, slug):
    return json.loads(run.region(slug).champion_metrics.read_text())


def state_of_files(run):
    return {
        str(path.relative_to(run.path)): path.read_bytes()
        for path in sorted(run.path.rglob("*"))
        if path.is_file() and path.suffix not in (".log", ".lock")
    }


# --- the search --------------------------------------------------------------------------------------------


def test_popularity_is_tried_first_then_the_families_and_the_blend_last(searched_once):
    history = history_of(searched_once)
    tried = [history.proposals[number].point["family"] for number in sorted(history.proposals)]
    assert tried[:5] == ["popularity", "ease", "popularity", "knn", "ease"] and tried[-1] == "blend"
    assert sorted(history.settled) == list(range(9)) and all(one.ok for one in history.settled.values())


def test_the_blend_is_of_the_best_of_each_family(searched_once):
    history, spec = history_of(searched_once), read_spec(searched_once.region(POOLED).spec)
    trial = trial_from_json((searched_once.region(POOLED).trial(BLEND) / "trial.json").read_text())
    best = {}
    for number in range(8):
        family, value = history.proposals[number].point["family"], history.settled[number].value
        best[family] = max(best.get(family, (-1, 0)), (value, -number))
    wanted = sorted(best, key=lambda family: -best[family][0])
    assert list(best_by_family(spec, history)) == wanted
    assert [member.family for member in trial.recipe.members] == wanted and trial.recipe.weights == ()
    found = history.settled[8].recipe
    assert found.weights and all(found.weights) and len(found.weights) == len(found.members)
    assert recipe_of_trial(spec, history, 8) == found


def test_every_trial_says_until_when_it_was_fitted_and_what_each_customer_got(searched_once):
    folder, history = searched_once.region(POOLED), history_of(searched_once)
    spec = read_spec(folder.spec)
    asked = spec.rows["valid"]
    assert [ends for _, ends in sorted(asked.items())] == [(0, 39), (39, 69), (69, 74)]  # avon, berg, cove
    scores = read_trial_scores(folder, spec, history)
    assert scores.values.shape == (9, 74) and scores.counts == (39, 30, 5, 0)
    assert sorted(scores.regions) == ["Avon", "Berg", "Cove", "Dale"]  # as people call them, and so the candidates
    assert scores.candidates[0] == "popularity, half_life 10, own 0.5 (trial 0)"
    assert scores.candidates[8] == f"{describe_recipe(history.settled[8].recipe)} (trial 8)"
    for number, settled in history.settled.items():
        assert settled.fitted_until == history.settled[0].fitted_until is not None
        assert settled.value == pytest.approx(scores.of(scores.candidates[number]).mean(), abs=1e-6)
        assert settled.customers == 74
        assert settled.stderr == pytest.approx(scores.of(scores.candidates[number]).std(ddof=1) / 74**0.5, abs=1e-6)


def test_cautions_call_regions_and_candidates_by_the_names_of_the_report(played_once):
    summary = summarise(played_once)
    few = [text for text in summary.cautions if "fewer than 10" in text]
    assert [text.rpartition(": ")[2] for text in few] == ["Cove, Dale"]
    assert not any("t000" in text for text in (*summary.cautions, *(region.reason for region in summary.regions)))
    folder = played_once.region(POOLED)
    spec, history = read_spec(folder.spec), Journal(folder.journal).read()
    names = doubted_names(folder, spec, history)
    assert names == [f"{summary.regions[0].recipe} (trial {history.won[0]})"]


def doubted_names(folder, spec, history):
    """What is doubted where all of the gain on validation is gone on test, ten times over."""
    decisions = read_decisions(folder)
    common = {**decisions["common"], "kind": "common", "difference": 10.0, "interval": [9.9, 10.1]}
    doubts = doubt_test_of(folder, spec, history, {**decisions, "common": common})
    return [text.partition("disagree about ")[2].partition(": against")[0] for text in doubts]


def test_pre_and_post_of_a_trial_again_change_nothing(searched):
    folder, before = searched.region(POOLED), state_of_files(searched)
    for node in (NodeName(POOLED, 3), BLEND):
        assert prepare_trial(folder, node) is False
        settle_trial(folder, node, END)
    assert state_of_files(searched) == before


def test_the_same_run_again_has_the_same_trials(searched_once, tmp_path):
    run = shop.generate(shop.write_shop(tmp_path))
    for number in range(4):
        shop.play_trial(run.region(POOLED), NodeName(POOLED, number))
    prepare_trial(run.region(POOLED), NodeName(POOLED, 4))
    first, second = history_of(searched_once), history_of(run)
    assert [second.proposals[n].point for n in range(8)] == [first.proposals[n].point for n in range(8)]
    assert [second.settled[n].value for n in range(4)] == [first.settled[n].value for n in range(4)]


# --- what serves -------------------------------------------------------------------------------------------


def test_every_region_has_its_champion(played_once):
    source = played_once.region(POOLED)
    decisions = read_decisions(source)
    assert set(decisions["regions"]) == set(SLUGS)
    for slug in SLUGS:
        folder = played_once.region(slug)
        assert champion_of(played_once, slug) is not None  # whole, by its digest
        facts, final = facts_of(played_once, slug), history_of(played_once, slug).final
        assert facts["decision"] == decisions["regions"][slug] and facts["region"] == read_spec(folder.spec).name
        assert final.ok and final.promoted and final.reason == decisions["regions"][slug]["reason"]
        assert facts["test"] == final.metrics and facts["customers"] == final.customers
        assert recipe_of(facts["recipe"]) == final.recipe
        if facts["decision"]["kind"] == "common":
            assert folder.champion_model.samefile(source.champion_model)
            assert facts["sha256"] == facts_of(played_once, POOLED)["sha256"]


def test_a_regions_figures_are_those_of_its_own_customers(played_once):
    source = played_once.region(POOLED)
    spec = read_spec(source.spec)
    trial = trial_from_json((source.trial(FINAL) / "trial.json").read_text())
    names = ["", *sorted(trial.compare)]
    assert names == ["", "bestsellers", "floor", "simple"]
    values = read_scores(source.trial(FINAL) / "scores.npy", len(names), 3, 50)
    assert values.shape == (4, 3, 50)  # ndcg@5, p@10 and ndcg@20
    for slug, (first, last) in spec.rows["test"].items():
        final = history_of(played_once, slug).final
        own = values[:, 0, first:last].mean(axis=1)
        assert final.customers == last - first
        assert final.metrics["ndcg@5"] == pytest.approx(own[0], abs=1e-6)
        assert final.baseline["ndcg@5"] == pytest.approx(own[1], abs=1e-6)
        assert final.compared["floor"]["ndcg@5"] == pytest.approx(own[2], abs=1e-6)
        low, high = final.intervals["ndcg@5"]
        assert low < final.metrics["ndcg@5"] < high
        gain, low, high = final.gains["floor"]  # of each customer over himself: narrower than both figures' intervals
        assert gain == pytest.approx(own[0] - own[2], abs=1e-6) and low < gain < high
    assert history_of(played_once, "dale").final.metrics == {}  # nobody there is asked


def test_the_final_job_fits_the_winner_and_the_floor_on_all_days(played_once):
    source = played_once.region(POOLED)
    trial = trial_from_json((source.trial(FINAL) / "trial.json").read_text())
    assert trial.train_files == ("data.final.nc",) and trial.all_files == ("data.all.nc",)
    assert trial.test_file == "data.test.nc" and trial.valid_file is None
    won = history_of(played_once).won[0]
    assert trial.recipe == history_of(played_once).settled[won].recipe
    facts = facts_of(played_once, POOLED)
    assert facts["sha256"] == sha256_of(source.champion_model) and facts["floor"] == sha256_of(source.champion_floor)
    assert recipe_of(facts["recipe"]) == trial.recipe and facts["trial"] == won


def test_pre_and_post_of_what_has_ended_change_nothing(played):
    before = state_of_files(played)
    for slug in (POOLED, *SLUGS):
        assert prepare_final(played.region(slug), NodeName(slug, None)) is False
    settle_final(played.region(POOLED), FINAL, END)
    assert state_of_files(played) == before


@pytest.mark.parametrize("lost", ["champion/model.nc", "champion/metrics.json", "trials.jsonl"])
def test_a_region_that_was_stopped_half_way_is_served_again(played, lost):
    folder = played.region("avon")
    before = facts_of(played, "avon")
    (folder.path / lost).unlink()
    assert prepare_final(folder, NodeName("avon", None)) is False
    assert facts_of(played, "avon") == before and history_of(played, "avon").final.metrics == before["test"]
    assert sha256_of(folder.champion_model) == before["sha256"]


def test_a_region_waits_for_what_is_chosen_for_all(searched):
    folder = searched.region("avon")
    with pytest.raises(
        GiveUpError, match=r"region 'Avon' is served by what is chosen for all regions together, and no"
    ):
        prepare_final(folder, NodeName("avon", None))
    assert not folder.champion_model.exists()
    row = next(row for row in summarise(searched).regions if row.slug == "avon")
    assert (row.status, row.reason) == ("unfinished", "waits for what is chosen for all regions together")


def test_the_report_has_every_region_with_interval_customers_and_reason(played_once):
    summary = summarise(played_once)
    assert summary.finished and summary.metric == "ndcg@5"
    rows = {row.slug: row for row in summary.regions}
    assert [rows[slug].customers for slug in SLUGS] == [25, 21, 4, 0]
    text = to_markdown(summary)
    assert "| customers | test ndcg@5 | 95 % | recent popularity | best simple | bestsellers |" in text
    avon = rows["avon"]
    low, high = avon.intervals["ndcg@5"]
    assert f" | 25 | {avon.test['ndcg@5']:.4f} | {low:.3f} to {high:.3f} |" in text and " | 0 | - | - |" in text
    assert "- Cove: too few customers to judge (5): served by the group's choice" in text
    assert "- Dale: common choice: no customers to judge here" in text
    assert "- all regions: common choice: better than recent popularity with P" in text


def test_every_verb_knows_a_run_of_families(played, capsys):
    """The blend is the trial after the last; regions that are served have neither trials nor a job."""
    run = str(played.path)

    def says(*words, code=0):
        assert cli.main([*words]) == code
        return "".join(capsys.readouterr()).replace("\n", " ")

    assert "9 of 9 trials settled" in says("study", "show", run)
    assert "9 of 9 trials have ended" in says("explain", run, "pooled")
    assert "Avon [promoted] it has no trials of its own; common choice" in says("explain", run, "Avon")
    assert "pooled_t0008 [ok] it ended with" in says("explain", run, "pooled_t0008")
    assert "its only node is avon_final" in says("explain", run, "avon_t0003", code=2)
    assert "has no trial 9, legal: 0 to 8, and `final`" in says("trial", "rerun", run, "pooled", "9", code=2)
    assert "has no trial 0, legal: `final`" in says("trial", "rerun", run, "avon", "0", code=2)
    assert "9/9" in says("status", run)
    assert "the same, bit by bit" in says("replay", run, "pooled", "8")
    told = says("replay", run, "avon", "final", code=1)
    assert (
        f"avon_final had no job: what serves the region was made for all; regiondag replay {run} pooled final" in told
    )


def test_the_job_of_a_regions_own_choice_is_replayed_on_the_data_of_all(played, capsys):
    decide_own(played, "berg")
    shop.play_final(played.region("berg"), NodeName("berg", None))
    assert cli.main(["replay", str(played.path), "berg", "final"]) == 0
    assert "the same, bit by bit" in capsys.readouterr().out


# --- a region of its own choice ----------------------------------------------------------------------------


def decide_own(run, slug, trial=3):
    """Play a choice by which a region has a recipe of its own."""
    path = run.region(POOLED).decisions
    raw = json.loads(path.read_text())
    raw["regions"][slug] |= {"kind": "own", "trial": trial, "reason": "own: P > .999"}
    path.write_text(json.dumps(raw))


def test_a_region_whose_own_choice_is_better_gets_a_job_of_its_own(searched):
    shop.play_final(searched.region(POOLED), FINAL)
    decide_own(searched, "berg")
    folder, node = searched.region("berg"), NodeName("berg", None)
    assert prepare_final(folder, node) is True and prepare_final(folder, node) is True
    trial = trial_from_json((folder.trial(node) / "trial.json").read_text())
    wanted = history_of(searched).settled[3].recipe
    assert (trial.node, trial.region, trial.recipe) == ("berg_final", "Berg", wanted)
    settle_final(folder, node, JobEnd(shop.work(folder, node), 0, 2))
    before = state_of_files(searched)
    settle_final(folder, node, END)
    assert prepare_final(folder, node) is False and state_of_files(searched) == before
    facts, final = facts_of(searched, "berg"), history_of(searched, "berg").final
    assert recipe_of(facts["recipe"]) == wanted == final.recipe and final.reason == "own: P > .999"
    assert facts["sha256"] == sha256_of(folder.champion_model) != facts_of(searched, POOLED)["sha256"]
    assert final.customers == 21


def test_a_region_follows_a_choice_that_was_made_anew(played):
    """It was served, then has its own recipe, then another one, and is served again."""
    folder, node = played.region("berg"), NodeName("berg", None)
    common = facts_of(played, "berg")
    decisions = played.region(POOLED).decisions.read_text()
    for trial in (3, 4):
        decide_own(played, "berg", trial)
        assert shop.play_final(folder, node) is True
        wanted = history_of(played).settled[trial].recipe
        assert history_of(played, "berg").final.recipe == wanted == recipe_of(facts_of(played, "berg")["recipe"])
        assert prepare_final(folder, node) is False
    played.region(POOLED).decisions.write_text(decisions)
    assert prepare_final(folder, node) is False
    assert facts_of(played, "berg") == common
    assert history_of(played, "berg").final.recipe == recipe_of(common["recipe"])


def test_a_region_that_the_floor_serves(played):
    path = played.region(POOLED).decisions
    raw = json.loads(path.read_text())
    raw["regions"]["berg"] |= {"kind": "floor", "trial": raw["floor"], "reason": "floor: nothing beat it here"}
    path.write_text(json.dumps(raw))
    assert prepare_final(played.region("berg"), NodeName("berg", None)) is False
    source = played.region(POOLED)
    assert played.region("berg").champion_model.samefile(source.champion_floor)
    final = history_of(played, "berg").final
    assert final.recipe.family == "popularity" and final.reason == "floor: nothing beat it here"
    assert final.metrics["ndcg@5"] == final.compared["floor"]["ndcg@5"] and final.gains["floor"] == [0.0, 0.0, 0.0]


# --- what is damaged ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{", "[]", '{"floor": "x", "common": {}, "regions": {}}', '{"floor": 1}'])
def test_damaged_decisions_are_told_with_what_to_type(played, text):
    source = played.region(POOLED)
    source.decisions.write_text(text)
    with pytest.raises(RegiondagError, match=r"decisions\.json: .*regiondag trial rerun .* pooled final --force"):
        prepare_final(played.region("avon"), NodeName("avon", None))


def test_what_to_type_where_decisions_are_damaged_mends_them(played):
    source, before = played.region(POOLED), facts_of(played, "avon")
    decisions = source.decisions.read_text()
    source.decisions.unlink()
    with Journal(source.journal).locked():  # as `regiondag trial rerun RUN pooled final --force` does
        Journal(source.journal).append("reopened", trial=None)
    shop.play_final(source, FINAL)
    assert source.decisions.read_text() == decisions
    assert prepare_final(played.region("avon"), NodeName("avon", None)) is False
    assert facts_of(played, "avon")["test"] == before["test"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\x93NUMPY", np.zeros((1, 2, 2)), np.zeros((2, 3), np.float32), np.zeros((1, 3, 9), np.float32),
     np.zeros((1, 0, 74), np.float32), np.array([object()])],
)  # fmt: skip
def test_damaged_scores_are_told_with_what_to_type(searched, content):
    path = searched.region(POOLED).trial(NodeName(POOLED, 3)) / "scores.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)
    with pytest.raises(RegiondagError, match=r"0003/scores\.npy: .*regiondag trial rerun"):
        prepare_final(searched.region(POOLED), FINAL)


def test_scores_that_did_not_come_back_are_the_machines_fault(searched_once, tmp_path):
    run = shop.generate(shop.write_shop(tmp_path))
    folder, node = run.region(POOLED), NodeName(POOLED, 0)
    prepare_trial(folder, node)
    code = shop.work(folder, node)
    (folder.trial(node) / "scores.npy").write_bytes(b"")
    settled = settle_trial(folder, node, JobEnd(code, 2, 2))
    assert settled.status == "machine" and settled.reason == "scores.npy did not come back as the job wrote it"


# --- the next day ------------------------------------------------------------------------------------------


def test_the_recipe_in_office_is_tried_first_and_kept(played):
    """A blend: its members are tried early, so that tonight's may be made of them, too."""
    best = {one.recipe.family: one.recipe for _, one in sorted(history_of(played).settled.items())}
    recipe = complete_recipe(Recipe("blend", members=(best["knn"], best["ease"]), weights=(1.0, 0.25)))
    hold_office(played, recipe)
    run = shop.generate(played.path.parents[1] / "study.yaml")
    spec = read_spec(run.region(POOLED).spec)
    assert spec.incumbent == recipe
    shop.play(run)
    history = history_of(run)
    tried = [history.proposals[number].point["family"] for number in range(2 + len(recipe.members))]
    assert tried == ["incumbent", "popularity", *(member.family for member in recipe.members)]
    assert history.settled[0].recipe == recipe and history.settled[8].recipe.family == "blend"
    assert history.final.recipe == recipe and history.final.ok and not history.final.promoted
    assert history.final.gains["incumbent"] == [0.0, 0.0, 0.0]  # itself
    assert read_decisions(run.region(POOLED))["common"]["reason"].startswith("common choice: kept, better than recent")
    assert champion_of(run, POOLED) is not None and recipe_of(facts_of(run, POOLED)["recipe"]) == recipe


def test_a_simple_recipe_in_office_stays_unless_another_one_is_surely_better(played):
    study = played.path.parents[1] / "study.yaml"
    hold_office(played, Recipe("popularity", {"half_life": 1000.0, "own": 0.5}, 7))
    run = shop.generate(study)
    shop.play_search(run)
    prepare_final(run.region(POOLED), FINAL)
    common = read_decisions(run.region(POOLED))["common"]
    assert common["trial"] != 0 and "better than recent popularity with P > .999" in common["reason"]
    shop.play_final(run.region(POOLED), FINAL)
    assert history_of(run).final.promoted
    before = json.loads((run.region(POOLED).trial(FINAL) / "trial.json").read_text())["compare"]["incumbent"]
    assert before["hyperparameters"]["half_life"] == 1000.0  # it is tested beside what takes its place
    final = history_of(run).final
    gain, low, high = final.gains["incumbent"]
    assert gain == pytest.approx(final.metrics["ndcg@5"] - final.compared["incumbent"]["ndcg@5"], abs=1e-6)
    assert low < gain < high
    assert prepare_final(run.region("berg"), NodeName("berg", None)) is False
    assert set(history_of(run, "berg").final.gains) == {"floor", "simple", "incumbent"}


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe("popularity", {"half_life": 10.0, "own": 0.5}),
        Recipe("knn", next(point for family, point in FIRST if family == "knn")),
        Recipe("ease", {"l2": 77.0, "fit_half_life": 50.0, "ask_half_life": 90.0, "own_weight": 3.0, "bias": 0.1}),
    ],
)
def test_a_family_in_office_is_a_point_of_the_space(played, recipe):
    """So the tuner learns of it, the blend may take it, and it is tried once."""
    recipe = complete_recipe(recipe)
    hold_office(played, recipe)
    run = shop.generate(played.path.parents[1] / "study.yaml")
    spec = read_spec(run.region(POOLED).spec)
    assert spec.first[0]["family"] == recipe.family and spec.first.count(spec.first[0]) == 1
    shop.play_trial(run.region(POOLED), NodeName(POOLED, 0))
    history = history_of(run)
    assert incumbent_trial(spec, history) == 0 and best_by_family(spec, history) == {recipe.family: 0}


@pytest.mark.parametrize("recipe", [Recipe("popularity", seed=7), Recipe("popularity", {"half_life": 2.0})])
def test_a_recipe_that_the_space_does_not_hold_is_tried_all_the_same(played, recipe):
    hold_office(played, complete_recipe(recipe))
    spec = read_spec(shop.generate(played.path.parents[1] / "study.yaml").region(POOLED).spec)
    assert spec.first[0] == {"family": "incumbent"} and len(spec.first) == 10


def test_a_regions_own_recipe_is_tried_again_and_stays(played, monkeypatch):
    """Of its own customers it is no surer of its place than the group's; only what is surely better takes it."""
    decide_own(played, "berg", 3)
    shop.play_final(played.region("berg"), NodeName("berg", None))
    recipe = history_of(played).settled[3].recipe
    run = shop.generate(played.path.parents[1] / "study.yaml")
    source, spec = run.region(POOLED), read_spec(run.region(POOLED).spec)
    assert spec.own == {"berg": recipe} and spec.first[2] == history_of(played).proposals[3].point
    shop.play_search(run)
    place = source.trial(NodeName(POOLED, 2)) / "scores.npy"
    values, (first, last) = np.load(source.trial(NodeName(POOLED, 0)) / "scores.npy"), spec.rows["valid"]["berg"]
    asked = first + np.flatnonzero(np.isfinite(values[0, 0, first:last]))
    values[0, 0, asked] += np.resize([0.05, -0.055], len(asked))
    np.save(place, values)
    monkeypatch.setattr("regiondag.champions.choose.Rule", partial(Rule, own_customers=20))
    prepare_final(source, FINAL)
    berg = read_decisions(source)["regions"]["berg"]
    assert (berg["kind"], berg["trial"]) == ("own", 2) and berg["reason"].startswith("own, kept: ease, l2 300")
    assert shop.play_final(source, FINAL) and shop.play_final(run.region("berg"), NodeName("berg", None))
    assert history_of(run, "berg").final.recipe == recipe and not history_of(run, "berg").final.promoted


def test_a_blend_of_one_region_alone_is_tried_again(played, capsys):
    decide_own(played, "berg", 8)
    shop.play_final(played.region("berg"), NodeName("berg", None))
    blend = recipe_of(facts_of(played, "berg")["recipe"])
    hold_office(played, Recipe("popularity", {"half_life": 10.0, "own": 0.5}), (POOLED, "avon", "cove", "dale"))
    run = shop.generate(played.path.parents[1] / "study.yaml")
    spec = read_spec(run.region(POOLED).spec)
    assert spec.own == {"berg": blend} and spec.first[1] == {"family": "incumbent", "region": "berg"}
    shop.play_search(run)
    assert find_trial(spec, history_of(run), blend) == 1
    assert set(best_by_family(spec, history_of(run))) == {"popularity", "knn", "ease"}
    cli.main(["verify", str(run.path)])
    assert "in office" not in capsys.readouterr().out


def hold_office(run, recipe, slugs=(POOLED, *SLUGS)):
    """Have a recipe in office in a run that has ended, and in the registry beside it."""
    registry = open_registry(run.path.parent, read_manifest(run).study)
    for slug in slugs:
        champion = registry.current(slug)
        known = [champion.folder / CHAMPION_FILE] if champion else []
        for path in (run.region(slug).champion_metrics, *known):
            path.write_text(json.dumps(json.loads(path.read_text()) | {"recipe": recipe_to_raw(recipe)}))


def recipe_to_raw(recipe):
    return json.loads(json.dumps(asdict(recipe)))


def test_where_nothing_can_be_learned_the_floor_serves(tmp_path):
    """Items are taken at random by their popularity alone: whatever seems better is chance."""
    run = shop.generate(shop.write_shop(tmp_path, liked=0.5))
    shop.play_search(run)
    shop.play_final(run.region(POOLED), FINAL)
    decisions = read_decisions(run.region(POOLED))
    assert decisions["common"]["kind"] == "floor" and decisions["common"]["trial"] == decisions["floor"]
    assert decisions["common"]["reason"].startswith("floor: no")
    assert "recent popularity" in decisions["common"]["reason"]
    assert {one["kind"] for one in decisions["regions"].values()} == {"floor"}
    assert prepare_final(run.region("avon"), NodeName("avon", None)) is False
    row = next(row for row in summarise(run).regions if row.slug == "avon")
    assert row.recipe.startswith("popularity") and row.reason.startswith("floor: nothing beat recent popularity")


@pytest.mark.parametrize("scope", ["", "scope: region, "])
def test_a_popularity_in_office_is_the_floor_that_is_kept(tmp_path, scope):
    """Another popularity is better by next to nothing."""
    text = STUDY.replace("[ease, knn, blend]", "[popularity]").replace("rounds: 2", scope + "rounds: 1")
    run = shop.generate(shop.write_shop(tmp_path, text, liked=0.5))
    slug = "avon" if scope else POOLED
    shop.play_search(run, 4, slug)
    shop.play_final(run.region(slug), NodeName(slug, None))
    facts, path = facts_of(run, slug), run.region(slug).champion_metrics
    office = recipe_of(facts["recipe"])
    less = {**office.hyperparameters, "half_life": 0.8 * office.hyperparameters["half_life"]}
    office = replace(office, hyperparameters=less)
    path.write_text(json.dumps(facts | {"recipe": recipe_to_raw(office)}))

    run = shop.generate(run.path.parents[1] / "study.yaml")
    shop.play_search(run, 4, slug)
    tried, other = (run.region(slug).trial(NodeName(slug, number)) / "scores.npy" for number in (0, 1))
    values = np.load(other)
    np.save(tried, values + np.resize(np.array([0.05, -0.055], np.float32), values.shape[2]))
    shop.play_final(run.region(slug), NodeName(slug, None))
    decisions, final = read_decisions(run.region(slug)), history_of(run, slug).final
    assert decisions["common"]["kind"] == "floor" and decisions["common"]["trial"] == decisions["floor"] == 0
    assert final.recipe == office and not final.promoted and final.reason.startswith("floor: no")


def test_a_study_of_one_family_has_no_blend(tmp_path):
    text = STUDY.replace("[ease, knn, blend]", "[popularity, blend]").replace("rounds: 2", "rounds: 1")
    run = shop.generate(shop.write_shop(tmp_path, text))
    shop.play_search(run, 4)
    assert prepare_trial(run.region(POOLED), NodeName(POOLED, 4)) is False  # a blend of one is that one
    shop.play_final(run.region(POOLED), FINAL)
    assert history_of(run).final.recipe.family == "popularity"
