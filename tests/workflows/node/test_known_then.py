"""What was known when a trial was proposed: from the journals the very same proposals come out again."""

from __future__ import annotations

import pytest

from regiondag.node.known_then import read_known_then
from regiondag.node.post import JobEnd, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from regiondag.trials.why import explain_choice
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.played import play_job

END = JobEnd(0, 0, 2)


def play(folder, number, value=None):
    """Propose a trial, and settle it; without a value it diverges."""
    node = NodeName(folder.path.name, number)
    assert prepare_trial(folder, node)
    if value is not None:
        play_job(folder, node, value)
    settle_trial(folder, node, END if value is not None else JobEnd(3, 0, 2))


def why(folder, number):
    then = read_known_then(folder, number)
    return explain_choice(then.spec, then.history, then.request, Journal(folder.journal).read(), number)


def make(tmp_path, search):
    text = STUDY.replace("  rounds: 2\n", search).replace("epochs: 2", "epochs: 4")
    return create(write_study(tmp_path, text), tmp_path / "runs")


def test_rounds_come_out_again_while_later_ones_are_known(tmp_path):
    folder = make(tmp_path, "  rounds: 5\n").region("germany")
    for number, value in enumerate((0.3, 0.35, 0.2, None, 0.4, 0.38, 0.41)):
        play(folder, number, value)
    found = [why(folder, number) for number in range(8)]
    assert all(one.reproduced for one in found)
    assert [one.source for one in found] == ["sequence"] * 3 + ["model"] * 5
    assert [one.known for one in found] == [0, 0, 2, 2, 4, 4, 6, 6] and {one.pending for one in found} == {0}
    assert [one.best for one in found] == [None, None, 1, 1, 1, 1, 4, 4]
    proposals = Journal(folder.journal).read().proposals
    assert [one.hyperparameters for one in found] == [proposals[number].point for number in range(8)]
    assert found[7].status == "running" and found[7].value is None and found[7].deviations is None
    last = found[6]
    assert last.value == 0.41 and last.expected.low < last.expected.value < last.expected.high
    assert last.expected.best == pytest.approx(0.4, abs=0.05) and last.best_value == 0.4
    assert (last.deviations > 0) == (last.value > last.expected.value)


def test_lanes_come_out_again_with_what_other_lanes_were_trying(tmp_path):
    folder = make(tmp_path, "  schedule: lanes\n  rounds: 4\n  share: off\n").region("germany")
    prepare_trial(folder, NodeName("germany", 0))  # a long one
    for number, value in ((1, 0.2), (3, 0.3), (5, 0.25)):
        play(folder, number, value)
    play_job(folder, NodeName("germany", 0), 0.6)
    settle_trial(folder, NodeName("germany", 0), END)
    play(folder, 2, 0.4)
    found = {number: why(folder, number) for number in (0, 1, 3, 5, 2)}
    assert all(one.reproduced for one in found.values())
    assert [(one.known, one.pending) for one in found.values()] == [(0, 0), (0, 1), (1, 1), (2, 1), (4, 0)]
    assert found[5].source == "model" and found[5].best == 3 and found[2].best == 0


def test_other_regions_are_taken_as_they_were_then(tmp_path):
    run = make(tmp_path, "  rounds: 4\n  share: model\n")
    for number, value in enumerate((0.3, 0.2)):
        play(run.region("united-kingdom"), number, value)
    for number, value in enumerate((0.4, 0.1, 0.5)):
        play(run.region("germany"), number, value)
    for number in (2, 3):
        play(run.region("united-kingdom"), number, 0.5)
    assert [why(run.region("germany"), number).reproduced for number in range(4)] == [True] * 4
    shared = read_known_then(run.region("germany"), 2).request.shared
    assert [len(neighbour.history) for neighbour in shared.neighbours] == [2]


def test_what_was_not_proposed_was_not_known(tmp_path):
    folder = make(tmp_path, "  rounds: 4\n").region("germany")
    assert read_known_then(folder, 5) is None and read_known_then(folder, 8) is None  # of 0 to 7
