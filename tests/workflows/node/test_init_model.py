"""PRE of regions that start from a model: the first one takes it, all others keep to what it took."""

from __future__ import annotations

import json

import pytest

from nnlib.contract import sha256_of
from regiondag.errors import GiveUpError, TryAgainError
from regiondag.node.post import settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.report.summary import summarise
from regiondag.run.champions import earlier_runs, find_incumbents
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from tests.workflows.conftest import STUDY
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import END, finish, play_trials, restrict, trial_of

pytestmark = pytest.mark.slow

NEIGHBOUR = STUDY.replace("germany.nc}", "germany.nc, init: neighbour, neighbour: United Kingdom}")
FIRST, FINAL = NodeName("germany", 0), NodeName("germany", None)


@pytest.fixture
def run(study_file, tmp_path):
    study_file.write_text(NEIGHBOUR)
    return create(study_file, tmp_path / "runs")


def win(folder, slug, value=0.5):
    """Play a region's trials and its final training."""
    for number in range(4):
        node = NodeName(slug, number)
        prepare_trial(folder, node)
        finish(folder, node, 0.1 * number)
        settle_trial(folder, node, END)
    node = NodeName(slug, None)
    prepare_final(folder, node)
    finish(folder, node, value)
    settle_final(folder, node, END)
    return json.loads(folder.champion_metrics.read_text())


@pytest.fixture
def neighbour(run):
    return win(run.region("united-kingdom"), "united-kingdom")


def test_trials_and_the_final_training_start_from_the_neighbours_champion(run, folder, neighbour):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    prepare_final(folder, FINAL)
    hidden = neighbour["hyperparameters"]["hidden"]
    for node in (*(NodeName("germany", number) for number in range(4)), FINAL):
        trial = trial_of(folder, node)
        assert (trial.init, trial.sha256["init.nc"]) == ("init.nc", neighbour["sha256"])
        assert trial.hyperparameters == {"hidden": hidden}
    assert sha256_of(folder.init_model) == neighbour["sha256"]
    points = [proposal.point for proposal in Journal(folder.journal).read().proposals.values()]
    assert {point["hidden"] for point in points} == {hidden}
    assert len({point["learning_rate"] for point in points}) == 4
    facts = json.loads(folder.init_facts.read_text())
    assert (facts["kind"], facts["region"], facts["run"]) == ("neighbour", "United Kingdom", run.path.name)
    finish(folder, FINAL)
    settle_final(folder, FINAL, END)
    assert json.loads(folder.champion_metrics.read_text())["inputs"]["init.nc"] == neighbour["sha256"]


def test_a_region_that_starts_from_random_has_no_init(run, neighbour):
    trial = trial_of(run.region("united-kingdom"), NodeName("united-kingdom", 0))
    assert trial.init is None and "init.nc" not in trial.sha256


def test_pre_run_twice_keeps_to_the_model_it_took(run, folder, neighbour):
    prepare_trial(folder, FIRST)
    first = (folder.trial(FIRST) / "trial.json").read_bytes(), folder.journal.read_bytes()
    champion = run.region("united-kingdom").champion_model
    champion.with_suffix(".new").write_bytes(b"another model")
    champion.with_suffix(".new").replace(champion)
    prepare_trial(folder, FIRST)
    assert ((folder.trial(FIRST) / "trial.json").read_bytes(), folder.journal.read_bytes()) == first
    assert sha256_of(folder.init_model) == neighbour["sha256"]


def test_the_first_point_of_all_takes_the_shape_of_the_model(study_file, tmp_path, folder, neighbour):
    """A champion's other hyperparameters are tried first, also where its own width was another one."""
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    prepare_final(folder, FINAL)
    finish(folder, FINAL)
    settle_final(folder, FINAL, END)
    study_file.write_text(NEIGHBOUR)
    run = create(study_file, tmp_path / "runs", find_incumbents(earlier_runs(tmp_path / "runs", "tiny"), ["germany"]))
    hidden = win(run.region("united-kingdom"), "united-kingdom")["hyperparameters"]["hidden"]
    raw = json.loads(run.region("germany").spec.read_text())
    assert raw["first"][0]["hidden"] in range(2, 9)
    raw["first"][0]["hidden"] = 8 if hidden != 8 else 7
    run.region("germany").spec.write_text(json.dumps(raw))
    prepare_trial(run.region("germany"), FIRST)
    point = Journal(run.region("germany").journal).read().proposals[0].point
    assert point == {"hidden": hidden, "learning_rate": raw["first"][0]["learning_rate"]}


@pytest.mark.parametrize("what", ["link_or_copy", "write_atomically"])
def test_a_crash_while_the_model_is_taken_is_repeated(folder, neighbour, monkeypatch, what):
    with monkeypatch.context() as patch:
        patch.setattr(f"regiondag.node.init_model.{what}", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            prepare_trial(folder, FIRST)
    assert not folder.init_facts.exists() and not Journal(folder.journal).read().proposals
    assert prepare_trial(folder, FIRST)
    assert trial_of(folder, FIRST).sha256["init.nc"] == neighbour["sha256"]


def test_a_model_that_cannot_be_linked_is_copied(folder, neighbour, monkeypatch):
    monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError(18, "another file system")))
    prepare_trial(folder, FIRST)
    assert sha256_of(folder.init_model) == neighbour["sha256"]
    assert [path.name for path in folder.path.iterdir() if path.name.startswith(".")] == []


def test_a_model_replaced_in_the_middle_is_tried_again(folder, neighbour, monkeypatch):
    monkeypatch.setattr("regiondag.node.init_model.link_or_copy", lambda source, target: target.write_bytes(b"torn"))
    with pytest.raises(TryAgainError, match="replaced while it was copied"):
        prepare_trial(folder, FIRST)
    assert not folder.init_facts.exists()


def test_alone_the_region_says_which_dag_comes_first(run, folder):
    for _ in range(2):
        with pytest.raises(GiveUpError) as caught:
            prepare_trial(folder, FIRST)
    text = str(caught.value)
    assert "region 'Germany' starts from the champion of 'United Kingdom', which has none in this run yet" in text
    assert f"submit {run.region('united-kingdom').dag} first" in text and str(run.study_dag) in text
    assert "waits for the champion of the region 'united-kingdom'" in summarise(run).regions[1].reason
    win(run.region("united-kingdom"), "united-kingdom")
    assert prepare_trial(folder, FIRST)


def test_a_model_without_a_value_for_the_networks_shape(run, folder, neighbour):
    metrics = run.region("united-kingdom").champion_metrics
    metrics.write_text(json.dumps({**neighbour, "hyperparameters": {"layers": 3, "learning_rate": 0.1}}))
    with pytest.raises(GiveUpError) as caught:
        prepare_trial(folder, FIRST)
    text = str(caught.value)
    assert "trained without a value for $hidden of its network.json" in text and "layers, learning_rate" in text
    assert not folder.init_model.exists()


def test_constraints_that_the_model_leaves_no_point_for(folder, neighbour):
    restrict(folder, constraints=["learning_rate * hidden > 99"])
    with pytest.raises(GiveUpError, match=r"has hidden = \d, and no point .*learning_rate \* hidden > 99"):
        prepare_trial(folder, FIRST)


def test_tomorrows_trainings_start_from_todays_champion(study_file, tmp_path):
    study_file.write_text(STUDY + "init: champion\n")
    today = create(study_file, tmp_path / "runs")
    champion = win(today.region("germany"), "germany")
    assert "init.nc" not in today.region("germany").submit_files[0].read_text()
    assert trial_of(today.region("germany"), FIRST).init is None
    run = create(study_file, tmp_path / "runs", find_incumbents(earlier_runs(tmp_path / "runs", "tiny"), ["germany"]))
    tomorrow = run.region("germany")
    assert all("regions/germany/init.nc" in path.read_text() for path in tomorrow.submit_files)
    prepare_trial(tomorrow, FIRST)
    trial = trial_of(tomorrow, FIRST)
    assert (trial.init, trial.sha256["init.nc"]) == ("init.nc", champion["sha256"])
    assert trial.hyperparameters == {"hidden": champion["hyperparameters"]["hidden"]}
    other = run.region("united-kingdom")
    prepare_trial(other, NodeName("united-kingdom", 0))
    assert trial_of(other, NodeName("united-kingdom", 0)).init is None
    assert "PARENT germany_final" not in run.study_dag.read_text()


def test_a_model_from_a_file_is_copied_when_the_run_is_made(study_file, tmp_path):
    body = tmp_path / "body.nc"
    body.write_bytes(b"a model from elsewhere")
    study_file.write_text(STUDY + "init: {model: body.nc}\n")
    run = create(study_file, tmp_path / "runs")
    folders = [run.region(slug) for slug in ("united-kingdom", "germany")]
    copies = [folder.init_model for folder in folders]
    digest = sha256_of(body)
    body.write_bytes(b"another one, which the run does not care about")
    assert [sha256_of(copy) for copy in copies] == [digest] * 2
    assert copies[0].stat().st_ino == copies[1].stat().st_ino  # one copy a run
    manifest = json.loads(run.manifest.read_text())
    inside = [f"regions/{slug}/init.nc" for slug in ("united-kingdom", "germany")]
    assert [manifest["sha256"][name] for name in inside] == [digest] * 2
    assert {manifest["sources"][name] for name in inside} == {str(body)}
    play_trials(folders[1], [0.1, 0.4, 0.3, 0.2])
    prepare_final(folders[1], FINAL)
    for node in (*(NodeName("germany", number) for number in range(4)), FINAL):
        trial = trial_of(folders[1], node)
        assert (trial.init, trial.sha256["init.nc"]) == ("init.nc", digest)
    points = [proposal.point for proposal in Journal(folders[1].journal).read().proposals.values()]
    assert len({point["hidden"] for point in points}) > 1  # its shape is the network's to say
    assert "init.nc" in (folders[1].path / "train.sub").read_text() and not folders[1].init_facts.exists()


def test_a_changed_model_is_something_new(study_file, tmp_path):
    from regiondag.config.load import load_config
    from regiondag.run.manifest import read_manifest
    from regiondag.update.changes import is_unchanged

    body = tmp_path / "body.nc"
    body.write_bytes(b"a model from elsewhere")
    study_file.write_text(STUDY + "init: {model: body.nc}\n")
    run = create(study_file, tmp_path / "runs")
    digests = read_manifest(run).sha256
    regions = load_config(study_file).regions
    assert all(is_unchanged(region, digests) for region in regions)
    body.write_bytes(b"a better one")
    assert not any(is_unchanged(region, digests) for region in regions)
    study_file.write_text(STUDY)
    assert not any(is_unchanged(region, digests) for region in load_config(study_file).regions)
