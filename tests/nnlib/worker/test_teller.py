"""What a job says of itself, when, and that it goes on where nobody listens."""

from __future__ import annotations

import json
import signal

import pytest

from nnlib.contract import Role, trial_from_json
from nnlib.epoch_log import Epoch
from nnlib.worker import chirp, job, main
from nnlib.worker.recipe_job import run_recipe
from nnlib.worker.teller import BETWEEN, MOST_FAILURES, Teller
from tests.nnlib.worker.test_chirp import starter
from tests.nnlib.worker.test_recipe_job import KNN, folder, parts, trial  # noqa: F401 (fixtures)

ENDED = tuple(Epoch(number, 1 / number, number / 10, 2.0, 100) for number in (1, 2, 3))
UNKNOWN = {"ChirpLoss": "undefined", "ChirpValue": "undefined", "ChirpSecondsLeft": "undefined"}


class Ear:
    """Where a teller's words arrive, beside a clock that a test moves."""

    def __init__(self, takes: bool = True) -> None:
        self.said: list[dict[str, str]] = []
        self.known: dict[str, str] = {}  # as the queue has it
        self.takes, self.time = takes, 1000.0

    def teller(self) -> Teller:
        return Teller(self.hear, lambda: self.time, lambda: self.time)

    def hear(self, values) -> bool:
        self.said.append(dict(values))
        self.known |= values
        return self.takes

    def picked(self, *names: str) -> list[str]:
        return [self.known[f"Chirp{name}"] for name in names]


def test_a_training_that_was_resumed_says_first_where_it_goes_on():
    ear = Ear()
    ear.known = {"ChirpEpoch": "24", "ChirpValue": "0.9", "ChirpCurve": '"0.1,0.9"'}  # of an earlier start of the job
    teller = ear.teller()
    teller.begin(30, ENDED)
    teller.batch(3, 50, 100)  # its checkpoint is older than its log
    assert ear.picked("Epoch", "Epochs", "Value", "Curve", "Loss") == ["2", "30", "0.2", '"0.1,0.2"', "undefined"]


def test_a_start_replaces_all_that_an_earlier_one_said():
    ear = Ear()
    teller = ear.teller()
    teller.begin(30)
    teller.do("starting")
    assert ear.said == [
        {
            "ChirpEpoch": "0",
            "ChirpEpochs": "30",
            "ChirpCurve": '""',
            "ChirpDoing": '"starting"',
            "ChirpAt": "1000.0",
            **UNKNOWN,
        }
    ]


def test_seldom_and_only_what_has_changed(monkeypatch):
    monkeypatch.setattr("nnlib.worker.teller.BETWEEN", 4.0)
    ear = Ear()
    teller = ear.teller()
    teller.begin(4)
    for epoch in (1, 2, 3):
        for batch in (25, 50, 75, 100):
            ear.time += 0.5
            teller.batch(epoch, batch, 100)
        teller.epoch(Epoch(epoch, 0.5, epoch / 10, 2.0, 100))
    assert [said["ChirpAt"] for said in ear.said] == ["1000.5", "1004.5"]  # one at once, one every four seconds
    assert ear.said[1] == {
        "ChirpAt": "1004.5",
        "ChirpEpoch": "2",
        "ChirpLoss": "0.5",
        "ChirpValue": "0.2",
        "ChirpCurve": '"0.1,0.2"',
        "ChirpSecondsLeft": "3.5",
    }


def test_a_curve_arrives_with_its_epoch():
    ear = Ear()
    teller = ear.teller()
    teller.begin(9)
    teller.batch(1, 1, 100)
    for epoch in (1, 2):
        ear.time += BETWEEN
        teller.epoch(Epoch(epoch, 0.5, epoch / 10, 2.0, 100))
    assert ear.picked("Epoch", "Value", "Curve") == ["2", "0.2", '"0.1,0.2"']


def test_how_long_it_takes_counts_from_this_start_and_what_comes_after():
    ear = Ear()
    teller = ear.teller()
    teller.begin(10, ENDED, epochs_after=10)
    teller.batch(4, 1, 100)
    ear.time += 10
    teller.batch(5, 1, 100)  # one epoch in ten seconds
    assert float(ear.known["ChirpSecondsLeft"]) == pytest.approx(10 * (10 - 4.01 + 10), abs=0.1)


def test_customers_are_counted():
    ear = Ear()
    advance = ear.teller().count("asking customers:", 1000)
    advance(256)
    assert ear.picked("Doing") == ['"asking customers: 0 of 1,000"']
    ear.time += BETWEEN
    advance(256)
    assert ear.picked("Doing") == ['"asking customers: 512 of 1,000"']


def test_who_is_not_heard_falls_silent(capsys):
    ear = Ear(takes=False)
    teller = ear.teller()
    for _ in range(MOST_FAILURES + 5):
        teller.do("testing")
    assert len(ear.said) == MOST_FAILURES and len(ear.said[-1]) == 8  # all of it is said again until it is heard
    assert capsys.readouterr().err.count("silence") == 1


def test_without_htcondor_nothing_is_said_at_all(monkeypatch, capsys):
    monkeypatch.delenv(chirp.CHIRP_CONFIG, raising=False)
    monkeypatch.setattr(chirp, "set_attributes", pytest.fail)
    Teller().do("testing")
    assert capsys.readouterr().err == ""


# --- whole jobs --------------------------------------------------------------------------------------------


@pytest.fixture
def signals():
    """Put back what a whole job in this process does to signals."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("signals")
def test_a_whole_job_of_a_network(make_trial, tmp_path, monkeypatch):
    trial_file = make_trial()
    with starter(tmp_path, monkeypatch) as lines:
        assert main.train(trial_file) == 0
    said = [line.split(" ", 2)[1:] for line in lines if "set_job_attr" in line]
    assert said[0] == ["ChirpEpoch", "0"]
    epochs = json.loads(trial_file.read_text())["train"]["epochs"]
    assert ["ChirpEpochs", str(epochs)] in said
    assert [value for name, value in said if name == "ChirpDoing"] == ['"starting"', '""', '"validating"']


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("broken", [b"-1\n", b"", b"nonsense"])
def test_a_broken_socket_changes_nothing_of_a_job(broken, make_trial, tmp_path, monkeypatch):
    def result_of(file):
        found = json.loads((file.parent / "result.json").read_text())
        return {name: found[name] for name in ("status", "value", "metrics", "curve", "epochs", "best_epoch")}

    alone = make_trial()
    assert main.train(alone) == 0
    expected = result_of(alone)
    for name in ("result.json", "log.jsonl"):
        (alone.parent / name).write_bytes(b"")
    with starter(tmp_path, monkeypatch, lambda _: broken):
        monkeypatch.setattr(chirp, "PATIENCE", 0.05)
        assert main.train(alone) == 0
    assert result_of(alone) == expected


def test_the_final_training_says_which_of_its_two_it_is(make_trial):
    trial_file = make_trial(role=Role.FINAL, valid_file=None, all_files=("held.nc",))
    (trial_file.parent / "log.jsonl").touch()
    ear = Ear()
    teller = ear.teller()
    job.run(trial_from_json(trial_file.read_text()), trial_file.parent, teller=teller)
    assert [said["ChirpDoing"] for said in ear.said if "ChirpDoing" in said] == ['""', '"testing"', '"on all days"']
    assert ear.picked("Epoch", "Epochs") == ["0", "6"]  # the clock stands still: its first batch was the last word


def test_a_family_says_what_it_does(folder):  # noqa: F811
    ear = Ear()
    run_recipe(trial(KNN), folder, teller=ear.teller())
    assert [said["ChirpDoing"] for said in ear.said] == ['"fitting knn"', '"asking customers: 0 of 18"']
    ear = Ear()
    run_recipe(trial(KNN, Role.FINAL), folder, teller=ear.teller())
    said = [said["ChirpDoing"] for said in ear.said if "ChirpDoing" in said]
    assert said[0] == '"fitting knn"' and said[-1] == '"fitting knn on all days"'
