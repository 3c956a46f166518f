"""PRE and POST as DAGMan calls them, in every order that retries, recovery and rescue DAGs can produce."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from nnlib.confusion import Confusion, Example, confusion_of
from nnlib.contract import Result, Role, Status, result_to_json, sha256_of, trial_from_json
from regiondag.errors import GiveUpError, TryAgainError
from regiondag.monitor.status import read_status
from regiondag.node.post import JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.report.markdown import to_markdown
from regiondag.report.summary import summarise
from regiondag.report.write import write_report
from regiondag.run.champions import earlier_runs, find_incumbents
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from regiondag.run.region_spec import read_spec
from regiondag.trainers.jobs import jobs_of
from tests.workflows.conftest import write_region
from tests.workflows.generate.test_write_run import create
from tests.workflows.played import play_job


def trial_of(folder, node):
    return trial_from_json((folder.trial(node) / "trial.json").read_text())


finish = play_job


def play_trials(folder, values):
    for number, value in enumerate(values):
        node = NodeName("germany", number)
        prepare_trial(folder, node)
        finish(folder, node, value)
        settle_trial(folder, node, JobEnd(0, 0, 2))


END = JobEnd(0, 0, 2)
FINAL = NodeName("germany", None)


def test_the_first_node_proposes_for_its_round_and_all_agree(folder):
    prepare_trial(folder, NodeName("germany", 1))
    prepare_trial(folder, NodeName("germany", 0))
    proposals = Journal(folder.journal).read().proposals
    assert sorted(proposals) == [0, 1]
    trial = trial_of(folder, NodeName("germany", 1))
    assert trial.hyperparameters == {"hidden": proposals[1].point["hidden"]}
    assert trial.train.learning_rate == proposals[1].point["learning_rate"]
    assert trial.role is Role.TUNE and trial.train_files == ("data.train.nc",) and trial.test_file is None
    for file, digest in trial.sha256.items():
        assert sha256_of(folder.path / file) == digest
    assert set(trial.sha256) == {"network.json", "data.train.nc", "data.valid.nc"}


def test_pre_run_twice_changes_nothing_but_clears_the_failed_attempt(folder):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    first = (folder.trial(node) / "trial.json").read_bytes(), folder.journal.read_bytes()
    finish(folder, node)
    prepare_trial(folder, node)
    assert ((folder.trial(node) / "trial.json").read_bytes(), folder.journal.read_bytes()) == first
    assert (folder.trial(node) / "start" / "result.json").read_bytes() == b""  # what a job brings back it is given


def test_post_run_twice_records_once(folder):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    finish(folder, node)
    assert settle_trial(folder, node, END) == settle_trial(folder, node, END)
    assert folder.journal.read_text().count('"settled"') == 1


@pytest.mark.parametrize(
    ("exit_code", "status", "word"),
    [(3, "diverged", "diverged"), (-1002, "removed", "removed"), (3, "diverged", "")],
)
def test_failures_of_the_hyperparameters_are_recorded_and_the_study_goes_on(folder, exit_code, status, word):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    settled = settle_trial(folder, node, JobEnd(exit_code, 0, 2))
    assert settled.status == status and settled.value is None and word in settled.reason


@pytest.mark.parametrize(
    ("exit_code", "word"),
    [(75, "exit code 75"), (1, "job.err"), (-9, "signal 9"), (137, "137"), (120, "disk is full"), (0, "no complete"),
     (-1001, "did not accept")],
)  # fmt: skip
def test_faults_of_the_machine_are_tried_again_and_recorded_in_the_end(folder, exit_code, word):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    for retry in (0, 1):
        with pytest.raises(TryAgainError, match=f"try {retry + 2} of 3"):
            settle_trial(folder, node, JobEnd(exit_code, retry, 2))
    settled = settle_trial(folder, node, JobEnd(exit_code, 2, 2))
    assert settled.status == "machine" and word in settled.reason
    assert Journal(folder.journal).read().attempts == 2


def test_what_a_job_printed_last_is_the_reason_where_it_gave_none(folder):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    errors, trial = folder.trial(node) / "job.err", folder.trial(node) / "trial.json"
    errors.write_bytes(b"much\nbundle: it cannot be unpacked\x1b[2J\n\n")
    assert settle_trial(folder, node, JobEnd(75, 2, 2)).reason == (
        "the job ended with exit code 75; its job.err ends: bundle: it cannot be unpacked?[2J"
    )
    os.utime(errors, (0, trial.stat().st_mtime - 1))  # of the try before
    assert "without a reason or a word" in settle_trial(folder, node, JobEnd(75, 2, 2)).reason


def test_a_fault_of_the_machine_stays_open_and_never_reaches_the_model(folder):
    for number, code in ((0, 0), (1, 75)):
        node = NodeName("germany", number)
        prepare_trial(folder, node)
        if code == 0:
            finish(folder, node, 0.4)
        settle_trial(folder, node, JobEnd(code, 2, 2))
    assert prepare_trial(folder, NodeName("germany", 0)) is False  # PRE_SKIP
    assert prepare_trial(folder, NodeName("germany", 1)) is True  # a rescue DAG runs it again
    finish(folder, NodeName("germany", 1), 0.6)
    assert settle_trial(folder, NodeName("germany", 1), END).value == 0.6
    assert Journal(folder.journal).read().best(minimize=False).trial == 1


def test_a_region_in_which_faults_leave_nothing_can_be_rescued(folder):
    for number in (0, 1):
        prepare_trial(folder, NodeName("germany", number))
    assert settle_trial(folder, NodeName("germany", 0), JobEnd(75, 2, 2)).status == "machine"
    with pytest.raises(TryAgainError, match="mend the machines"):
        settle_trial(folder, NodeName("germany", 1), JobEnd(75, 2, 2))
    finish(folder, NodeName("germany", 1), 0.6)
    assert settle_trial(folder, NodeName("germany", 1), END).ok


def test_the_removal_of_the_whole_dag_fails_no_trial(folder):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    for _ in range(2):
        with pytest.raises(TryAgainError, match="together with the DAG"):
            settle_trial(folder, node, JobEnd(-1002, 0, 2, dag_removed=True))
    finish(folder, node, 0.4)
    with pytest.raises(TryAgainError, match="settled while"):
        settle_trial(folder, node, JobEnd(0, 0, 2, dag_removed=True))
    assert prepare_trial(folder, node) is False


def test_a_result_of_another_node_is_no_result(folder):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    finish(folder, node)
    text = (folder.trial(node) / "result.json").read_text().replace("germany_t0000", "germany_t0001")
    (folder.trial(node) / "result.json").write_text(text)
    with pytest.raises(TryAgainError):
        settle_trial(folder, node, END)


def test_bad_input_stops_the_region_with_the_workers_words(folder, run):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    result = Result(str(node), Status.BAD_INPUT, reason="data.train.nc: sparseIndex0: unit 99 of 12")
    (folder.trial(node) / "result.json").write_text(result_to_json(result))
    for _ in range(2):
        with pytest.raises(GiveUpError, match="unit 99"):
            settle_trial(folder, node, JobEnd(4, 0, 2))
    assert "unit 99" in to_markdown(summarise(run))


def test_the_winner_is_trained_for_its_best_epochs_and_tested(folder):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    prepare_final(folder, FINAL)
    trial, winner = trial_of(folder, FINAL), trial_of(folder, NodeName("germany", 1))
    assert trial.hyperparameters == winner.hyperparameters
    assert trial.train.learning_rate == winner.train.learning_rate
    assert (trial.train.epochs, trial.train.stop_after) == (2, 0)
    assert (trial.train_files, trial.valid_file, trial.test_file) == (("data.final.nc",), None, "data.test.nc")
    assert (trial.all_files, set(trial.compare)) == ((), {"bestsellers", "floor"})


def test_a_job_says_whether_it_may_have_several_gpus(folder):
    play_trials(folder, [0.1, 0.4])
    spec, history = read_spec(folder.spec), Journal(folder.journal).read()
    for job, final, wanted in ((1, None, [0, 0]), (4, None, [1, 1]), (1, 4, [0, 1]), (4, 1, [1, 0]), (0, None, [0, 0])):
        asking = replace(spec.job, gpus=job)
        other = replace(spec, job=asking, final=None if final is None else replace(spec.job, gpus=final))
        jobs = jobs_of(other)
        trials = jobs.trial(other, NodeName("germany", 1), history, 1), jobs.final(other, FINAL, history, 1)
        assert [trial.several for trial in trials] == [bool(several) for several in wanted]


def test_the_winner_is_chosen_once_for_the_same_outcomes(folder, run, monkeypatch):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    monkeypatch.setattr("regiondag.node.pre_final.rank_trials", lambda search, history, seed, shared: [2, 1, 0, 3])
    prepare_final(folder, FINAL)
    first = (folder.trial(FINAL) / "trial.json").read_bytes(), folder.journal.read_bytes()
    # other regions know more by the time of the second try
    monkeypatch.setattr("regiondag.node.pre_final.rank_trials", lambda search, history, seed, shared: [3, 2, 1, 0])
    prepare_final(folder, FINAL)
    assert ((folder.trial(FINAL) / "trial.json").read_bytes(), folder.journal.read_bytes()) == first
    assert trial_of(folder, FINAL).hyperparameters == trial_of(folder, NodeName("germany", 2)).hyperparameters
    assert summarise(run).regions[1].validation == 0.3
    Journal(folder.journal).append("settled", trial=4, status="diverged", reason="")
    prepare_final(folder, FINAL)
    assert Journal(folder.journal).read().won == (3, 5)


def test_the_winner_is_chosen_anew_when_an_open_trial_has_run_after_all(folder):
    play_trials(folder, [0.1, 0.4, 0.3])
    node = NodeName("germany", 3)
    prepare_trial(folder, node)
    settle_trial(folder, node, JobEnd(75, 2, 2))  # a fault of the machine
    prepare_final(folder, FINAL)
    assert Journal(folder.journal).read().won == (1, 3)
    prepare_trial(folder, node)
    finish(folder, node, 0.9)
    settle_trial(folder, node, END)
    prepare_final(folder, FINAL)
    assert Journal(folder.journal).read().won == (3, 4)


@pytest.mark.parametrize("value", ['"0.3"', "NaN", "true", "1e999", "[0.3]"])
@pytest.mark.parametrize("key", ["value", "seconds", "best_epoch"])
def test_a_figure_that_is_none_is_no_result(folder, key, value):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    finish(folder, node)
    file = folder.trial(node) / "result.json"
    raw = json.loads(file.read_text()) | {key: "HERE"}
    file.write_text(json.dumps(raw).replace('"HERE"', value))
    with pytest.raises(TryAgainError):
        settle_trial(folder, node, JobEnd(0, 0, 2))
    assert settle_trial(folder, node, JobEnd(0, 2, 2)).status == "machine"


def test_a_pruned_trial_never_wins(folder):
    play_trials(folder, [0.1, 0.2, 0.3])
    node = NodeName("germany", 3)
    prepare_trial(folder, node)
    result = Result(str(node), Status.PRUNED, reason="worse than others", value=0.9, curve=(0.9,), seconds=1.0)
    (folder.trial(node) / "result.json").write_text(result_to_json(result))
    settle_trial(folder, node, JobEnd(0, 0, 2))
    prepare_final(folder, FINAL)
    assert Journal(folder.journal).read().won == (2, 4)


def test_a_first_champion_is_promoted(folder, run):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    prepare_final(folder, FINAL)
    finish(folder, FINAL, 0.35)
    for _ in range(2):
        assert settle_final(folder, FINAL, END).promoted
    facts = json.loads(folder.champion_metrics.read_text())
    assert facts["test"]["ndcg@5"] == 0.35 and facts["sha256"] == sha256_of(folder.champion_model)
    assert set(facts["hyperparameters"]) == {"hidden", "learning_rate"}
    row = summarise(run).regions[1]
    assert row.status == "promoted" and row.trials["run"] == 4 and row.hours == round(15 / 3600, 4)


def tomorrow_of(study_file, tmp_path, folder, new_data=True):
    """Finish today's region, and return the folder of tomorrow's, on new data or on the same."""
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    prepare_final(folder, FINAL)
    finish(folder, FINAL, 0.5)
    settle_final(folder, FINAL, END)
    if new_data:
        write_region(tmp_path / "data", "germany", users=9)
    run = create(study_file, tmp_path / "runs", find_incumbents(earlier_runs(tmp_path / "runs", "tiny"), ["germany"]))
    return run.region("germany")


def test_the_first_trial_takes_the_champions_point(study_file, tmp_path, folder):
    tomorrow = tomorrow_of(study_file, tmp_path, folder)
    nodes = [NodeName("germany", number) for number in range(4)]
    for node in nodes[:2]:
        prepare_trial(tomorrow, node)
    champion = json.loads(folder.champion_metrics.read_text())["hyperparameters"]
    proposals = Journal(tomorrow.journal).read().proposals
    assert proposals[0].point == champion and proposals[1].point != champion and len(proposals) == 2
    first = trial_of(tomorrow, nodes[0])
    assert {**first.hyperparameters, "learning_rate": first.train.learning_rate} == champion
    assert not tomorrow.incumbent_model.exists()  # its recipe goes along, not its weights


def test_a_champion_outside_of_the_search_space_is_not_tried_again(study_file, tmp_path, folder):
    study_file.write_text(study_file.read_text().replace("[2, 8]", "[100, 200]"))
    tomorrow = tomorrow_of(study_file, tmp_path, folder)
    prepare_trial(tomorrow, NodeName("germany", 0))
    assert trial_of(tomorrow, NodeName("germany", 0)).hyperparameters["hidden"] >= 100
    assert read_spec(tomorrow.spec).first == ()


@pytest.mark.parametrize("damaged", [b"", b"model.nc 0.", b"model.nc 0.6"])
def test_without_the_model_that_was_trained_there_is_no_champion(folder, damaged):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    prepare_final(folder, FINAL)
    finish(folder, FINAL)
    (folder.trial(FINAL) / "model.nc").write_bytes(damaged)
    with pytest.raises(TryAgainError, match=r"model\.nc"):
        settle_final(folder, FINAL, END)
    assert not folder.champion_model.exists()


def test_a_crash_while_the_champion_is_written_is_repeated(folder, monkeypatch):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    prepare_final(folder, FINAL)
    finish(folder, FINAL)
    with monkeypatch.context() as patch:
        patch.setattr("regiondag.node.post.write_atomically", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
        with pytest.raises(OSError, match="full"):
            settle_final(folder, FINAL, END)
    assert prepare_final(folder, FINAL) is True
    finish(folder, FINAL)
    assert settle_final(folder, FINAL, END).promoted
    assert prepare_final(folder, FINAL) is False


def test_a_damaged_champion_is_not_carried_on(folder, tmp_path):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    prepare_final(folder, FINAL)
    finish(folder, FINAL)
    settle_final(folder, FINAL, END)
    folder.champion_model.write_bytes(b"torn")
    assert find_incumbents(earlier_runs(tmp_path / "runs", "tiny"), ["germany"]) == {}


def test_when_no_trial_succeeded_the_region_fails_and_says_why(folder, run):
    for number in range(4):
        node = NodeName("germany", number)
        prepare_trial(folder, node)
        settle_trial(folder, node, JobEnd(3, 0, 2))
    with pytest.raises(GiveUpError, match="no trial succeeded"):
        prepare_final(folder, FINAL)
    summary = write_report(run)
    assert not summary.finished and summary.regions[1].status == "failed"
    assert "all 4 trials failed" in summary.regions[1].reason


def restrict(folder, **search):
    """Change the region's search after the fact, as another study.yaml would have it."""
    raw = json.loads(folder.spec.read_text())
    raw["search"].update(search)
    folder.spec.write_text(json.dumps(raw))


@pytest.mark.parametrize(("code", "status"), [(3, "diverged"), (-1002, "removed")])
def test_a_region_whose_first_trials_all_fail_stops(folder, run, code, status):
    restrict(folder, give_up_after=2)
    nodes = [NodeName("germany", number) for number in range(4)]
    for node in nodes[:2]:
        prepare_trial(folder, node)
    settle_trial(folder, nodes[0], JobEnd(code, 0, 2))
    for _ in range(2):
        with pytest.raises(GiveUpError, match=f"first 2 trials failed.*2 times {status}: "):
            settle_trial(folder, nodes[1], JobEnd(code, 0, 2))
    with pytest.raises(GiveUpError, match="give_up_after: 2"):
        prepare_trial(folder, nodes[2])
    assert Journal(folder.journal).read().proposals.keys() == {0, 1}
    row = summarise(run).regions[1]
    assert row.status == "failed" and f"so it stops (give_up_after: 2); 2 times {status}" in row.reason
    again = prepare_trial(folder, nodes[1])  # what was removed may run again and save the region
    assert again is (status == "removed")
    if again:
        finish(folder, nodes[1], 0.4)
        settle_trial(folder, nodes[1], END)
        assert prepare_trial(folder, nodes[2])


@pytest.mark.parametrize("most", [0, 2])
def test_one_success_keeps_a_region_going(folder, most):
    restrict(folder, give_up_after=most)
    for number in range(4):
        node = NodeName("germany", number)
        prepare_trial(folder, node)
        if number == 0 and most:
            finish(folder, node, 0.4)
        settle_trial(folder, node, JobEnd(0 if number == 0 and most else 3, 0, 2))


def test_cancelled_trials_are_no_reason_to_give_up(folder):
    restrict(folder, give_up_after=2)
    for number in (0, 1):
        prepare_trial(folder, NodeName("germany", number))
        cancel(folder, number)
        settle_trial(folder, NodeName("germany", number), JobEnd(-1002, 0, 2))
    assert prepare_trial(folder, NodeName("germany", 2)) is True


def test_machines_faults_are_no_reason_to_give_up(folder):
    restrict(folder, give_up_after=1)
    for number in (0, 1):
        prepare_trial(folder, NodeName("germany", number))
    assert settle_trial(folder, NodeName("germany", 0), JobEnd(75, 2, 2)).status == "machine"
    with pytest.raises(TryAgainError):
        settle_trial(folder, NodeName("germany", 1), JobEnd(75, 2, 2))


def test_a_trial_without_an_inactive_parameter_gives_the_network_its_default(folder):
    space = [
        {"name": "optimizer", "choice": ["adam"], "when": [], "default": None},
        {"name": "hidden", "int": [2, 8], "log": False, "points": None, "step": None, "when": [["optimizer", ["sgd"]]],
         "default": 5},
        {"name": "learning_rate", "real": [0.1, 0.2], "log": False, "points": None, "step": None,
         "when": [["optimizer", ["sgd"]]], "default": None},
    ]  # fmt: skip
    restrict(folder, space=space)
    node = NodeName("germany", 0)
    assert prepare_trial(folder, node)
    trial = trial_of(folder, node)
    assert Journal(folder.journal).read().proposals[0].point == {"optimizer": "adam"}
    assert trial.hyperparameters == {"hidden": 5} and trial.train.learning_rate == 0.001
    assert prepare_trial(folder, NodeName("germany", 1)) is False  # there is no second point


def test_trials_that_were_removed_are_failures_and_faults_of_machines_stay_pending(folder, monkeypatch):
    told = {}
    nodes = [NodeName("germany", number) for number in range(4)]
    for node, code in zip(nodes[:2], (-1002, 75), strict=True):
        prepare_trial(folder, node)
        finish(folder, node, 0.5) if code == 0 else None
    settle_trial(folder, nodes[0], JobEnd(-1002, 0, 2))
    with pytest.raises(TryAgainError):
        settle_trial(folder, nodes[1], JobEnd(75, 2, 2))
    monkeypatch.setattr("regiondag.node.proposing.propose", lambda search, **more: told.update(more) or [])
    assert prepare_trial(folder, nodes[2]) is False
    proposals = Journal(folder.journal).read().proposals
    assert [(o.point, o.loss) for o in told["history"]] == [(proposals[0].point, None)]
    assert told["pending"] == (proposals[1].point,)


def test_a_final_training_that_failed_can_be_rescued(folder, run):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    prepare_final(folder, FINAL)
    with pytest.raises(GiveUpError):
        settle_final(folder, FINAL, JobEnd(75, 2, 2))
    assert summarise(run).regions[1].status == "failed"
    finish(folder, FINAL)
    settle_final(folder, FINAL, END)
    assert summarise(run).regions[1].status == "promoted"


def test_a_trial_that_ran_after_the_final_training_may_win(folder):
    """Its job was lost to a machine, or somebody wanted it again, while the final training ran."""
    play_trials(folder, [0.1, 0.4, 0.3])
    node = NodeName("germany", 3)
    prepare_trial(folder, node)
    settle_trial(folder, node, JobEnd(75, 2, 2))
    for value, again in ((0.2, False), (0.9, True)):
        prepare_final(folder, FINAL)
        finish(folder, FINAL, 0.6)
        settle_final(folder, FINAL, END)
        assert prepare_final(folder, FINAL) is False
        Journal(folder.journal).append("reopened", trial=3)
        prepare_trial(folder, node)
        finish(folder, node, value)
        settle_trial(folder, node, END)
        assert prepare_final(folder, FINAL) is again  # only for another winner
    finish(folder, FINAL, 0.7)
    settle_final(folder, FINAL, END)
    assert json.loads(folder.champion_metrics.read_text())["trial"] == 3


def test_a_champion_that_was_lost_is_trained_again(folder):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    for _ in range(2):
        assert prepare_final(folder, FINAL) is True
        finish(folder, FINAL, 0.6)
        settle_final(folder, FINAL, END)
        assert prepare_final(folder, FINAL) is False
        folder.champion_model.unlink()


def test_an_end_that_post_tells_of_twice_is_noted_once(folder):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    for _ in range(2):  # DAGMan was killed before it noted the first
        assert settle_trial(folder, node, JobEnd(75, 2, 2, job="7.0")).status == "machine"
    assert folder.journal.read_text().count('"settled"') == 1
    settle_trial(folder, node, JobEnd(75, 2, 2, job="8.0"))  # submitted again
    assert folder.journal.read_text().count('"settled"') == 2


@pytest.mark.parametrize(("exit_code", "kept"), [(-1001, True), (127, True), (75, True), (1, False)])
def test_what_was_saved_is_kept_where_no_training_went_wrong(folder, exit_code, kept):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    (folder.trial(node) / "start/checkpoint.nc").write_bytes(b"saved")
    with pytest.raises(TryAgainError):
        settle_trial(folder, node, JobEnd(exit_code, 0, 2))
    assert (folder.trial(node) / "start/checkpoint.nc").exists() is kept


def test_lanes_stop_where_every_machine_fails(folder):
    raw = json.loads(folder.spec.read_text())
    raw["search"] |= {"schedule": "lanes", "sizes": [2] * 4, "method": "random"}
    folder.spec.write_text(json.dumps(raw))
    nodes = [NodeName("germany", number) for number in range(3)]
    for node in nodes:
        prepare_trial(folder, node)
    assert settle_trial(folder, nodes[0], JobEnd(75, 2, 2)).status == "machine"
    with pytest.raises(TryAgainError, match="mend the machines"):  # though another one still runs
        settle_trial(folder, nodes[1], JobEnd(75, 2, 2))


def test_free_text_cannot_break_the_report(run):
    from dataclasses import replace

    summary = summarise(run)
    row = replace(summary.regions[0], region="a|b<script>", reason="x\n| y |")
    text = to_markdown(replace(summary, regions=(row,)))
    assert "<script" not in text and "a\\|b" in text and "\n| y" not in text


def cancel(folder, number):
    journal = Journal(folder.journal)
    with journal.locked():
        journal.append("cancelled", trial=number)


@pytest.mark.parametrize("exit_code", [-1002, 4, 75, 143])
def test_a_cancelled_trial_is_removed_whatever_its_job_says(folder, exit_code):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    cancel(folder, 0)
    settled = settle_trial(folder, node, JobEnd(exit_code, 0, 2))
    assert (settled.status, settled.reason) == ("removed", "cancelled")
    assert prepare_trial(folder, node) is False  # a rescue DAG does not run it again
    assert Journal(folder.journal).read().attempts == 0


def test_a_cancelled_trial_that_succeeded_first_counts(folder):
    node = NodeName("germany", 0)
    prepare_trial(folder, node)
    finish(folder, node, 0.5)
    cancel(folder, 0)
    settled = settle_trial(folder, node, END)
    assert settled.ok and settled.result == sha256_of(folder.trial(node) / "result.json")


def test_a_trial_cancelled_before_its_pre_script_is_settled_by_that(folder):
    prepare_trial(folder, NodeName("germany", 0))
    cancel(folder, 1)
    node = NodeName("germany", 1)
    assert prepare_trial(folder, node) is prepare_trial(folder, node) is False
    assert folder.journal.read_text().count('"settled"') == 1
    assert Journal(folder.journal).read().settled[1].reason == "cancelled"
    assert not (folder.trial(node) / "trial.json").exists()


def test_a_champion_says_what_made_it(folder):
    play_trials(folder, [0.1, 0.4, 0.2, 0.3])
    prepare_final(folder, FINAL)
    finish(folder, FINAL, 0.5, code="c" * 64, host="w1", machine={"cpu": "EPYC"}, gpu={"name": "H200"}, seed=7)
    settle_final(folder, FINAL, END)
    facts = json.loads(folder.champion_metrics.read_text())
    assert (facts["trial"], facts["run"], facts["seed"]) == (1, folder.path.parents[1].name, 7)
    assert (facts["code"], facts["host"]) == ("c" * 64, "w1")
    assert (facts["machine"], facts["gpu"]) == ({"cpu": "EPYC"}, {"name": "H200"})
    assert facts["inputs"]["data.final.nc"] == sha256_of(folder.path / "data.final.nc")
    assert facts["sha256"] == sha256_of(folder.champion_model)


def test_what_a_champion_took_pictures_for_stands_beside_it_as_long_as_it_serves(folder, run):
    play_trials(folder, [0.1, 0.4, 0.2, 0.3])
    prepare_final(folder, FINAL)
    found = Confusion(2, ("ring", "a\x1b[2Jb"), (3, 2), ((0, 1, 2),), (Example(0, 1, 0.75, 1, 1, 1, "AA=="),))
    finish(folder, FINAL, 0.5, confusion=found)
    settle_final(folder, FINAL, END)
    assert confusion_of(json.loads(folder.champion_confusion.read_text())) == found
    assert summarise(run).regions[1].confusion == replace(found, classes=("ring", "a?[2Jb"))
    folder.champion_model.unlink()
    prepare_final(folder, FINAL)
    finish(folder, FINAL, 0.5)
    settle_final(folder, FINAL, END)
    assert not folder.champion_confusion.exists() and summarise(run).regions[1].confusion is None


def test_a_job_whose_pictures_are_out_of_bounds_brought_no_result(folder):
    play_trials(folder, [0.1, 0.4, 0.2, 0.3])
    prepare_final(folder, FINAL)
    finish(folder, FINAL, 0.5, confusion=Confusion(1, ("ring",), (3,), ()))
    result = folder.trial(FINAL) / "result.json"
    result.write_text(result.read_text().replace('"ring"', '"' + "x" * 300 + '"'))
    with pytest.raises(TryAgainError, match="brought no complete result"):
        settle_final(folder, FINAL, END)
    assert not folder.champion_confusion.exists()


def test_the_last_script_notes_once_what_is_left_to_gain(folder, run):
    play_trials(folder, [0.1, 0.4, 0.3, 0.2])
    assert Journal(folder.journal).read().left is None
    prepare_final(folder, FINAL)
    left = Journal(folder.journal).read().left
    assert left.of == 4 and 0 <= left.low <= left.gain <= left.high < 1
    prepare_final(folder, FINAL)
    assert folder.journal.read_text().count('"left"') == 1
    told = next(one for one in read_status(run, None).regions if one.slug == "germany")
    assert told.left == left == summarise(run).regions[1].left
    assert "more is expected of the best next trial" in to_markdown(summarise(run))
