"""What people do to a run by hand: noticed, and said in a sentence: what was found, what is safe, what to type."""

from __future__ import annotations

import json
import shutil

import pytest

from regiondag.cli import main as regiondag
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder
from tests.workflows.node.test_repair import call
from tests.workflows.node.test_repair_half import NODES, _no_pool, go_on, half, play, prepare, run, script, whole
from tests.workflows.played import play_job

__all__ = ["_no_pool", "half", "run", "whole"]
pytestmark = pytest.mark.slow

GERMANY = "regions/germany"
T1 = f"{GERMANY}/trials/0001"


@pytest.fixture
def ended(run):
    """The same run at its end."""
    go_on(run)
    return run


def verify(run, capsys):
    code, said, _ = call(capsys, "verify", run.path)
    assert code == (1 if said else 0)
    return said


@pytest.mark.parametrize("what", ["study.dag", f"{GERMANY}/region.dag", f"{GERMANY}/train.sub", "dagman.config"])
def test_a_graph_or_submit_file_that_was_edited(ended, capsys, what):
    with (ended.path / what).open("a") as file:
        file.write("# mine\n")
    said = verify(ended, capsys)
    assert said.startswith(f"{what}: has the sha256") and "generate a new run" in said and said.count("\n") == 1


def test_a_trial_s_folder_that_was_removed(ended, capsys):
    shutil.rmtree(ended.path / T1)
    said = verify(ended, capsys)
    assert f"{T1}/result.json: is missing" in said and f"trial rerun {ended.path} germany 1 --force" in said


def test_a_result_scores_or_model_that_was_changed(ended, capsys):
    for name in ("0001/result.json", "0001/scores.npy", "final/model.nc", "final/floor.nc"):
        path = ended.path / GERMANY / "trials" / name
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        assert f"{GERMANY}/trials/{name}: has the sha256" in verify(ended, capsys)
        path.write_bytes(before)
    assert verify(ended, capsys) == ""


def other_run(half, tmp_path):
    """Return a second run of the same study, with other results."""
    other = RunFolder(shutil.copytree(half.path, tmp_path / "other" / half.path.name))
    shutil.rmtree(other.region("germany").path / "trials")
    other.region("germany").journal.unlink()
    other.manager_log.unlink()
    for number in (0, 1, 2):
        prepare(other, number)
        play_job(other.region("germany"), NODES[number], 0.7)
        script(other, "post", number, "0", "0", "2", "0", "")
    return other


@pytest.mark.parametrize("what", ["trials/0001", "trials/0001/result.json", "trials.jsonl", "."])
def test_what_is_put_back_from_another_run(half, run, tmp_path, capsys, what):
    other = other_run(half, tmp_path)
    theirs, ours = other.region("germany").path / what, run.region("germany").path / what
    if theirs.is_dir():
        shutil.rmtree(ours)
        shutil.copytree(theirs, ours)
    else:
        shutil.copyfile(theirs, ours)
    said = verify(run, capsys)
    assert "trials.jsonl says" in said or "put back from an older copy or another run" in said
    assert "regiondag trial rerun" in said or "regiondag repair" in said


def test_a_region_that_is_put_back_from_an_older_copy_of_the_run(half, ended, whole, capsys):
    region = ended.region("germany").path
    shutil.rmtree(region)
    shutil.copytree(half.region("germany").path, region)
    said = verify(ended, capsys)
    assert "put back from an older copy" in said
    call(capsys, "repair", ended.path, "--apply")
    assert go_on(ended)[:4] == whole[:4]


def test_a_run_that_is_put_back_as_a_whole_is_older_than_its_champion(half, ended, capsys):
    shutil.rmtree(ended.path)
    shutil.copytree(half.path, ended.path)
    said = verify(ended, capsys)
    assert "of the registry, of which it knows nothing: it is an older copy" in said
    assert "what serves is safe" in said and "put a newer copy" in said.lower()


def test_a_run_that_is_copied_and_submitted_from_there(run, tmp_path, monkeypatch, capsys):
    copied = RunFolder(shutil.copytree(run.path, tmp_path / "elsewhere" / run.path.name))
    assert regiondag(["submit", str(copied.path)]) == 1
    assert "was made as" in capsys.readouterr().err
    before = run.region("germany").journal.read_bytes()
    for dag, code in ((copied.study_dag, 4), (run.study_dag, 0), (run.region("germany").dag, 0)):
        monkeypatch.setenv("_CONDOR_DAGMAN_LOG", f"{dag}.dagman.out")
        from regiondag.node.main import main

        assert main(["pre", str(run.path), str(NODES[3]), "0"]) == code
    said = capsys.readouterr().out
    assert "is a copy's" in said and f"type: regiondag submit {run.path}" in said
    assert run.region("germany").journal.read_bytes() == before


def test_two_dagmans_at_once(run, capsys):
    folder = run.region("germany")
    play_job(folder, NODES[3], 0.3)
    script(run, "post", 3, "0", "0", "2", "0", "7.0")
    play_job(folder, NODES[3], 0.3, seconds=9.0)
    script(run, "post", 3, "0", "0", "2", "0", "9.0")
    assert "job 9.0 ended after job 7.0 was settled, which stays: two DAGMans" in run.manager_log.read_text()
    assert Journal(folder.journal).read().settled[3].job == "7.0"
    assert f"{GERMANY}/trials/0003/result.json" in verify(run, capsys)


def test_an_old_rescue_file_runs_nothing_again(ended, whole):
    """`condor_submit_dag -dorescuefrom 1`, after later progress: PRE skips what the journal knows."""
    before = ended.region("germany").journal.read_bytes()
    assert not any(prepare(ended, number) for number in NODES)
    assert ended.region("germany").journal.read_bytes() == before


@pytest.mark.parametrize("event", [b'"settled"', b'"proposed"'])
def test_a_rescue_file_that_is_newer_than_the_journal_chooses_no_champion_by_fewer_trials(run, whole, capsys, event):
    for number in (3, 4, 5):
        if prepare(run, number):
            play(run, number)
    journal = run.region("germany").journal
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if not (event in line and b'"trial": 4,' in line)))
    with pytest.raises(AssertionError, match=r"lacks trial 4, which ended: .regiondag repair RUN"):
        prepare(run, None)
    assert call(capsys, "repair", run.path, "--apply")[0] == 0
    assert go_on(run) == whole


def test_facts_of_the_manifest_name_each_file_that_htcondor_reads(half):
    known = json.loads(half.manifest.read_text())["sha256"]
    written = [path for kind in ("*.dag", "*.sub", "dagman.config") for path in half.path.rglob(kind)]
    assert {str(path.relative_to(half.path)) for path in written if "trials" not in path.parts} <= known.keys()
