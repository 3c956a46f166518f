"""What is said of a program, by what was seen of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nnlib.contract import Result, Status
from nnlib.epoch_log import Epoch
from regiondag.trainers import kit
from regiondag.trainers.kit import Tried, Verdict

CODES = {Status.OK: 0, Status.DIVERGED: 3, Status.BAD_INPUT: 4, Status.MACHINE: 75, Status.EVICTED: 143}


def epochs(*numbers: int) -> tuple[Epoch, ...]:
    return tuple(Epoch(number, 0.0, 0.5, 1.0) for number in numbers)


def tried(status: Status = Status.OK, value: float | None = 0.5, reason: str = "", **more: object) -> Tried:
    value = value if status is Status.OK else None
    result = Result("node", status, reason or ("" if status is Status.OK else "it says why"), value)
    return replace(Tried(2, CODES[status], result, epochs(1, 2), seconds=4.0), **more)


TOO_LONG = Tried(2, None, seconds=600.0)


@pytest.mark.parametrize(
    ("seen", "verdict", "text"),
    [
        (tried(), Verdict.GOOD, "0.5 after 4.0 s"),
        (tried(Status.DIVERGED, reason="auc is nan"), Verdict.WRONG, "auc is nan; in a study that is a failed trial"),
        (
            tried(Status.DIVERGED, reason="ModuleNotFoundError: No module named 'pandas'"),
            Verdict.WRONG,
            "No module named 'pandas'; what the worker's Python lacks is sent along by trainer.environment",
        ),
        (tried(Status.BAD_INPUT, reason="reported no auc"), Verdict.WRONG, "reported no auc"),
        (TOO_LONG, Verdict.WRONG, "it had not ended after 600 s, told to train 2 epochs"),
        (Tried(2, 1, output=("a traceback",)), Verdict.WRONG, "the job ended with 1: a traceback"),
    ],
)
def test_the_start(seen, verdict, text):
    finding = kit.check_start(seen)
    assert finding.verdict is verdict and text in finding.text


@pytest.mark.parametrize(
    ("log", "verdict", "text"),
    [
        (epochs(1, 2), Verdict.GOOD, "reported 2"),
        (epochs(1), Verdict.MIND, "reported once"),
        ((), Verdict.MIND, "reported once"),
        (epochs(1, 2, 3), Verdict.GOOD, "reported 3"),  # the best one once more
        (epochs(1, 2, 3, 4), Verdict.MIND, "{epochs}"),
    ],
)
def test_the_budget(log, verdict, text):
    finding = kit.check_budget(tried(log=log))
    assert finding.verdict is verdict and text in finding.text


def test_another_point_and_the_same_seed():
    assert kit.check_another(tried(), None).verdict is Verdict.UNTRIED
    assert kit.check_another(tried(), tried(value=0.6)).verdict is Verdict.GOOD
    assert "does it read its hyperparameters?" in kit.check_another(tried(), tried()).text
    assert kit.check_another(tried(), tried(Status.DIVERGED)).verdict is Verdict.WRONG
    assert kit.check_seed(tried(), tried()).verdict is Verdict.GOOD
    assert kit.check_seed(tried(), tried(value=0.6)).verdict is Verdict.MIND
    assert kit.check_seed(tried(), tried(Status.MACHINE)).verdict is Verdict.WRONG


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (tried(), Verdict.GOOD),
        (tried(Status.DIVERGED), Verdict.GOOD),  # the search goes on
        (tried(Status.BAD_INPUT), Verdict.WRONG),  # the region stops
        (tried(Status.MACHINE), Verdict.MIND),  # others are tried, in vain
        (TOO_LONG, Verdict.MIND),
    ],
)
def test_ends_of_the_space(seen, verdict):
    assert kit.check_end("lowest ends", seen).verdict is verdict


STOPPED = tried(Status.EVICTED, log=epochs(1), signalled=True, left=0.5, saved=1, whole=2)


@pytest.mark.parametrize(
    ("seen", "verdict", "text"),
    [
        (STOPPED, Verdict.GOOD, "it left after 0.5 s"),
        (replace(STOPPED, log=epochs(1, 2), whole=9), Verdict.GOOD, "0.5 s"),  # it trains 9, whatever it is told
        (replace(STOPPED, log=epochs(1, 2), whole=0), Verdict.GOOD, "0.5 s"),
        (replace(STOPPED, left=90.0), Verdict.MIND, "90 s"),
        (replace(STOPPED, log=epochs(1, 2)), Verdict.WRONG, "trained on to its last epoch"),
        (replace(TOO_LONG, signalled=True), Verdict.WRONG, "it went on for 120 s"),
        (tried(), Verdict.UNTRIED, "it had ended before"),
        (tried(Status.BAD_INPUT, signalled=True, left=1.0), Verdict.WRONG, "it says why"),
    ],
)
def test_leaving_at_sigterm(seen, verdict, text):
    finding = kit.check_stop(seen, 120.0)
    assert finding.verdict is verdict and text in finding.text


@pytest.mark.parametrize(
    ("left", "seconds", "done"),
    [(1.9, 2.5, True), (2.1, 4.2, False), (2.7, 10.4, True), (6.0, 12.0, False), (None, 12.0, False)],
)
def test_a_signal_near_the_end_of_a_training_shows_nothing_also_where_that_end_takes_long(left, seconds, done):
    assert replace(STOPPED, log=epochs(1, 2), left=left, seconds=seconds).was_done is done


@pytest.mark.parametrize(
    ("resumed", "whole", "verdict", "text"),
    [
        (tried(log=epochs(2)), tried(), Verdict.GOOD, "epoch 2 of 2, and ends with the figure"),
        (tried(log=epochs(2)), None, Verdict.GOOD, "epoch 2 of 2"),
        (tried(log=epochs(2)), tried(value=0.6), Verdict.MIND, "0.5 in place of 0.6"),
        (tried(log=epochs(1, 2)), tried(), Verdict.WRONG, "although it was given"),
        (tried(log=epochs(2, 3)), tried(), Verdict.WRONG, "although it was given"),  # of epochs without numbers
        (tried(log=()), tried(), Verdict.MIND, "nobody sees"),
        (tried(Status.DIVERGED), tried(), Verdict.WRONG, "it failed: it says why"),
        (None, None, Verdict.UNTRIED, "not stopped"),
    ],
)
def test_going_on(resumed, whole, verdict, text):
    finding = kit.check_resume(STOPPED, resumed, whole)
    assert finding.verdict is verdict and text in finding.text


def test_what_saves_nothing_begins_anew():
    finding = kit.check_resume(replace(STOPPED, saved=0), tried(), tried())
    assert finding.verdict is Verdict.MIND and "{checkpoint} was empty" in finding.text


@pytest.mark.parametrize(
    ("seen", "verdict", "text"),
    [
        (tried(Status.MACHINE, signalled=True), Verdict.GOOD, "another machine"),
        (tried(signalled=True), Verdict.WRONG, "half a training"),
        (tried(Status.DIVERGED, signalled=True), Verdict.MIND, "trainer.retry"),
        (tried(Status.BAD_INPUT, signalled=True), Verdict.WRONG, "stops the whole region"),
        (tried(), Verdict.UNTRIED, "it had ended before"),
    ],
)
def test_a_killed_training(seen, verdict, text):
    finding = kit.check_kill(seen)
    assert finding.verdict is verdict and text in finding.text


@pytest.mark.parametrize(
    ("seen", "gpus", "verdict"),
    [
        (tried(), False, Verdict.GOOD),
        (tried(), None, Verdict.GOOD),
        (tried(), True, Verdict.MIND),
        (tried(Status.MACHINE), True, Verdict.GOOD),
        (tried(Status.MACHINE), False, Verdict.WRONG),
        (tried(Status.DIVERGED), True, Verdict.WRONG),
        (tried(Status.DIVERGED), False, Verdict.WRONG),
        (tried(Status.BAD_INPUT), None, Verdict.WRONG),
        (TOO_LONG, None, Verdict.WRONG),
    ],
)
def test_no_gpu(seen, gpus, verdict):
    assert kit.check_gpu(seen, gpus).verdict is verdict


def test_the_last_training_and_a_full_disk():
    final = tried(artifact=1, artifact_bytes=100)
    assert kit.check_final(final).text == "it leaves 1 file, 100 bytes"
    assert kit.check_final(tried()).verdict is Verdict.MIND
    assert kit.check_final(tried(Status.DIVERGED)).verdict is Verdict.WRONG
    for seen, verdict in (
        (tried(Status.MACHINE), Verdict.GOOD),
        (tried(), Verdict.WRONG),  # the model is not there
        (tried(Status.DIVERGED), Verdict.MIND),
        (tried(Status.BAD_INPUT), Verdict.WRONG),
        (TOO_LONG, Verdict.WRONG),
    ):
        assert kit.check_full_disk(seen, final).verdict is verdict
    assert kit.check_full_disk(tried(), tried()).verdict is Verdict.GOOD  # there was none to write
    assert kit.check_full_disk(tried(), TOO_LONG).verdict is Verdict.UNTRIED


def test_processes_that_go_on():
    assert kit.check_behind([("start", tried())]).verdict is Verdict.GOOD
    finding = kit.check_behind([("start", tried()), ("no GPU", tried(behind=("sleep 600", "ssh host")))])
    assert finding.verdict is Verdict.WRONG
    assert "after no GPU 'sleep 600' went on, and 1 more" in finding.text


def test_a_study_can_live_with_what_it_should_mind():
    assert kit.holds([kit.check_budget(tried(log=()))])
    assert not kit.holds([kit.check_budget(tried()), kit.check_start(TOO_LONG)])
