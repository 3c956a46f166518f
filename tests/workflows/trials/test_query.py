"""Trials chosen by number and by condition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.errors import UsageError
from regiondag.trials.query import Place, headings_with_places, parse_query, with_places
from regiondag.trials.rows import TrialRow


def row(trial=0, status="ok", value=0.5, **hyperparameters):
    return TrialRow("Germany", "germany", trial, status, "ndcg@5", False, value, hyperparameters, 2, 2, 3.0, "", {}, (),
                    None, False)  # fmt: skip


ROWS = [
    row(0, learning_rate=0.001, optimizer="adam"),
    row(1, learning_rate=0.1, optimizer="sgd", momentum=0.9),
    row(2, "diverged", None, learning_rate=0.005, optimizer="sgd", momentum=0.5),
    row(3, "running", None, learning_rate=0.002, optimizer="adam"),
]
PLACES = {("germany", 3): Place("held", "slot1@w1", 5)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("learning_rate < 0.01 and status == ok", [0]),
        ("learning_rate < 0.01", [0, 2, 3]),
        ("status != ok", [2, 3]),
        ("optimizer == adam", [0, 3]),
        ("optimizer in ('sgd', 'adam') and momentum > 0.6", [1]),
        ("not momentum > 0.6", [2]),  # nothing is said of trials without it
        ("value >= 0.5 or value < 0", [0, 1]),
        ("1 <= trial <= 2", [1, 2]),
        ("job == held and priority > 0 and host == 'slot1@w1'", [3]),
        ("won == false and trial == 0", [0]),
        ("won == true", []),
        ("value / (trial - 1) < 0", [0]),
    ],
)
def test_conditions(text, found):
    query = parse_query(text, ROWS)
    assert [r.trial for r in ROWS if query.matches(r, PLACES.get((r.slug, r.trial)))] == found


@pytest.mark.parametrize(
    "text",
    ["", "status", "status = ok", "rate < 1", "__import__('os').system('true') == 0", "status.__class__ == 1", "1 < 2",
     "x" * 600, "(" * 400, "[s for s in status] == 1", "lambda: 0"],
)  # fmt: skip
def test_what_is_not_a_condition_is_refused(text):
    with pytest.raises(UsageError, match="--where"):
        parse_query(text, ROWS)


def test_a_name_that_is_not_known_is_told_with_those_that_are():
    with pytest.raises(
        UsageError, match=r"'rate' is no name here; legal: .* learning_rate, optimizer, momentum, trial"
    ):
        parse_query("rate < 1", ROWS)


def test_a_comparison_that_makes_no_sense_is_no_empty_table():
    query = parse_query("learning_rate < adam", ROWS)
    with pytest.raises(UsageError, match="makes no sense for trial 0: it mixes numbers and texts; legal: numbers with"):
        query.matches(ROWS[0])


@given(st.text(max_size=60))
def test_no_text_does_more_than_to_be_refused(text):
    try:
        query = parse_query(text, ROWS)
        [query.matches(r) for r in ROWS]
    except UsageError:
        pass


def test_columns_of_the_queue():
    assert headings_with_places(["a", "b", "reason"]) == ["a", "b", "job", "machine", "priority", "reason"]
    assert headings_with_places(["trial", "reason"]) == ["trial", "job", "machine", "priority", "reason"]
    cells = with_places([ROWS[0], ROWS[3]], [["0", "r"], ["3", "s"]], PLACES)
    assert cells == [["0", "-", "-", "-", "r"], ["3", "held", "slot1@w1", "5", "s"]]
