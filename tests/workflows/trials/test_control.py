"""Trials cancelled and run again where no DAG is in progress, and what is said where that cannot be."""

from __future__ import annotations

import json

import pytest

from regiondag.cli import main
from regiondag.condor.submit import list_rescue_files, reopen_in_rescue_files
from regiondag.node.post import JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from regiondag.trials.control import NO_TRIAL, RegionJobs, cancel
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import END, FINAL, finish, play_trials

LOG = """000 (001.000.000) 2026-11-22 06:00:06 Job submitted from host: <127.0.0.1:9618>
...
001 (001.000.000) 2026-11-22 06:00:07 Job executing on host: <127.0.0.1:9618>
...
"""


@pytest.fixture
def run(study_file, tmp_path, monkeypatch):
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("regiondag.pool.pool.find_installed_pool", lambda: None)
    return create(study_file, tmp_path / "runs")


def ask(capsys, run, verb, *words):
    capsys.readouterr()
    code = main(["trial", verb, str(run.path), "Germany", *map(str, words)])
    told = capsys.readouterr()
    return code, told.out, told.err


def history(folder):
    return Journal(folder.journal).read()


def test_cancel_before_a_dag_is_submitted_again(run, folder, capsys):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    code, out, _ = ask(capsys, run, "cancel", 0)
    assert (code, out) == (0, "germany_t0000: cancelled: it is not run when the DAG is submitted again\n")
    assert prepare_trial(folder, node) is False
    assert history(folder).settled[0].reason == "cancelled"
    code, out, err = ask(capsys, run, "cancel", 0, 1, 3, "final")
    assert code == 1 and out.startswith("germany_t0001: cancelled")  # proposed together with trial 0
    assert "germany_t0000: has ended already: removed, cancelled" in err
    assert "germany_t0003: is not proposed yet" in err and "germany_final: the final training is" in err
    assert ask(capsys, run, "rerun", 0)[0] == 0  # which undoes it
    assert prepare_trial(folder, node) is True


def test_what_dagman_has_prepared_ends_as_soon_as_it_starts(run, folder):
    """Its job is not in the queue yet, so there is nothing to remove: its trial.json is taken away."""
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    answer = cancel(RegionJobs(None, run, (7,)), node)
    assert answer.done and "ends when its turn comes" in answer.text
    assert (folder.trial(node) / "trial.json").read_text() == NO_TRIAL
    assert not cancel(RegionJobs(None, run, (7,)), node).done
    settled = settle_trial(folder, node, JobEnd(4, 0, 2))  # what the job does without a trial
    assert (settled.status, settled.reason) == ("removed", "cancelled")


def test_a_job_that_has_just_come_back_keeps_its_trial(run, folder):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    before = (folder.trial(node) / "trial.json").read_text()
    finish(folder, node, 0.5)  # POST is still to come
    assert "POST will settle it" in cancel(RegionJobs(None, run, (7,)), node, patience=0.0).text
    assert (folder.trial(node) / "trial.json").read_text() == before
    assert settle_trial(folder, node, END).ok


def test_run_again_what_failed_and_by_force_what_did_not(run, folder, capsys):
    play_trials(folder, [0.1, 0.4, 0.2])
    node = NodeName("germany", 3)
    prepare_trial(folder, node)
    settle_trial(folder, node, JobEnd(3, 0, 2))
    prepare_final(folder, FINAL)
    finish(folder, FINAL, 0.5)
    settle_final(folder, FINAL, END)
    code, out, err = ask(capsys, run, "rerun", "--where", "status == diverged or trial == 1")
    assert code == 1 and "germany_t0001: ended well (ok); --force" in err
    assert "germany_t0003: runs again, and then the final training, as another trial may win, when" in out
    assert f"regiondag submit {run.path}" in out
    assert history(folder).reopened == {3, None}
    code, _, err = ask(capsys, run, "rerun", 3)
    assert code == 1 and "is to be run again already" in err
    code, out, _ = ask(capsys, run, "rerun", 1, "--force")
    assert code == 0 and "final training" not in out
    assert prepare_trial(folder, NodeName("germany", 0)) is False
    for number, value in ((1, 0.15), (3, 0.9)):
        assert prepare_trial(folder, NodeName("germany", number)) is True
        finish(folder, NodeName("germany", number), value)
        settle_trial(folder, NodeName("germany", number), END)
    assert prepare_final(folder, FINAL) is True
    assert history(folder).won[0] == 3  # another one wins now
    finish(folder, FINAL, 0.6)
    settle_final(folder, FINAL, END)
    assert json.loads(folder.champion_metrics.read_text())["trial"] == 3
    assert prepare_final(folder, FINAL) is False


def test_trials_that_did_not_run_are_not_run_again(run, folder, capsys):
    prepare_trial(folder, NodeName("germany", 0))
    code, _, err = ask(capsys, run, "rerun", 0, "final")
    assert code == 1 and err.count("has not ended yet: it runs when its turn comes") == 2


def test_a_rescue_file_forgets_what_is_to_run_again(run, folder, capsys):
    play_trials(folder, [0.1, 0.4])
    rescues = [run.path / "study.dag.rescue001", run.path / "study.dag.rescue002"]
    text = "# Rescue DAG file\nDONE germany_t0000\nDONE germany_t0001\nDONE united-kingdom_t0000\nDONE germany_final\n"
    for path in rescues:
        path.write_text(text)
    assert ask(capsys, run, "rerun", 0, "--force")[0] == 0
    assert rescues[1].read_text() == text.replace("DONE germany_t0000\n", "").replace("DONE germany_final\n", "")
    assert rescues[0].read_text() == text  # DAGMan takes the last one
    finish(folder, NodeName("germany", 0), 0.3)
    settle_trial(folder, NodeName("germany", 0), END)
    rescues[1].write_text(text)
    reopen_in_rescue_files(run, ["germany", "united-kingdom"])
    assert rescues[1].read_text() == text  # it has been run again


def test_a_rescue_file_forgets_what_only_machines_failed(run, folder):
    play_trials(folder, [0.1])
    node = NodeName("germany", 1)
    prepare_trial(folder, node)
    settle_trial(folder, node, JobEnd(75, 2, 2))
    rescue = run.path / "study.dag.rescue001"
    rescue.write_text("DONE germany_t0000\nDONE germany_t0001\n")
    reopen_in_rescue_files(run, ["germany", "united-kingdom"])
    assert rescue.read_text() == "DONE germany_t0000\n"


def test_without_a_pool_nothing_is_done_while_a_dag_is_in_progress(run, folder, capsys):
    pytest.importorskip("htcondor2")
    prepare_trial(folder, NodeName("germany", 0))
    (run.path / "study.dag.dagman.log").write_text(LOG)
    before = folder.journal.read_bytes()
    for verb, words in (("cancel", [0]), ("rerun", [0]), ("priority", [0, "--priority", 1])):
        code, _, err = ask(capsys, run, verb, *words)
        assert code == 5 and "regiondag pool up" in err
    assert folder.journal.read_bytes() == before
    assert main(["study", "show", str(run.path)]) == 0  # it shows what it knows
    told = capsys.readouterr()
    assert "where jobs are is not known" in told.err and "running" in told.out


def test_conditions_in_study_show(run, folder, capsys):
    play_trials(folder, [0.1, 0.4])
    capsys.readouterr()
    assert main(["study", "show", str(run.path), "--where", "value > 0.2 and status == ok", "--json"]) == 0
    assert [row["trial"] for row in json.loads(capsys.readouterr().out)["trials"]] == [1]
    assert main(["study", "show", str(run.path), "--where", "depth < 3"]) == 2
    assert "'depth' is no name here" in capsys.readouterr().err
    assert main(["trial", "rerun", str(run.path), "Germany"]) == 2
    assert "no trial is named" in capsys.readouterr().err
    assert ask(capsys, run, "rerun", "--where", "value > 9")[::2] == (
        0, "no trial of Germany meets --where 'value > 9'\n",
    )  # fmt: skip


def test_rescue_files_that_were_set_aside_are_not_the_newest(tmp_path):
    for name in ("study.dag.rescue001", "study.dag.rescue002", "study.dag.rescue002.old"):
        (tmp_path / name).touch()
    assert [path.name for path in list_rescue_files(tmp_path / "study.dag")] == [
        "study.dag.rescue001",
        "study.dag.rescue002",
    ]


def test_trials_that_cannot_run_are_not_promised(run, folder, capsys):
    prepare_trial(folder, NodeName("germany", 0))
    code, _, err = ask(capsys, run, "rerun", 500)
    assert code == 2 and "Germany has no trial 500, legal: 0 to 3, and `final`" in err
    settle_trial(folder, NodeName("germany", 0), JobEnd(3, 0, 2))
    spec = json.loads(folder.spec.read_text())
    folder.spec.write_text(json.dumps(spec | {"deadline": 60}))
    run.started.write_text('{"started": 1.0}')
    code, _, err = ask(capsys, run, "rerun", 0)
    assert code == 1 and "germany_t0000: would do nothing: the study's deadline has passed" in err


def test_a_trial_that_had_ended_before_is_cancelled_when_post_says_so(run, folder, monkeypatch):
    """It was the machine's fault, and the trial runs again by now."""
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    assert settle_trial(folder, node, JobEnd(75, 2, 2)).status == "machine"
    prepare_trial(folder, node)
    monkeypatch.setattr(RegionJobs, "jobs", lambda *_: ["7.0"])
    monkeypatch.setattr(RegionJobs, "tell", lambda *_: None)
    queue = RegionJobs(None, run, (7,))
    assert "POST will settle it" in cancel(queue, node, patience=0.3).text
    journal = Journal(folder.journal)
    with journal.locked():
        journal.append("reopened", trial=0)
    prepare_trial(folder, node)
    monkeypatch.setattr(RegionJobs, "tell", lambda *_: settle_trial(folder, node, JobEnd(-1002, 0, 2)))
    answer = cancel(queue, node)
    assert (answer.done, answer.text) == (True, "removed, cancelled")
