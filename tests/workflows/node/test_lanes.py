"""Lanes, budgets and pruning as PRE and POST see them."""

from __future__ import annotations

import pytest

from nnlib.contract import Result, Status, result_to_json
from regiondag.errors import TryAgainError
from regiondag.monitor.status import read_status
from regiondag.node.post import JobEnd, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder
from regiondag.run.region_state import seconds_spent
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import END, FINAL, finish, trial_of

NODES = [NodeName("germany", number) for number in range(6)]


@pytest.fixture
def lanes(tmp_path):
    """Give a function that makes a region of two lanes of three trials each; some keys are added to its search."""

    def make(*keys: str):
        search = "\n  ".join(["method: bayes", "schedule: lanes", *keys])
        text = (
            STUDY.replace("method: bayes", search).replace("rounds: 2", "rounds: 3").replace("epochs: 2", "epochs: 4")
        )
        return create(write_study(tmp_path, text), tmp_path / "runs").region("germany")

    return make


def play(folder, node, value=0.5, **more):
    assert prepare_trial(folder, node)
    finish(folder, node, value, **more)
    settle_trial(folder, node, END)


def test_each_trial_is_proposed_when_its_own_lane_is_free(lanes):
    folder = lanes()
    prepare_trial(folder, NODES[0])
    assert list(Journal(folder.journal).read().proposals) == [0]
    prepare_trial(folder, NODES[1])
    finish(folder, NODES[1])
    settle_trial(folder, NODES[1], END)
    for node in (NODES[3], NODES[5]):  # the second lane goes on, whatever the first one does
        play(folder, node)
    proposals = Journal(folder.journal).read().proposals
    assert sorted(proposals) == [0, 1, 3, 5]
    points = [tuple(proposal.point.values()) for proposal in proposals.values()]
    assert len(set(points)) == 4


def test_a_lane_that_is_ahead_takes_trials_of_the_other_one(lanes):
    folder = lanes()
    assert prepare_trial(folder, NODES[0])  # a long one
    for number in (1, 3, 5, 7):
        play(folder, NodeName("germany", number))
    finish(folder, NODES[0])
    settle_trial(folder, NODES[0], END)
    play(folder, NODES[2])
    assert not prepare_trial(folder, NODES[4])  # six trials are taken
    assert not prepare_trial(folder, NodeName("germany", 6))
    assert sorted(Journal(folder.journal).read().proposals) == [0, 1, 2, 3, 5, 7]
    assert prepare_final(folder, FINAL)
    status = read_status(RunFolder(folder.path.parents[1]), None).regions[1]
    assert (status.done, status.planned) == (6, 6)


def test_machine_faults_alone_stop_the_last_lane_that_has_one(lanes):
    folder = lanes()
    for node in (NODES[0], NODES[1]):
        prepare_trial(folder, node)
    assert settle_trial(folder, NODES[0], JobEnd(75, 2, 2)).status == "machine"
    with pytest.raises(TryAgainError, match="No trial of the region has succeeded"):
        settle_trial(folder, NODES[1], JobEnd(75, 2, 2))
    prepare_trial(folder, NodeName("germany", 7))  # of a number beyond the last round
    with pytest.raises(TryAgainError, match="try 2 of 3"):
        settle_trial(folder, NodeName("germany", 7), JobEnd(75, 0, 2))


def test_the_same_journal_gives_the_same_proposal(lanes, tmp_path):
    folder = lanes()
    for node in NODES[:2]:
        play(folder, node, 0.2 + 0.1 * node.number)
    before = folder.journal.read_bytes()
    prepare_trial(folder, NODES[2])
    first = Journal(folder.journal).read().proposals[2]
    folder.journal.write_bytes(before)
    prepare_trial(folder, NODES[2])
    assert Journal(folder.journal).read().proposals[2] == first


def test_nothing_is_proposed_when_the_budget_is_spent(lanes):
    folder = lanes("budget: 7s")
    for node in NODES[:3]:
        play(folder, node)  # three seconds each
    assert seconds_spent(Journal(folder.journal).read()) == 9
    assert not prepare_trial(folder, NODES[3])
    assert 3 not in Journal(folder.journal).read().proposals
    assert prepare_final(folder, FINAL)


def test_trials_get_the_rungs_that_those_before_them_give(lanes):
    folder = lanes("prune: asha")
    for node, height in zip(NODES[:3], (0.3, 0.5, 0.4), strict=True):
        play(folder, node, height, curve=(height / 4, height / 2, height / 3, height))
        assert trial_of(folder, node).rungs == ()
    prepare_trial(folder, NODES[3])
    assert trial_of(folder, NODES[3]).rungs == ((3, 0.25),)


def test_a_pruned_trial_is_no_winner_but_something_to_learn_from(lanes):
    folder = lanes("prune: median")
    play(folder, NODES[0], 0.2)
    prepare_trial(folder, NODES[1])
    metrics = {"ndcg@5": 0.9, "p@10": 0.4}
    result = Result(str(NODES[1]), Status.PRUNED, "ended", value=0.9, metrics=metrics, curve=(0.9,), seconds=1.0)
    (folder.trial(NODES[1]) / "result.json").write_text(result_to_json(result))
    settled = settle_trial(folder, NODES[1], JobEnd(0, 0, 2))
    assert (settled.status, settled.value, settled.curve) == ("pruned", 0.9, (0.9,))
    history = Journal(folder.journal).read()
    assert history.best(False).trial == 0
    assert history.outcome(1).status == "pruned"
    status = read_status(RunFolder(folder.path.parents[1]), None).regions[1]
    assert (status.done, status.failed) == (2, 0)
