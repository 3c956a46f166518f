import fcntl
import json
import multiprocessing
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.contract import Recipe, Status
from regiondag.errors import RegiondagError
from regiondag.run.history import ExpectedGain, TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.values import read_values


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "trials.jsonl")


def settle(journal, trial, status="ok", value=0.5, **more):
    with journal.locked():
        journal.append(
            "settled", **asdict(TrialOutcome(trial, status, value=value if status == "ok" else None, **more))
        )


def test_an_absent_journal_is_an_empty_one(journal):
    assert journal.read().settled == {}


def test_what_is_appended_is_read(journal):
    with journal.locked():
        journal.append("proposed", trial=3, point={"x": 0.5, "c": "é"})
    settle(journal, 3, seconds=2.5)
    settle(journal, None, promoted=True)
    history = journal.read()
    assert history.proposals[3].point == {"x": 0.5, "c": "é"}
    assert history.settled[3].seconds == 2.5 and history.final.promoted
    assert journal.read_outcomes().proposals == {}


@given(
    status=st.sampled_from(["ok", "diverged", "machine"]),
    value=st.floats(allow_nan=False, allow_infinity=False),
    reason=st.text(),
    trial=st.none() | st.integers(0, 99999),
    promoted=st.booleans(),
    metrics=st.dictionaries(st.text(), st.floats(0, 1)),
    family=st.none() | st.sampled_from(["popularity", "ease", "blend"]),
    floor=st.none() | st.floats(0, 1),
)
def test_outcomes_read_quickly_are_those_read_in_full(
    tmp_path_factory, status, value, reason, trial, promoted, metrics, family, floor
):
    journal = Journal(tmp_path_factory.mktemp("j") / "trials.jsonl")
    members = (Recipe("popularity"),) if family == "blend" else ()
    more = {
        "recipe": Recipe(family, {"compared": 1.0}, 1, members) if family else None,
        "compared": {} if floor is None else {"floor": {"ndcg@20": floor}},
        "stderr": floor,
        "customers": 3,
    }
    settle(journal, trial, status, value, reason=reason, promoted=promoted, metrics=metrics, **more)
    [full] = [*journal.read().settled.values(), journal.read().final][:1]
    [quick] = [*journal.read_outcomes().settled.values(), journal.read_outcomes().final][:1]
    for name in ("trial", "status", "value", "promoted", "stderr", "customers", "compared"):
        assert getattr(quick, name) == getattr(full, name)
    assert (quick.recipe is not None and quick.recipe.family == "popularity") == (family == "popularity")
    if trial is None:
        assert quick == full


@given(
    status=st.sampled_from(["ok", "pruned", "diverged", "machine"]),
    value=st.none() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False),
    reason=st.text(),
    trial=st.none() | st.integers(0, 99999),
    curve=st.lists(st.floats(0, 1), max_size=2),
    figure=st.none() | st.floats(0, 1e300),
    host=st.sampled_from(["", 'slot "1"', '"curve": [], "best_epoch": 1, "seconds": 3.0, ']),
    more=st.booleans(),
)
def test_what_a_script_reads_of_a_trial_is_what_there_is(
    tmp_path_factory, status, value, reason, trial, curve, figure, host, more
):
    journal = Journal(tmp_path_factory.mktemp("j") / "trials.jsonl")
    journal.append("proposed", trial=3, point={"x": 0.5})
    rest = {"stderr": figure, "seconds": figure or 1.5, "compared": {"floor": {"p@5": 0.1}} if more else {}}
    settle(journal, trial, status, value, reason=reason, curve=curve, host=host, metrics={"p@5": 0.3}, **rest)
    settle(journal, 4, "removed", None, reason="cancelled")
    full, quick = journal.read(), journal.read(whole=False)
    assert quick.proposals == full.proposals and quick.settled.keys() == full.settled.keys()
    assert quick.settled_at == full.settled_at and quick.final == full.final and quick.folded == full.folded
    for number, outcome in full.settled.items():
        few = {name: getattr(outcome, name) for name in ("value", "stderr", "customers", "seconds")}
        known = quick.settled[number]
        assert known == outcome or (outcome.ok and known == TrialOutcome(number, Status.OK, **few))


@pytest.mark.parametrize("figure", ["1e999", "1.2.3", "-", "NaN", "true", "{}"])
def test_what_is_no_figure_is_an_error_to_scripts_too(journal, figure):
    settle(journal, 1, value=0.25, stderr=0.125, curve=[0.5], seconds=1.5)
    whole = journal.path.read_text()
    for seen in ("0.25", "0.125", "1.5"):
        journal.path.write_text(whole.replace(seen, figure))
        with pytest.raises(RegiondagError, match="not a line of a journal"):
            journal.read(whole=False)


def test_the_first_outcome_counts(journal):
    settle(journal, 1, value=0.1)
    settle(journal, 1, value=0.9)
    assert journal.read().settled[1].value == 0.1


def test_what_a_rescue_runs_again_may_turn_out_well(journal):
    settle(journal, 1, "bad_input")
    settle(journal, None, "machine")
    assert journal.read().outcome(1) is None and journal.read().outcome(None) is None
    settle(journal, 1, value=0.3)
    settle(journal, None, value=None)
    assert journal.read().outcome(1).value == 0.3 and journal.read().outcome(None).ok


def test_the_time_of_an_outcome_that_is_replaced_is_not_forgotten(journal):
    settle(journal, 1, "machine", None, seconds=20.0)
    settle(journal, 1, "removed", None, seconds=5.0)
    settle(journal, 1, value=0.3, seconds=3.0)
    settle(journal, 1, value=0.4, seconds=100.0)
    history = journal.read()
    assert (history.settled[1].seconds, history.attempt_seconds) == (3.0, 25.0)


def test_best_is_the_earliest_of_equals_in_either_direction(journal):
    for trial, value in enumerate([0.2, 0.7, 0.7, 0.1]):
        settle(journal, trial, value=value)
    settle(journal, 9, "diverged")
    assert journal.read().best(minimize=False).trial == 1
    assert journal.read().best(minimize=True).trial == 3


def test_the_winner_is_the_one_that_was_noted_or_else_the_best(journal):
    for trial, value in enumerate([0.2, 0.7, 0.4]):
        settle(journal, trial, value=value)
    assert journal.read().winner(minimize=False).trial == 1
    for trial, of in ((0, 2), (2, 3)):
        journal.append("won", trial=trial, of=of)
    for history in (journal.read(), journal.read_outcomes()):
        assert history.won == (2, 3) and history.winner(minimize=False).trial == 2
    assert Journal(journal.path.with_name("none.jsonl")).read().winner(minimize=True) is None


@given(st.data())
def test_torn_at_any_byte_it_still_reads_and_takes_the_next_line(tmp_path_factory, data):
    journal = Journal(tmp_path_factory.mktemp("j") / "trials.jsonl")
    for trial in range(3):
        settle(journal, trial)
    whole = journal.path.read_bytes()
    cut = round(data.draw(st.floats(0, 1)) * len(whole))
    journal.path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    assert len(journal.read().settled) == kept
    settle(journal, 7)
    assert sorted(journal.read().settled) == [*range(kept), 7]


TRIALS = st.none() | st.integers(0, 3)
SETTLED = st.tuples(TRIALS, st.sampled_from(["ok", "pruned", "diverged", "machine", "removed", "bad_input"]))
EVENTS = st.one_of(
    SETTLED.map(
        lambda one: ("settled", asdict(TrialOutcome(*one, value=0.5 if one[1] == "ok" else None, seconds=2.0)))
    ),
    st.integers(0, 3).map(lambda trial: ("proposed", {"trial": trial, "point": {"x": 0.5, "c": "é{}\n"}})),
    TRIALS.map(lambda trial: ("attempt", {"trial": trial, "seconds": 1.5, "reason": "\u2028", "job": "1.0"})),
    TRIALS.map(lambda trial: ("stopped", {"trial": trial, "reason": "x"})),
    TRIALS.map(lambda trial: ("resumed", {"trial": trial})),
    TRIALS.map(lambda trial: ("reopened", {"trial": trial})),
    st.integers(0, 3).map(lambda trial: ("cancelled", {"trial": trial})),
    st.integers(0, 3).map(lambda trial: ("won", {"trial": trial, "of": 2})),
)


@settings(max_examples=50)
@given(st.lists(EVENTS, max_size=8), st.floats(0, 1))
def test_a_prefix_of_any_journal_reads_as_its_whole_lines(tmp_path_factory, events, share):
    journal = Journal(tmp_path_factory.mktemp("j") / "trials.jsonl")
    with journal.locked():
        journal.append_all(events)
    whole = journal.path.read_bytes()
    cut = whole[: round(share * len(whole))]
    journal.path.write_bytes(cut)
    torn = journal.read()
    journal.path.write_bytes(cut[: cut.rfind(b"\n") + 1])
    assert journal.read() == torn
    quick = journal.read_outcomes()
    assert quick.settled.keys() == torn.settled.keys() and quick.stopped == torn.stopped
    assert (quick.won, quick.cancelled, quick.reopened) == (torn.won, torn.cancelled, torn.reopened)
    assert quick.settled_at == torn.settled_at


@pytest.mark.parametrize(
    "line",
    [
        "{",
        pytest.param("[" * 100_000, id="deep"),
        pytest.param('{"event": "attempt", "trial": 1, "seconds": 1' + 400 * "0" + "}", id="huge"),
        '{"event": "settled"}',
        '{"event": "settled", "trial": 1, "status": "strange"}',
        pytest.param(
            '{"event": "settled", "time": 1.0, "trial": 2, "status": "strange", "reason": "", "value": null, '
            '"promoted": false}',
            id="a status that no version writes",
        ),
        "3",
        '{"event": "proposed", "trial": 1, "pint": {}}',
        pytest.param(
            '{"event": "settled", "time": 1.0, "trial": 2, "status": "ok", "reason": "", "value": 0.5, "metrics": {}, '
            '"stderr": null, "customers": 0, "compared": {{, "promoted": false}',
            id="what it was compared with is damaged",
        ),
    ],
)
def test_a_damaged_line_in_the_middle_is_an_error_with_its_number(journal, line):
    settle(journal, 1)
    with journal.path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RegiondagError, match=r"trials.jsonl:2: "):
        journal.read()
    if not line.startswith('{"event": "proposed"'):  # which it passes over
        with pytest.raises(RegiondagError, match=r"trials.jsonl:2: "):
            journal.read_outcomes()


def test_what_is_appended_is_on_the_disk_before_anything_is_done_about_it(journal, monkeypatch):
    synced, folder = [], journal.path.parent

    def fsync(number):
        path = Path(f"/proc/self/fd/{number}")
        synced.append("folder" if path.samefile(folder) else path.read_bytes())

    monkeypatch.setattr(os, "fsync", fsync)
    settle(journal, 1)
    first = journal.path.read_bytes()
    settle(journal, 2)
    assert synced == [first, "folder", journal.path.read_bytes()]  # the folder has the name of a new file


def test_one_script_at_a_time_has_the_lock(journal):
    with journal.locked(), journal.path.with_suffix(".lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with journal.path.with_suffix(".lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_record_broken_into_two_lines_is_an_error(journal):
    settle(journal, 1)
    with journal.path.open("a") as file:
        file.write('{"event": "won", "of": 2\n"trial": 1}\n{"event": "cancelled", "trial": 1}\n')
    with pytest.raises(RegiondagError, match=r"trials.jsonl:2: "):
        journal.read()


@pytest.mark.parametrize(
    "text",
    ['{"event": "cancelled", "trial": 1}, {"event": "cancelled", "trial": 2}\n',
     '{"event": "cancelled", "trial": 1}, {"event": "cancelled", "trial": 2}\n{"event": "won", "of": 2\n"trial": 1}\n'],
)  # fmt: skip
def test_two_records_in_a_line_are_an_error_also_where_as_many_lines_hold_as_many_records(journal, text):
    journal.path.write_text(text)
    with pytest.raises(RegiondagError, match=r"trials.jsonl:1: "):
        journal.read()


def _append_some(path, first):
    journal = Journal(path)
    for trial in range(first, first + 20):
        settle(journal, trial)


@pytest.mark.parametrize(
    "line",
    ['{"event": "settled", "trial": 0, "status": "ok", "value": "0.3"}',
     '{"event": "settled", "trial": 0, "status": "ok", "value": NaN}',
     '{"event": "settled", "trial": 0, "status": "ok", "value": 0.3, "curve": [null]}',
     '{"event": "settled", "trial": 0, "status": "ok", "value": 1' + 400 * "0" + "}",
     '{"event": "won", "trial": "first", "of": 2}'],
)  # fmt: skip
def test_a_figure_that_is_none_is_an_error_with_its_line(journal, line):
    settle(journal, 1, value=0.4)
    journal.path.write_text(journal.path.read_text() + line + "\n")
    with pytest.raises(RegiondagError, match=r"trials\.jsonl:2: .*legal"):
        journal.read()


def test_a_winner_that_never_was_is_passed_over(journal):
    settle(journal, 1, value=0.4)
    journal.append("won", trial=99, of=1)
    assert journal.read().winner(minimize=False).trial == 1


def test_many_processes_at_once(journal):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append_some, args=(journal.path, 20 * i)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(journal.read().settled) == list(range(80))


def test_what_a_newer_version_wrote_is_passed_over(journal):
    line = '{"event": "settled", "time": 1.0, "trial": 1, "status": "ok", "reason": "", "value": 0.5, '
    line += '"host": "w", "promoted": false}'
    journal.path.write_text(f'{line}\n{{"event": "praised", "time": 2.0, "trial": 1}}\n')
    for history in (journal.read(), journal.read_outcomes()):
        assert history.settled[1].value == 0.5
    journal.path.write_text("")
    journal.append("settled", trial=1, status="ok", praise="much", value=0.5)
    journal.append("proposed", trial=1, point={"x": 1}, praise="much")
    journal.append("attempt", trial=1, seconds=2.0, praise="much")
    for history in (journal.read(), journal.read_outcomes()):
        assert history.settled[1] == TrialOutcome(1, "ok", value=0.5)
        assert history.attempt_seconds == 2.0
    assert journal.read().proposals[1].point == {"x": 1}


def test_what_is_reopened_is_settled_again(journal):
    settle(journal, 1, value=0.9, seconds=4.0)
    settle(journal, None, value=0.8)
    for trial in (1, None):
        with journal.locked():
            journal.append("reopened", trial=trial)
    for history in (journal.read(), journal.read_outcomes()):
        assert (history.settled, history.final, history.reopened) == ({}, None, {1, None})
        assert history.outcome(1) is None and history.ended == 0
    assert journal.read().attempt_seconds == 4.0  # a budget has been spent on it
    settle(journal, 1, value=0.2)
    assert journal.read().outcome(1).value == 0.2 and journal.read().reopened == {None}


def test_a_trial_that_is_reopened_is_cancelled_no_more(journal):
    with journal.locked():
        journal.append("cancelled", trial=1)
    assert journal.read().cancelled == {1}
    with journal.locked():
        journal.append("reopened", trial=1)
    assert journal.read().cancelled == set()


def test_seconds_of_final_trainings_that_count_no_more_add_up(journal):
    settle(journal, None, "machine", seconds=5.0)
    settle(journal, None, "machine", seconds=7.0)
    settle(journal, None, value=0.5, seconds=11.0)
    settle(journal, None, "machine", seconds=100.0)  # after one that succeeded: passed over
    journal.append("reopened", trial=None)
    journal.append("reopened", trial=None)
    history = journal.read()
    assert history.repeated_final_seconds == history.attempt_seconds == 5 + 7 + 11
    assert history.final is None


def test_only_what_succeeded_is_the_best_whatever_it_reached(journal):
    journal.append("settled", trial=0, status="pruned", value=0.9)
    journal.append("settled", trial=1, status="ok", value=0.5)
    journal.append("settled", trial=2, status="ok", value=None)
    for history in (journal.read(), journal.read_outcomes()):
        assert history.best(minimize=False).trial == history.best(minimize=True).trial == 1
        assert history.any_ok and history.ended == 3
        assert not any(settled.promoted for settled in history.settled.values())  # of which nothing is said


def test_a_stop_is_noted_once_for_each_reason_and_forgotten_when_its_node_goes_on(journal):
    lines = []

    def number_of_lines():
        lines.append(len(journal.path.read_bytes().splitlines()) if journal.path.exists() else 0)
        return lines[-1]

    journal.note_resumed(1)
    assert number_of_lines() == 0
    journal.note_stop(1, "no machine")
    assert journal.read().stopped == {1: "no machine"} and number_of_lines() == 1
    journal.note_stop(1, "no machine")
    journal.note_resumed(2)  # which had not stopped
    assert number_of_lines() == 1
    journal.note_stop(1, "all failed")
    journal.note_stop(None, "all failed")
    for history in (journal.read(), journal.read_outcomes()):
        assert history.stopped == {1: "all failed", None: "all failed"}
    journal.note_resumed(1)
    assert journal.read().stopped == journal.read_outcomes().stopped == {None: "all failed"}
    journal.note_resumed(1)
    assert number_of_lines() == 4
    settle(journal, None)  # what ends well has gone on
    assert journal.read().stopped == {}


def test_attempts_are_read_with_their_time_and_without_seconds_took_none(journal):
    journal.append("attempt", trial=3, reason="disk full", host="w", job="4.0")
    journal.append("attempt", trial=None, seconds=2.5, time=100.0)
    first, final = journal.read().faults
    assert (first.trial, first.reason, first.seconds, first.host, first.job) == (3, "disk full", 0.0, "w", "4.0")
    assert first.when > 1.6e9  # this century's Unix time
    assert (final.trial, final.seconds, final.when) == (None, 2.5, 100.0)
    history = journal.read()
    assert (history.attempts, history.attempt_seconds) == (2, 2.5)
    assert history.faults_of(3) == [first] and history.faults_of(None) == [final] and history.faults_of(0) == []


def test_a_journal_is_read_as_it_was_when_a_trial_was_proposed(journal):
    with journal.locked():
        journal.append_all([("proposed", {"trial": n, "point": {"x": n}}) for n in (0, 1)])
    settle(journal, 1)
    settle(journal, 0, "diverged")
    with journal.locked():
        journal.append_all([("proposed", {"trial": n, "point": {"x": n}}) for n in (2, 3)])
    settle(journal, 2)
    for trial in (2, 3):
        history, together, when = journal.read_before(trial, range(2, 4))
        assert sorted(history.proposals) == sorted(history.settled) == [0, 1] and together == [2, 3] and when > 0
    alone, together, _ = journal.read_before(3, range(3, 4))  # as lanes propose
    assert sorted(alone.proposals) == [0, 1, 2] and together == [3]
    assert journal.read_before(1, range(2))[0].proposals == {} and journal.read_before(1, range(2))[1] == [0, 1]


def test_of_a_trial_that_was_not_proposed_all_of_the_journal_is_before(journal):
    settle(journal, 0)
    history, together, when = journal.read_before(7, range(7, 8))
    assert list(history.settled) == [0] and together == [] and when == 0.0


def test_a_trial_that_was_reopened_was_proposed_once(journal):
    with journal.locked():
        journal.append("proposed", trial=0, point={"x": 1})
        journal.append("proposed", trial=1, point={"x": 2})
        journal.append("reopened", trial=0)
        journal.append("proposed", trial=0, point={"x": 3})  # of a script that ran twice
    assert journal.read_before(0, range(1))[0].proposals == {}


def test_values_are_read_until_some_time(journal):
    lines = [{"event": "proposed", "time": float(n), "trial": n, "point": {"x": n}} for n in range(4)]
    journal.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert list(read_values(journal, 2.0).places) == [0, 1, 2] and len(read_values(journal).places) == 4
    with journal.path.open("a") as file:
        file.write("no line of a journal\n")
    with pytest.raises(RegiondagError, match=r":5: not a line of a journal"):
        read_values(journal, 2.0)


def test_what_was_expected_is_read_with_and_without_its_interval(journal):
    with journal.locked():
        journal.append("expected", trial=8, gain=0.002, stderr=0.004)  # of an earlier version
    history = journal.read()
    assert history.gains == {8: ExpectedGain(0.002, 0.004)} and history.left == ExpectedGain(0.002, 0.004)
    with journal.locked():
        journal.append("expected", trial=12, gain=0.001, low=0.0, high=0.003, stderr=0.004, later="ignored")
        journal.append("left", gain=0.0005, low=0.0, high=0.001, stderr=None, of=16)
    for history in (journal.read(), journal.read_outcomes()):
        assert history.gains[12] == ExpectedGain(0.001, 0.004, 0.0, 0.003) and sorted(history.gains) == [8, 12]
        assert history.left == ExpectedGain(0.0005, None, 0.0, 0.001, 16)
