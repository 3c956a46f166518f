"""What is told of a run, once: by the last node's POST, whatever becomes of the telling."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.node.main import main as node_main
from regiondag.notify.deliver import Noted, deliver, read_noted
from regiondag.notify.message import Event, add_undelivered, digest_run, make_message, note_missed, note_test
from regiondag.notify.send import NotSentError
from regiondag.report.bill import Bill
from regiondag.report.summary import RegionSummary, Summary
from regiondag.run.layout import RunFolder
from regiondag.run.region_state import RegionOutcome
from regiondag.study.notify import EVENTS, Notify, notify_from_json, notify_to_json
from regiondag.util.text import holds_control_character
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.notify.test_send import SECRET, program

ALL = Notify(command=("/bin/true",), email=("ada",))


def region(name: str, status: RegionOutcome = RegionOutcome.PROMOTED, **more) -> RegionSummary:
    made = RegionSummary(name, name.lower(), status, "", {}, {}, {}, None, {}, 0.1, "")
    return replace(made, recipe="ease with l2 10", **more)


def summary(*regions: RegionSummary, cost: float | None = None) -> Summary:
    return Summary("shop", "/runs/run-shop-1", "ndcg@20", regions, bill=Bill("USD", cost=cost))


def events_of(settings: Notify, found: Summary, done: bool = True) -> dict[str, tuple[str, ...]]:
    message = digest_run(found, settings, ["2 regions: 1 better."], "run-shop-1", done, 5.0)
    return {} if message is None else {event.event: event.lines for event in message.events}


def test_a_run_that_is_finished():
    pooled = region("all", stands_for_all=True)
    found = events_of(ALL, summary(pooled, region("North"), region("South", RegionOutcome.KEPT, pinned=True)))
    assert found == {
        "finished": ("run run-shop-1 is finished.", "2 regions: 1 better."),
        "champion": ("1 region got another champion: North.", "North: ease with l2 10"),
        "frozen": ("1 region kept a pinned champion: South.", "South: ease with l2 10"),
    }


def test_a_run_that_failed_says_why_once_for_all_that_share_it():
    failed = [region(f"R{n}", RegionOutcome.FAILED, reason="no data") for n in range(20)]
    found = events_of(ALL, summary(*failed, region("North", RegionOutcome.UNFINISHED)), done=False)
    assert found == {
        "failed": (
            "run run-shop-1 failed: 21 regions without a champion.",
            "R0, R1, R2, R3, R4, R5, R6, R7 and 12 more: no data",
            "North: unfinished",
            "2 regions: 1 better.",
            "regiondag explain /runs/run-shop-1",
        )
    }


@pytest.mark.parametrize(("cost", "told"), [(10.0, False), (10.01, True), (None, False)])
def test_money_over_budget(cost, told):
    found = events_of(replace(ALL, budget=10.0), summary(region("North"), cost=cost))
    assert ("budget" in found) == told
    assert not told or found["budget"] == ("it cost 10.01 USD, the budget of a run is 10.00.",)


def test_only_what_somebody_wants_to_hear():
    assert set(events_of(replace(ALL, events=("champion",)), summary(region("North")))) == {"champion"}
    assert events_of(replace(ALL, events=("missed",)), summary(region("North"))) == {}


def test_the_same_said_twice_has_one_id_and_another_run_another():
    one, again = (digest_run(summary(region("North")), ALL, [], "run-shop-1", True, now) for now in (5.0, 99.0))
    other = digest_run(summary(region("North")), ALL, [], "run-shop-2", True, 5.0)
    worse = digest_run(summary(region("North", RegionOutcome.FAILED)), ALL, [], "run-shop-1", False, 5.0)
    assert one and again and other and worse and one.id == again.id
    assert len({one.id, other.id, worse.id}) == 3
    assert note_test("shop", 1).id != note_test("shop", 2).id


@given(st.text(), st.lists(st.text(), max_size=4), st.lists(st.text(), max_size=4))
def test_hostile_texts_stay_on_their_lines(title, lines, names):
    message = make_message("shop", "run-shop-1", title, [Event("failed", tuple(lines), tuple(names))], 5.0)
    assert not any(map(holds_control_character, (message.title, *message.events[0].lines, *message.events[0].regions)))
    assert len(message.text.splitlines()) <= max(1, len(lines)) and len(message.title) <= 120
    assert json.loads(message.to_json())["id"] == message.id


def test_a_flood_is_bounded():
    message = note_missed("shop", ["x" * 10_000] * 10_000, 5.0)
    assert len(message.text) < 60 * 502


SETTINGS = st.builds(
    Notify,
    command=st.lists(st.text()).map(tuple),
    webhook=st.text(),
    headers=st.dictionaries(st.text(), st.text()),
    email=st.lists(st.text()).map(tuple),
    events=st.lists(st.sampled_from(EVENTS)).map(tuple),
    budget=st.none() | st.floats(0, 1e12),
)


@given(SETTINGS)
def test_settings_come_back_as_they_were(settings):
    assert notify_from_json(notify_to_json(settings)) == settings


# --- once --------------------------------------------------------------------------------------------------


def test_what_arrived_is_not_sent_again_and_what_did_not_is():
    sent, message = [], make_message("shop", "run-shop-1", "shop: x", [Event("finished", ("x",))], 5.0)

    def way(channel, _settings, _message):
        sent.append(channel)
        if channel == "email" and sent.count("email") == 1:
            raise NotSentError("no mail")
        return "heard"

    noted = Noted()
    assert list(deliver(ALL, message, noted, way)) == ["notify: command: heard", "notify: email: NOT sent: no mail"]
    assert noted.failed == {"email, shop: x": "no mail"}
    assert list(deliver(ALL, message, noted, way)) == ["notify: command: told before", "notify: email: heard"]
    assert noted.failed == {} and sent == ["command", "email", "email"]


def test_what_did_not_arrive_is_said_with_the_next_one():
    message = make_message("shop", "run-shop-2", "shop: x", [Event("finished", ("x",))], 5.0)
    more = add_undelivered(message, {"email, shop: run-shop-1": "no mail"})
    assert more.id == message.id and more.text == "x\ndid not arrive: email, shop: run-shop-1: no mail\n"


# --- by the last node's POST -------------------------------------------------------------------------------


@pytest.fixture
def told(tmp_path):
    """Return a run that tells a program, and what makes the program's answer."""
    script = program(
        tmp_path / "tell", f'cat >>"{tmp_path}/got"; echo >>"{tmp_path}/got"; exit $(cat "{tmp_path}/code")'
    )
    (tmp_path / "code").write_text("0")
    (tmp_path / "token").write_text(SECRET)
    more = f"notify: {{command: [{script}], webhook: 'file:{tmp_path}/url', headers: {{X-Key: 'file:token'}}}}\n"
    study = write_study(tmp_path / "study", STUDY + more)
    return create(study, tmp_path / "runs")


def post(run: RunFolder, status: int) -> int:
    return node_main(["post", str(run.path), "report", str(status)])


def messages(tmp_path) -> list[dict]:
    return [json.loads(line) for line in (tmp_path / "got").read_text().splitlines()]


def test_the_last_node_tells_and_ends_as_the_dag_does(told, tmp_path, capsys):
    assert post(told, 2) == 1  # nothing was trained
    assert "notify: command: tell ends with 0" in capsys.readouterr().out
    [message] = messages(tmp_path)
    assert message["events"][0]["event"] == "failed" and set(message["events"][0]["regions"]) == {
        "United Kingdom",
        "Germany",
    }
    assert post(told, 2) == 1  # as after a rescue that changed nothing
    assert "notify: command: told before" in capsys.readouterr().out and len(messages(tmp_path)) == 1
    assert set(read_noted(told).failed) == {next(iter(read_noted(told).failed))}  # the webhook's file is not there
    assert "Errno" not in told.notified.read_text()


def test_no_secret_is_in_the_run_directory(told, tmp_path):
    (tmp_path / "url").write_text(f"http://127.0.0.1:1/{SECRET}")
    (tmp_path / "study/token").write_text(SECRET)
    post(told, 2)
    for path in told.path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    assert "file:" in told.notify.read_text() and read_noted(told).failed


def test_a_failing_notification_fails_no_run_and_is_in_the_next_digest(told, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("regiondag.notify.send.WAIT", 0.0)
    (tmp_path / "code").write_text("1")
    told.notify.write_text(notify_to_json(replace(notify_from_json(told.notify.read_text()), webhook="")))
    assert post(told, 0) == 1
    assert "NOT sent: tell ends with 1" in capsys.readouterr().out
    (tmp_path / "code").write_text("0")
    following = create(tmp_path / "study/study.yaml", tmp_path / "runs")
    following.notify.write_text(told.notify.read_text())
    assert post(following, 0) == 1
    last = messages(tmp_path)[-1]
    assert last["run"] == following.path.name and last["events"][-1]["event"] == "undelivered"
    assert f"{told.path.name}" in last["text"] and "tell ends with 1" in last["text"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"command": 1}', "null"])
def test_a_damaged_file_is_told_in_the_log_alone(text, told, capsys):
    told.notify.write_text(text)
    assert post(told, 0) == 1
    assert "notify.json is damaged" in capsys.readouterr().out


def test_a_bug_in_it_is_no_failure_of_the_dag(told, capsys, monkeypatch):
    monkeypatch.setattr("regiondag.notify.deliver.digest_run", lambda *_: 1 / 0)
    assert post(told, 0) == 1
    out = capsys.readouterr().out
    assert "notify: a bug" in out and "ZeroDivisionError" in out and "report 0: exit 1" in out
