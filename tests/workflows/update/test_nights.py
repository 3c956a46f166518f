"""Nights that were missed: found by the job itself when it runs again, or by whoever asks, and told once."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.cli import main
from regiondag.errors import RegiondagError
from regiondag.run.layout import RunFolder
from regiondag.study.notify import Notify
from regiondag.update import nights as module
from regiondag.update.crontab import list_times
from regiondag.update.nightly import nightly_folder
from regiondag.update.nights import Nights, find_missed, find_settings, read_nights, run_night, write_nights
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.notify.test_send import program

DAILY = "30 3 * * *"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def missed(since: str, now: str, schedule: str = DAILY, offset: int = 0) -> list[str]:
    return find_missed(Nights(schedule, at(since), offset), at(now))


def test_a_job_that_begins_every_night_misses_none():
    assert missed("2026-11-22 03:30", "2026-11-23 03:30") == []
    assert missed("2026-11-22 04:29", "2026-11-23 03:30") == []  # a busy access point
    assert missed("2026-10-24 01:30", "2026-10-25 02:30", offset=7200) == []  # the night on which clocks are put back


def test_nights_without_a_job():
    assert missed("2026-11-20 03:30", "2026-11-23 03:30") == ["2026-11-21 03:30", "2026-11-22 03:30"]
    assert missed("2026-11-22 03:30", "2026-11-23 05:31") == ["2026-11-23 03:30"]  # asked from elsewhere
    assert missed("2026-11-22 03:30", "2026-11-23 05:00") == []  # it may still come
    assert missed("2026-11-20 02:30", "2026-11-22 02:30", offset=3600) == ["2026-11-21 03:30"]
    assert missed("2026-11-20 04:00", "2026-11-24 04:00", "0 4 * * 1") == ["2026-11-23 04:00"]


@pytest.mark.parametrize("nights", [Nights(), Nights(DAILY), Nights("nonsense", 5.0)])
def test_what_is_not_known_is_not_missed(nights):
    assert find_missed(nights, at("2026-11-23 05:31")) == []


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schedule": 1}', '{"schedule": "", "since": "x", "offset": 0, "untold": []}']
)
def test_a_damaged_file_counts_as_none(text, tmp_path):
    (tmp_path / "nights.json").write_text(text)
    assert read_nights(tmp_path / "nights.json") == Nights()


MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 3, 1))


@given(st.lists(MOMENTS, min_size=3, max_size=3))
def test_times_are_each_in_one_of_two_halves(moments):
    first, middle, last = sorted(moments)
    text = "*/20 1,13 * * 1-5"
    assert list_times(text, first, middle) + list_times(text, middle, last) == list_times(text, first, last)


# --- a night -----------------------------------------------------------------------------------------------


class Night:
    """A study's nights, whose messages are kept."""

    def __init__(self, tmp_path, monkeypatch) -> None:
        self.path, self.told, self.works = tmp_path / "nights.json", [], True
        monkeypatch.setattr(module, "send_all", self.send)

    def send(self, _settings, message):
        self.told.append(message.text)
        return {"command": (self.works, "answer")}

    def run(self, work=lambda: 0, last=None, settings=Notify(command=("x",))) -> int:  # noqa: B008
        return run_night(self.path, DAILY, "shop", lambda: settings, last, work, lambda _: None)


@pytest.fixture
def night(tmp_path, monkeypatch):
    return Night(tmp_path, monkeypatch)


def fail() -> int:
    raise RegiondagError("run-1 is in progress")


def test_a_good_night_says_nothing(night):
    assert night.run() == 0 and night.told == []
    assert read_nights(night.path).schedule == DAILY and time.time() - read_nights(night.path).since < 60


def test_a_night_without_a_run_is_told_and_fails_as_it_did(night):
    with pytest.raises(RegiondagError, match="in progress"):
        night.run(fail)
    assert night.told == ["tonight no run was made: run-1 is in progress\n"]
    assert night.run(lambda: 1) == 1
    assert night.told[-1] == "tonight's update ended with exit code 1\n"


def test_nights_before_it_are_told_once(night):
    write_nights(night.path, Nights(DAILY, time.time() - 3 * 86400))
    assert night.run() == 0
    assert night.told[0].startswith("no update began at ") and "was not in its queue" in night.told[0]
    assert night.run() == 0 and len(night.told) == 1


def test_what_nobody_heard_is_said_again(night):
    night.works = False
    with pytest.raises(RegiondagError):
        night.run(fail)
    night.works = True
    assert night.run() == 0 and night.told[0] == night.told[1]
    assert night.run() == 0 and len(night.told) == 2


def test_a_run_that_never_came_to_its_end(night, tmp_path):
    last = RunFolder(tmp_path / "run-shop-1")
    last.path.mkdir()
    assert night.run(last=last) == 0 and night.told == []  # nobody was to be told
    last.notify.write_text("{}")
    assert night.run(last=last) == 0
    assert night.told == ["run-shop-1 never came to its end: DAGMan was removed, crashed or still works on it.\n"]
    last.notified.write_text("{}")
    assert night.run(last=last) == 0 and len(night.told) == 1


def test_who_does_not_want_to_hear_of_it(night):
    with pytest.raises(RegiondagError):
        night.run(fail, settings=Notify(command=("x",), events=("failed",)))
    assert night.told == [] and read_nights(night.path).untold == ()


def test_a_study_file_that_cannot_be_read_tonight(tmp_path):
    last = RunFolder(tmp_path)
    last.notify.write_text(
        '{"command": ["x"], "webhook": "", "headers": {}, "email": [], "events": [], "budget": null}'
    )
    assert find_settings(fail, last) == Notify(command=("x",), events=())
    with pytest.raises(RegiondagError):
        find_settings(fail, None)


# --- as a user meets it ------------------------------------------------------------------------------------


@pytest.fixture
def study(tmp_path) -> Path:
    script = program(tmp_path / "tell", f'cat >>"{tmp_path}/got"; echo >>"{tmp_path}/got"; echo thanks >&2')
    return write_study(tmp_path / "study", f"{STUDY}notify: {{command: [{script}]}}\n")


def test_a_test_message(study, tmp_path, capsys):
    assert main(["notify", str(study.parent), "--test"]) == 0
    assert capsys.readouterr().out == "command: tell ends with 0: thanks\n"
    assert json.loads((tmp_path / "got").read_text())["events"][0]["event"] == "test"
    assert main(["notify", str(study), "--test", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"command": {"sent": True, "answer": "tell ends with 0: thanks"}}
    (tmp_path / "tell").unlink()
    assert main(["notify", str(study), "--test"]) == 1
    assert "command: NOT sent: " in capsys.readouterr().out


def test_variables_are_warned_of(tmp_path, monkeypatch, capsys):
    study = write_study(tmp_path, f"{STUDY}notify: {{webhook: 'env:HOOK'}}\n")
    monkeypatch.delenv("HOOK", raising=False)
    assert main(["notify", str(study), "--test"]) == 1
    shown = capsys.readouterr()
    assert "HOOK is not set" in shown.out and "env:HOOK: DAGMan's scripts" in shown.err


def test_what_is_set(study, capsys):
    assert main(["notify", str(study)]) == 0
    assert "events: finished, failed, champion, frozen, missed, budget" in capsys.readouterr().out
    assert main(["notify", str(study), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last"] is None


def test_nobody_is_named(tmp_path, capsys):
    assert main(["notify", str(write_study(tmp_path)), "--test"]) == 2
    assert "names nobody" in capsys.readouterr().err


def test_asked_from_elsewhere(study, tmp_path, capsys):
    assert main(["notify", str(study), "--missed"]) == 2
    assert "no nightly job" in capsys.readouterr().err
    folder = nightly_folder(study, "tiny")
    folder.path.mkdir()
    write_nights(folder.nights, Nights(DAILY, time.time()))
    assert main(["notify", str(study), "--missed"]) == 0
    write_nights(folder.nights, Nights(DAILY, time.time() - 3 * 86400))
    assert main(["notify", str(study), "--missed", "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out.splitlines()[-1])["missed"]) >= 2
    assert "no update began" in json.loads((tmp_path / "got").read_text())["text"]
    assert main(["notify", str(study), "--missed"]) == 0  # told once
