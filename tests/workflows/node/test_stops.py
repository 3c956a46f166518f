"""A region that PRE or POST stopped says so, in the report and when it is asked why, until it goes on."""

from __future__ import annotations

import json
import os
import time

import pytest

from nnlib.contract import Result, Status, result_to_json
from regiondag.errors import GiveUpError, TryAgainError
from regiondag.node import main as scripts
from regiondag.node.post import JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.report.markdown import to_markdown
from regiondag.report.summary import summarise
from regiondag.run.journal import Journal
from regiondag.run.layout import JOB_LOG, NodeName
from regiondag.run.region_state import seconds_spent
from tests.workflows.monitor.test_explain import respec, works
from tests.workflows.node.test_pre_and_post import END, finish, play_trials

FIRST, FINAL = NodeName("germany", 0), NodeName("germany", None)
NOBODY = """000 (007.000.000) 2026-11-22 06:00:00 Job submitted from host: <127.0.0.1:9618>
    DAG Node: germany_t0000
...
009 (007.000.000) 2026-11-29 06:00:00 Job was aborted.
\tno machine took the job within 7d
...
"""


def row(run):
    return summarise(run).regions[list(works(run).names).index("germany")]


def alone(folder):
    """Let the region have one trial a round."""
    search = json.loads(folder.spec.read_text())["search"]
    respec(folder.run, "germany", search=search | {"sizes": [1] * 4})


def said(run, node):
    return [(found.state, found.why) for found in works(run).explain_node(node)]


def test_a_region_that_machines_stopped_until_it_is_submitted_again(run, folder):
    alone(folder)
    prepare_trial(folder, FIRST)
    for retry in range(3):
        with pytest.raises(TryAgainError):
            settle_trial(folder, FIRST, JobEnd(-9, retry, 2, job=f"{7 + retry}.0"))
    history = Journal(folder.journal).read()
    assert history.attempts == 3, "the last try trained, too"
    assert "mend the machines and submit the DAG again" in history.stopped[0]
    assert row(run).status == "failed" and "killed by signal 9" in row(run).reason
    [found] = works(run).explain_region("germany", whole=False)
    assert found.state == "stopped" and "stops here" in found.why
    [(state, why)] = said(run, FIRST)
    assert state == "not run" and "its region has stopped" in why
    assert scripts.main(["pre", str(run.path), str(FIRST), "0"]) == 0
    assert Journal(folder.journal).read().stopped == {} and row(run).status == "unfinished"
    finish(folder, FIRST)
    assert settle_trial(folder, FIRST, END).ok


def test_post_run_twice_stops_a_region_once(folder):
    alone(folder)
    prepare_trial(folder, FIRST)
    for _ in range(2):
        with pytest.raises(TryAgainError):
            settle_trial(folder, FIRST, JobEnd(75, 2, 2, job="7.0"))
    text = folder.journal.read_text()
    assert (text.count('"stopped"'), text.count('"attempt"')) == (1, 1)


def test_a_final_training_without_a_winner_says_so(run, folder):
    prepare_trial(folder, FIRST)
    settle_trial(folder, FIRST, JobEnd(3, 0, 2))
    for _ in range(2):
        assert scripts.main(["pre", str(run.path), str(FINAL), "0"]) == 4
    assert folder.journal.read_text().count('"stopped"') == 1
    assert row(run).status == "failed"
    assert row(run).reason == "no trial succeeded, so there is nothing to train; diverged: the training diverged"
    assert said(run, FINAL)[0][0] == "not run"
    with pytest.raises(GiveUpError):
        prepare_final(folder, FINAL)


def test_what_starts_from_a_region_that_has_stopped_does_not_run(run, folder):
    study = run.study_dag
    study.write_text(study.read_text() + "PARENT germany_final CHILD united-kingdom_t0000\n")
    play_trials(folder, [0.5] * 4)
    assert said(run, NodeName("united-kingdom", 0))[0] == ("waiting", "for germany_final")
    prepare_final(folder, FINAL)
    with pytest.raises(GiveUpError):
        settle_final(folder, FINAL, JobEnd(3, 0, 2))
    [(state, why)] = said(run, NodeName("united-kingdom", 0))
    assert state == "not run" and why == "it starts from Germany, which has stopped: the training diverged"


def test_one_bad_lane_does_not_stop_the_others(folder):
    search = json.loads(folder.spec.read_text())["search"]
    respec(folder.run, "germany", search=search | {"schedule": "lanes", "sizes": [2] * 4, "method": "random"})
    for number in (0, 1, 3):
        prepare_trial(folder, NodeName("germany", number))
    for number in (1, 3):  # both of the second lane; the first one is at work
        assert settle_trial(folder, NodeName("germany", number), JobEnd(-9, 2, 2)).status == "machine"


def test_hours_hold_what_final_trainings_took_that_were_run_again_but_no_budget_does(run, folder):
    play_trials(folder, [0.5] * 4)  # 3 s each
    for times in (1, 2, 3):
        prepare_final(folder, FINAL)
        finish(folder, FINAL)
        settle_final(folder, FINAL, END)
        history = Journal(folder.journal).read()
        assert round(row(run).hours * 3600) == 12 + 3 * times
        assert seconds_spent(history) == 12.0
        journal = Journal(folder.journal)
        with journal.locked():
            journal.append("reopened", trial=None)


def test_a_removed_trial_runs_again_only_where_it_is_missed(folder):
    """Without a rescue file DAGMan runs every PRE script."""
    prepare_trial(folder, FIRST)
    settle_trial(folder, FIRST, JobEnd(-1002, 0, 2))
    assert prepare_trial(folder, FIRST) is True  # nothing has succeeded
    settle_trial(folder, FIRST, JobEnd(-1002, 0, 2))
    second = NodeName("germany", 1)
    prepare_trial(folder, second)
    finish(folder, second)
    settle_trial(folder, second, END)
    assert prepare_trial(folder, FIRST) is False
    journal = Journal(folder.journal)
    with journal.locked():
        journal.append("reopened", trial=0)
    assert prepare_trial(folder, FIRST) is True


@pytest.mark.parametrize("text", ["", "{", "[]", '{"started": "soon"}', "\0" * 20])
def test_a_beginning_that_a_crash_has_emptied_is_when_its_file_was_written(run, folder, text):
    respec(run, "germany", deadline=3600)
    run.started.write_text(text)
    assert prepare_trial(folder, FIRST) is True
    os.utime(run.started, (time.time() - 4000,) * 2)
    assert prepare_trial(folder, FIRST) is False
    assert said(run, FIRST)[0][0] == "not needed"


def test_what_workers_write_steers_no_terminal_and_makes_no_picture(run, folder):
    prepare_trial(folder, FIRST)
    result = Result(str(FIRST), Status.BAD_INPUT, reason="\x1b[2J ![x](http://host/p.png)\r\nnext")
    (folder.trial(FIRST) / "result.json").write_text(result_to_json(result))
    with pytest.raises(GiveUpError):
        settle_trial(folder, FIRST, JobEnd(4, 0, 2))
    settled = Journal(folder.journal).read().settled[0]
    assert settled.reason == "?[2J ![x](http://host/p.png) next"
    assert "!\\[x\\](http" in to_markdown(summarise(run))


def test_where_no_machine_takes_the_only_trial_the_region_stops_and_says_why(run, folder):
    alone(folder)
    prepare_trial(folder, FIRST)
    (folder.trial(FIRST) / JOB_LOG).write_text(NOBODY)
    with pytest.raises(GiveUpError):
        settle_trial(folder, FIRST, JobEnd(-1002, 0, 2, job="7.0"))
    assert row(run).status == "failed" and "`regiondag doctor` says which machines would do" in row(run).reason
