"""Trials and champions as runs of MLflow: each once, later what could not go, and never at the DAG's cost."""

from __future__ import annotations

import json
import math
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import Exit, Status
from regiondag.cli import main
from regiondag.node.main import main as node_main
from regiondag.notify import track as module
from regiondag.notify.mlflow import NotTrackedError, Server
from regiondag.notify.track import track_post, track_run
from regiondag.notify.tracked import MOST_PARAMETERS, MOST_POINTS, batches_of, describe_training, list_ended
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder
from regiondag.study.track import Track, track_to_json
from tests.support.made_up_run import Shape, write_run
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.notify.played_mlflow import NAME, PlayedMlflow, played_mlflow

SLUGS = ("region-0", "region-1", "region-2")
SECRET = "T0P-S3CRET-token"  # noqa: S105 (nobody's)


@pytest.fixture
def server():
    with played_mlflow() as played:
        yield played


@pytest.fixture
def run(tmp_path, server) -> RunFolder:
    """Return a run of three regions, the last one served by the first, that is tracked."""
    made = write_run(tmp_path / "run-made-1", Shape(regions=3, trials=6, epochs=5, served=True), ["North", "Süd"])
    made.track.write_text(track_to_json(Track(server.url)))
    return made


def test_each_trial_and_champion_is_a_run_with_all_that_is_known(run, server):
    assert track_post(run, SLUGS, True, time.time()) == ["mlflow: 15 sent"]
    assert list(server.experiments) == ["made up"]
    by_node = {found["tags"]["node"]: found for found in server.runs.values()}
    assert len(by_node) == len(server.runs) == 15
    history = Journal(run.region("region-1").journal).read()
    for number, outcome in history.settled.items():
        found = by_node[f"region-1_t{number:04d}"]
        assert found["params"] == {name: str(value) for name, value in history.proposals[number].point.items()}
        assert found["status"] == ("FINISHED" if outcome.status in (Status.OK, Status.PRUNED) else "FAILED")
        assert found["end"] == round(history.settled_at[number] * 1000)
        assert found["end"] - found["start"] == round(outcome.seconds * 1000)
        curve = sorted((step, value) for name, value, step, _ in found["metrics"] if name == "curve/ndcg_at_20")
        assert curve == list(enumerate(outcome.curve, start=1))
        values = [(value, step) for name, value, step, _ in found["metrics"] if name == "ndcg_at_20"]
        assert values == ([] if outcome.value is None else [(outcome.value, outcome.best_epoch)])
        tags = found["tags"]
        assert (tags["study"], tags["region"], tags["run"]) == ("made up", "Süd", "run-made-1")
        assert (tags["status"], tags.get("host")) == (outcome.status, outcome.host or None)
    final = by_node["region-1_final"]
    assert final["tags"]["champion"] == "true" and final["tags"]["artifact"].endswith(
        "regions/region-1/champion/model.nc"
    )
    assert ("test/ndcg_at_20" in {name for name, *_ in final["metrics"]}) and "hidden" in final["params"]


def test_what_is_there_is_not_sent_again_and_nobody_is_asked(run, server):
    track_post(run, SLUGS, True, time.time())
    server.asked.clear()
    for last in (False, True):
        assert track_post(run, SLUGS, last, time.time()) == []
    assert server.asked == []


def keep_models(run, server):
    """Give each region a model, and have champions sent, too."""
    for slug in SLUGS:
        run.region(slug).champion_model.write_bytes(slug.encode())
    run.track.write_text(track_to_json(Track(server.url, models=True)))


def test_champions_become_versions_of_models_called_after_their_regions(run, server):
    keep_models(run, server)
    assert track_post(run, SLUGS, True, time.time()) == ["mlflow: 15 sent"]
    assert {name: len(versions) for name, versions in server.versions.items()} == {
        f"made up.{slug}": 1 for slug in SLUGS
    }
    for slug in SLUGS:
        [version] = server.versions[f"made up.{slug}"]
        uri = f"1/{version['run_id']}/artifacts/champion"
        assert version["source"] == f"mlflow-artifacts:/{uri}" and server.files[f"{uri}/model.nc"] == slug.encode()


@pytest.mark.parametrize("broken", ["registered-models/create", "model-versions/create", "api/2.0/mlflow-artifacts"])
def test_a_model_that_came_half_through_is_one_version(broken, run, server):
    keep_models(run, server)
    server.before = lambda path: (503, b"{}") if path.startswith(broken) else None
    track_post(run, SLUGS, True, time.time())
    server.before = lambda _: None
    track_post(run, SLUGS, True, time.time())
    assert [len(versions) for versions in server.versions.values()] == [1, 1, 1] and len(server.runs) == 15


def test_a_server_that_keeps_artifacts_elsewhere_or_a_model_that_is_gone_is_told(run, server):
    keep_models(run, server)
    run.region("region-0").champion_model.unlink()
    server.artifacts = "s3://bucket"
    said = track_post(run, SLUGS, True, time.time())
    assert said[0] == "mlflow: 12 sent" and len(said) == 4
    assert "champion/model.nc is gone" in said[1] and "keeps artifacts at s3:" in said[2] and "models: false" in said[2]


@pytest.mark.parametrize("broken", ["runs/create", "runs/log-batch", "runs/update"])
def test_a_fault_is_noted_and_what_it_left_is_sent_later_and_once(broken, run, server):
    server.before = lambda path: (503, b"sorry\x1b[2J") if path == broken else None
    [said] = track_post(run, SLUGS, False, time.time())
    assert said == f"mlflow: NOT sent: 127.0.0.1 answers 503 to {broken}: sorry?[2J; it is sent later"
    server.before = lambda _: None
    assert track_post(run, SLUGS, False, time.time()) == []  # so soon after a failure
    assert track_post(run, SLUGS, False, time.time() + module.PAUSE + 1) == ["mlflow: 15 sent"]
    assert len(server.runs) == 15 and {found["status"] for found in server.runs.values()} <= {"FINISHED", "FAILED"}


def test_an_answer_that_was_lost_makes_no_second_run(run, server, monkeypatch):
    create_run = Server.create_run

    def cut_off(self, *of):
        create_run(self, *of)
        raise NotTrackedError("gone")

    monkeypatch.setattr(Server, "create_run", cut_off)
    assert track_post(run, SLUGS, True, time.time()) == ["mlflow: NOT sent: gone; it is sent later"]
    assert len(server.runs) == 1
    monkeypatch.setattr(Server, "create_run", create_run)
    with run.region("region-0").tracked.open("a") as file:
        file.write('{"key": "torn')
    assert track_post(run, SLUGS, True, time.time()) == ["mlflow: 15 sent"]
    assert len(server.runs) == 15


def test_a_training_whose_values_are_refused_does_not_stand_before_the_others(run, server):
    refused = iter([True])
    server.before = lambda path: (400, b"{}") if path == "runs/log-batch" and next(refused, False) else None
    first, second = track_post(run, SLUGS, True, time.time())
    assert (first, "refused: 127.0.0.1 answers 400" in second) == ("mlflow: 14 sent", True)
    assert track_post(run, SLUGS, True, time.time()) == []
    track = Track(server.url)
    assert track_run(run, track, SLUGS, math.inf, again=True) == ["mlflow: 1 sent"] and len(server.runs) == 15


def test_a_training_that_ends_anew_is_a_run_of_its_own(run, server):
    track_post(run, SLUGS, True, time.time())
    journal = Journal(run.region("region-1").journal)
    with journal.locked():
        journal.append("reopened", trial=0)
        journal.append("settled", trial=0, status="ok", value=0.5)
    assert track_post(run, ["region-1"], False, time.time()) == ["mlflow: 1 sent"]
    assert sum(found["tags"]["node"] == "region-1_t0000" for found in server.runs.values()) == 2


def test_another_server_in_its_place_is_asked_anew(run, server):
    server.before = lambda path: (500, b"") if len(server.runs) == 4 else None
    track_post(run, SLUGS, True, time.time())
    server.before, server.experiments, server.runs = (lambda _: None), {"other": "9"}, {}
    assert track_post(run, SLUGS, True, time.time()) == ["mlflow: 12 sent"]
    assert server.experiments == {"other": "9", "made up": "2"}


def test_a_server_without_end_costs_a_post_no_more_than_its_seconds(run, server, monkeypatch):
    monkeypatch.setattr(module, "POST_SECONDS", 0.3)
    server.before = lambda _: time.sleep(2)
    begin = time.monotonic()
    assert track_post(run, SLUGS, False, time.time()) == ["mlflow: no end within 0.3 s; what is not sent is sent later"]
    assert time.monotonic() - begin < 1.5
    assert json.loads(run.tracked.read_text())["failed"] == "no end within 0.3 s"


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[]", b"{}", b'{"experiment": 7}', b'{"experiment": {"experiment_id": 7}}']
)
def test_what_is_no_server_of_mlflow_is_said(answer, run, server):
    server.before = lambda _: (200, answer)
    [said] = track_post(run, SLUGS, True, time.time())
    assert said.startswith("mlflow: NOT sent: ")


def test_secrets_come_from_files_or_variables_and_stand_nowhere(run, server, tmp_path, monkeypatch):
    (tmp_path / "token").write_text(SECRET + "\n")
    run.track.write_text(track_to_json(Track(server.url, token=f"file:{tmp_path}/token")))
    server.before = lambda _: (401, f"no {SECRET} here".encode())
    [said] = track_post(run, SLUGS, True, time.time())
    assert server.headers[-1]["Authorization"] == f"Bearer {SECRET}" and "401" in said and SECRET not in said
    for path in run.path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    of = {"MLFLOW_TRACKING_USERNAME": "ada", "MLFLOW_TRACKING_PASSWORD": "b", "MLFLOW_TRACKING_TOKEN": SECRET}
    server.before = lambda _: None
    with closing(Server(Track(server.url), variables=of)) as asked:
        asked.find_experiment("x")
    assert server.headers[-1]["Authorization"] == "Basic YWRhOmI="
    (tmp_path / "token").unlink()
    assert "token: No such file" in track_post(run, SLUGS, True, time.time())[0]
    with pytest.raises(NotTrackedError, match="by https alone"):
        Server(Track("http://example.org"), variables=of)


def post(run: RunFolder, *words: str) -> int:
    return node_main(["post", str(run.path), *words])


def test_posts_send_and_end_as_they_would_without(tmp_path, capsys, server: PlayedMlflow):
    study = write_study(tmp_path / "study", f"{STUDY}track: {{mlflow: '{server.url}'}}\n")
    made = create(study, tmp_path / "study/runs")
    job = ("germany_t0000", str(Exit.DIVERGED.value), "0", "2", "0", "7.0")
    with Journal(made.region("germany").journal).locked():
        Journal(made.region("germany").journal).append("proposed", trial=0, point={"hidden": 4, "learning_rate": 0.01})
    plain = create(write_study(tmp_path / "plain", STUDY), tmp_path / "plain/runs")
    code = post(plain, *job)
    assert not plain.track.exists() and "mlflow" not in capsys.readouterr().out
    assert post(made, *job) == code and len(server.runs) == 1
    assert "mlflow: 1 sent" in capsys.readouterr().out
    assert post(made, *job) == code and len(server.runs) == 1
    made.track.write_text("{")
    assert post(made, *job) == code
    assert "track.json is damaged" in capsys.readouterr().out


def test_the_command_sends_what_is_left(tmp_path, capsys, server: PlayedMlflow):
    study = write_study(tmp_path / "study", f"{STUDY}track: {{mlflow: '{server.url}'}}\n")
    made = create(study, tmp_path / "study/runs")
    journal = Journal(made.region("germany").journal)
    with journal.locked():
        journal.append("settled", trial=0, status="diverged", reason="the loss is nan")
    server.before = lambda _: (500, b"")
    capsys.readouterr()
    assert main(["notify", str(study), "--track"]) == 1
    seen = capsys.readouterr()
    assert seen.out == f"{made.path.name}: 1 NOT sent\n" and "NOT sent: 127.0.0.1 answers 500" in seen.err
    server.before = lambda _: None
    assert main(["notify", str(study), "--track", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"server": server.url, "left": {made.path.name: 0}}
    assert main(["notify", str(study), "--track"]) == 0
    assert capsys.readouterr().out == f"{server.url} has all of 1 runs\n"
    write_study(tmp_path / "study", STUDY)
    assert main(["notify", str(study), "--track"]) == 2
    assert "`track` names no server" in capsys.readouterr().err


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
TEXTS = st.text(max_size=600)


@given(
    metric=TEXTS,
    settings=st.dictionaries(TEXTS, st.one_of(NUMBERS, TEXTS, st.lists(st.integers())), max_size=250),
    curve=st.lists(NUMBERS, max_size=5),
    long=st.booleans(),
    reason=TEXTS,
)
def test_whatever_is_told_keeps_within_the_bounds_of_mlflow(metric, settings, curve, long, reason):
    outcome = TrialOutcome(3, Status.OK, reason, value=0.5, curve=tuple(curve * (500 if long else 1)), seconds=7.0)
    run = describe_training("key", NodeName("a", 3), outcome, 100.0, metric, settings, {})
    assert all(map(NAME.fullmatch, [*run.parameters, *(point.name for point in run.points)]))
    assert all(math.isfinite(point.value) and run.start <= point.time <= run.end for point in run.points)
    batches = list(batches_of(run))
    assert all(len(params) <= MOST_PARAMETERS and len(points) <= MOST_POINTS for params, points in batches)
    assert sum(len(params) for params, _ in batches) == len(run.parameters)
    assert [point for _, points in batches for point in points] == list(run.points)
    assert all(0 < len(text) <= 1000 for text in run.tags.values())


def test_keys_can_stand_in_quotes(tmp_path: Path):
    journal = Journal(tmp_path / "trials.jsonl")
    journal.append("settled", trial=0, status="ok")
    [(key, *_)] = list_ended(journal.read(), "a", "run-'\"\\é")
    assert key.startswith("run-____/a_t0000/")
