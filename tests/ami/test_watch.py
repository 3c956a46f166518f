"""The watcher: what it decides, and what it does on a machine whose metadata service misbehaves."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ami.conftest import load

watch = load("watch")
metadata = load("metadata")

NOON = 1_795_348_800.0  # 2026-11-22T12:00:00Z
TERMINATE = json.dumps({"action": "terminate", "time": "2026-11-22T12:02:00Z"})
REBALANCE = json.dumps({"noticeTime": "2026-11-22T12:00:00Z"})
BUSY = frozenset({"condor_master", "condor_startd", "condor_starter", "python3"})
IDLE = BUSY - {"condor_starter"}
ENDED = IDLE - {"condor_startd"}


class Machine:
    """A worker of which everything but the metadata is made up; `script` maps a sleep's number to what happens then."""

    def __init__(self, get, running=BUSY, script=None, problems=()):
        self.get, self.now, self.naps, self.offs = get, NOON, [], 0
        self.running_now, self.script, self.problems = running, script or {}, list(problems)
        self.drained: list = []

    def drain(self, notice):
        self.drained.append(notice)
        return self.problems.pop(0) if self.problems else ""

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds
        assert len(self.naps) < 50, "it never ends"
        self.script.get(len(self.naps), lambda: None)()

    def run(self, code=0):
        def off():
            self.offs += 1
            return code

        worker = watch.Worker(self.get, lambda: self.running_now, self.drain, off, self.sleep, lambda: self.now)
        return watch.watch(worker)

    def end(self, running=ENDED):
        return lambda: setattr(self, "running_now", running)


def strengths(machine):
    return [notice.strength for notice in machine.drained]


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_a_spot_notice_drains_gracefully_until_its_time(action):
    text = json.dumps({"action": action, "time": "2026-11-22T12:02:00Z"})
    notice, puzzle = watch.decide(text, REBALANCE, "peaceful", NOON)
    assert (notice.strength, notice.until, puzzle) == (watch.GRACEFUL, NOON + 120, "")
    assert action in notice.why


@pytest.mark.parametrize("when", [None, "soon", 7, "2026-13-01T00:00:00Z"])
def test_a_notice_without_a_time_leaves_two_minutes(when):
    notice, _ = watch.decide(json.dumps({"action": "stop", "time": when}), None, None, NOON)
    assert notice.until == NOON + 120


@pytest.mark.parametrize(("rebalance", "tag"), [(REBALANCE, None), (None, "peaceful"), (None, " peaceful\n")])
def test_recommendation_and_tag_drain_peacefully(rebalance, tag):
    notice, puzzle = watch.decide(None, rebalance, tag, NOON)
    assert (notice.strength, notice.until, puzzle) == (watch.PEACEFUL, None, "")


def test_the_tag_of_a_fleet_without_money_stops_the_jobs():
    notice, puzzle = watch.decide(None, None, "graceful", NOON)
    assert (notice.strength, notice.until, puzzle) == (watch.GRACEFUL, NOON + 120, "")
    assert watch.decide(None, REBALANCE, "graceful", NOON)[0].strength == watch.GRACEFUL


def test_jobs_that_still_run_ten_minutes_after_a_recommendation_are_saved(imds):
    for seconds, strength in ((-60, watch.PEACEFUL), (599, watch.PEACEFUL), (600, watch.GRACEFUL)):
        assert watch.decide(None, REBALANCE, None, NOON + seconds)[0].strength == strength
    assert watch.decide(None, '{"noticeTime": "soon"}', None, NOON + 999)[0].strength == watch.PEACEFUL
    imds.set(watch.REBALANCE, REBALANCE)
    machine = Machine(metadata.Metadata().get)
    machine.now -= 10
    machine.script = {5: lambda: setattr(machine, "now", NOON + 600), 7: machine.end()}
    machine.run()
    assert strengths(machine) == [watch.PEACEFUL, watch.GRACEFUL]
    assert machine.offs == 1


@pytest.mark.parametrize("text", ["", "<html>", "[]", "{}", '{"action": "nap"}', '{"action": ["stop"]}', "[" * 10**5])
def test_rubbish_is_no_notice(text):
    notice, puzzle = watch.decide(text, None, None, NOON)
    assert notice is None
    assert "no notice" in puzzle


def test_an_unknown_tag_is_named_with_what_is_legal():
    notice, puzzle = watch.decide(None, None, "now!", NOON)
    assert notice is None
    assert puzzle == "the tag regiondag-drain is 'now!'; it can be 'peaceful' or 'graceful'"


@given(*[st.none() | st.text() | st.sampled_from([TERMINATE, REBALANCE, "peaceful"])] * 3)
def test_any_text_is_decided_upon(action, rebalance, tag):
    notice, puzzle = watch.decide(action, rebalance, tag, NOON)
    assert notice is None or notice.strength in (watch.PEACEFUL, watch.GRACEFUL)
    assert isinstance(puzzle, str)


def test_terminate_then_the_startd_ends_then_off(imds, capsys):
    imds.set(watch.ACTION, TERMINATE)
    machine = Machine(metadata.Metadata().get)
    machine.script = {3: machine.end()}
    assert machine.run() == 0
    assert strengths(machine) == [watch.GRACEFUL]  # once, though the notice stays
    assert machine.offs == 1
    assert machine.naps == [5, 5, 5]
    assert not imds.asked_without_token
    assert capsys.readouterr().out.splitlines() == [
        "regiondag-watch: draining: EC2 takes the machine back (terminate)",
        "regiondag-watch: drained",
        "regiondag-watch: this machine powers off",
    ]


def test_a_peaceful_drain_waits_for_the_jobs_not_for_the_startd(imds):
    imds.set(watch.TAG, "peaceful")
    machine = Machine(metadata.Metadata().get)
    machine.script = {30: machine.end(IDLE)}
    machine.run()
    assert strengths(machine) == [watch.PEACEFUL]
    assert machine.offs == 1
    assert len(machine.naps) == 31  # one more look, for a job may have been on its way


def test_a_notice_after_a_peaceful_drain_escalates(imds):
    imds.set(watch.REBALANCE, REBALANCE)
    machine = Machine(metadata.Metadata().get)
    machine.script = {4: lambda: imds.set(watch.ACTION, TERMINATE), 7: machine.end()}
    machine.run()
    assert strengths(machine) == [watch.PEACEFUL, watch.GRACEFUL]


def test_a_recommendation_after_a_notice_changes_nothing(imds):
    imds.set(watch.ACTION, TERMINATE)
    machine = Machine(metadata.Metadata().get)
    machine.script = {1: lambda: imds.set(watch.REBALANCE, REBALANCE), 2: lambda: imds.set(watch.ACTION, None)}
    machine.script[4] = machine.end()
    machine.run()
    assert strengths(machine) == [watch.GRACEFUL]


def test_a_startd_that_stays_beyond_the_notice_is_told_and_does_not_keep_the_machine(imds, capsys):
    imds.set(watch.ACTION, TERMINATE)
    machine = Machine(metadata.Metadata().get)
    machine.run()
    assert sum(machine.naps) == 120
    assert machine.offs == 1
    assert "regiondag-watch: ERROR: HTCondor has not ended by the time that the notice gave" in capsys.readouterr().out


def test_a_drain_that_fails_is_tried_again(imds, capsys):
    imds.set(watch.ACTION, TERMINATE)
    machine = Machine(metadata.Metadata().get, problems=["condor_off: DENIED"] * 2)
    machine.script = {5: machine.end()}
    machine.run()
    assert strengths(machine) == [watch.GRACEFUL] * 3
    out = capsys.readouterr().out
    assert out.count("ERROR: cannot drain, trying again: condor_off: DENIED") == 1
    assert "drained" in out


def test_a_machine_without_htcondor_is_drained_at_once(imds):
    imds.set(watch.ACTION, TERMINATE)
    machine = Machine(metadata.Metadata().get, running=frozenset(), problems=["no master"])
    machine.run()
    assert machine.offs == 1
    assert machine.naps == []


def test_a_power_off_that_fails_is_for_systemd_to_see(imds):
    imds.set(watch.ACTION, TERMINATE)
    assert Machine(metadata.Metadata().get, running=ENDED).run(code=1) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_no_answer_of_the_service_ends_it(imds, capsys, status):
    imds.fail(status=status)
    machine = Machine(metadata.Metadata().get)
    machine.script = {10: lambda: (imds.fail(), imds.set(watch.ACTION, TERMINATE)), 12: machine.end()}
    machine.run()
    assert strengths(machine) == [watch.GRACEFUL]
    assert capsys.readouterr().out.count("asking again without a word") == 1


def test_a_service_that_hangs_does_not_end_it(imds):
    imds.fail(hang=30)
    machine = Machine(metadata.Metadata(timeout=0.05).get)
    machine.script = {2: lambda: (imds.fail(), imds.set(watch.ACTION, TERMINATE)), 4: machine.end()}
    started = time.monotonic()
    machine.run()
    assert strengths(machine) == [watch.GRACEFUL]
    assert time.monotonic() - started < 10


def test_a_token_that_is_revoked_while_it_watches(imds):
    machine = Machine(metadata.Metadata().get)
    machine.script = {1: imds.revoke, 2: lambda: imds.set(watch.ACTION, TERMINATE), 4: machine.end()}
    machine.run()
    assert strengths(machine) == [watch.GRACEFUL]
    assert 401 in {request.status for request in imds.requests}


def test_a_machine_without_the_service_asks_rarely_and_in_silence(capsys):
    def get(path):
        raise metadata.MetadataError("nobody there")

    machine = Machine(get)
    with pytest.raises(AssertionError, match="never ends"):
        machine.run()
    assert machine.naps[:4] == [5, 5, 60, 60]
    assert machine.drained == []
    assert capsys.readouterr().out == "regiondag-watch: nobody there; asking again without a word\n"


def test_a_service_that_was_there_is_asked_often_while_it_is_away(imds, capsys):
    machine = Machine(metadata.Metadata().get)
    machine.script = {2: lambda: imds.fail(status=500), 8: imds.fail}
    with pytest.raises(AssertionError, match="never ends"):
        machine.run()
    assert set(machine.naps) == {5}
    assert "the instance's metadata can be read again" in capsys.readouterr().out


def test_answers_cannot_write_on_the_console_as_they_like(imds, capsys):
    imds.set(watch.TAG, "\x1b[2Jx\nregiondag-join: ERROR: no")
    machine = Machine(metadata.Metadata().get)
    with pytest.raises(AssertionError, match="never ends"):
        machine.run()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert "\x1b" not in lines[0]


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> Path:
    """Put programs first on PATH; each writes its call into the file `calls` there."""
    folder.mkdir(exist_ok=True)
    for name, script in scripts.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{folder}/calls\n{script}\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "calls"


def test_what_htcondor_is_told(tmp_path, monkeypatch):
    calls = programs(tmp_path / "bin", monkeypatch, condor_off="", condor_reconfig="")
    monkeypatch.setattr(watch, "DRAIN_FILE", tmp_path / "run/drain.config")
    assert watch.drain(watch.Notice(watch.PEACEFUL, "because")) == ""
    assert (tmp_path / "run/drain.config").read_text().splitlines()[1:] == [
        "START = False",
        'RegiondagDrain = "because"',
        "STARTD_ATTRS = $(STARTD_ATTRS) RegiondagDrain",
    ]
    assert watch.drain(watch.Notice(watch.GRACEFUL, "now")) == ""
    assert calls.read_text().splitlines() == ["condor_reconfig ", "condor_off -startd -graceful"]


@pytest.mark.parametrize(("script", "problem"), [("echo away >&2; exit 1", "away"), ("echo ERROR no >&2", "ERROR no")])
def test_what_htcondor_refuses(tmp_path, monkeypatch, script, problem):
    """condor_off exits with 0 even when it was not let in."""
    programs(tmp_path / "bin", monkeypatch, condor_off=script)
    monkeypatch.setattr(watch, "DRAIN_FILE", tmp_path / "drain.config")
    assert watch.drain(watch.Notice(watch.GRACEFUL, "now")) == f"condor_off -startd -graceful: {problem}"


def test_no_htcondor_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(watch, "DRAIN_FILE", tmp_path / "drain.config")
    assert watch.drain(watch.Notice(watch.GRACEFUL, "now")) == "condor_off: No such file or directory"


def test_running_programs_are_read_from_proc(tmp_path):
    for number, name in (("1", "systemd"), ("20", "condor_startd"), ("x", "no")):
        (tmp_path / number).mkdir()
        (tmp_path / number / "comm").write_text(f"{name}\n")
    (tmp_path / "3").mkdir()  # it has just ended
    assert watch.running(tmp_path) == {"systemd", "condor_startd"}
