"""What an optimizer learns of trials."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import Metric
from regiondag.errors import RegiondagError
from regiondag.run.history import History, Proposal, TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.observations import observe_best_and_first, observe_trial, observe_trials
from regiondag.run.values import read_values
from regiondag.tuning.sharing import Observation, select_best_and_first

POINT = {"hidden": 128}


def history(**values) -> History:
    return History(proposals={0: Proposal(0, POINT)}, settled={0: TrialOutcome(0, **values)})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"status": "ok", "value": 0.3, "seconds": 9.0}, Observation(POINT, -0.3, 9.0)),
        ({"status": "pruned", "value": 0.2}, Observation(POINT, -0.2, None)),
        ({"status": "diverged", "value": 0.2, "seconds": 1.0}, Observation(POINT, None, 1.0)),
        ({"status": "removed"}, Observation(POINT, None, None)),
        ({"status": "ok"}, Observation(POINT, None, None)),
        ({"status": "machine", "value": 0.2}, None),
        ({"status": "bad_input"}, None),
    ],
)
def test_of_a_trial(values, expected):
    assert observe_trial(history(**values), 0, Metric()) == expected
    assert observe_trial(history(**values), 1, Metric()) is None


def test_a_loss_is_one_already():
    found = observe_trial(history(status="ok", value=0.3), 0, Metric("loss", minimize=True))
    assert found is not None and found.loss == 0.3


def test_only_the_trials_asked_for_that_are_known():
    known = history(status="ok", value=0.5)
    assert observe_trials(known, Metric(), [0, 1]) == {0: Observation(POINT, -0.5, None)}
    assert observe_trials(known, Metric(), [1]) == {}


STATUSES = ["ok", "ok", "ok", "pruned", "diverged", "machine", "removed", "bad_input"]
VALUES = st.none() | st.sampled_from([0, 1, 0.25, -0.5, 1e-7, 1e300]) | st.floats(allow_nan=False, allow_infinity=False)
TRIALS = st.integers(0, 9)
EVENTS = st.one_of(
    st.tuples(TRIALS, st.sampled_from(["a", 'b"}\n', "c"])).map(
        lambda one: ("proposed", {"trial": one[0], "point": {"x": one[0], "kind": one[1]}})
    ),
    st.tuples(TRIALS | st.none(), st.sampled_from(STATUSES), st.sampled_from(["", 'a "word"']), VALUES).map(
        lambda one: ("settled", asdict(TrialOutcome(*one, curve=(0.5,), seconds=2.0)))
    ),
    st.tuples(TRIALS, VALUES).map(lambda one: ("settled", {"trial": one[0], "status": "ok", "value": one[1]})),
    (TRIALS | st.none()).map(lambda trial: ("reopened", {"trial": trial})),
    TRIALS.map(lambda trial: ("cancelled", {"trial": trial})),
    TRIALS.map(lambda trial: ("stopped", {"trial": trial, "reason": "settled"})),
)


@given(
    events=st.lists(EVENTS, max_size=30), most=st.integers(2, 6), fitting=st.sampled_from(["abc", "a", ""]),
    minimize=st.booleans(),
)  # fmt: skip
def test_the_few_of_a_neighbour_are_those_of_all_that_its_journal_says(
    tmp_path_factory, events, most, fitting, minimize
):
    journal, metric = Journal(tmp_path_factory.mktemp("j") / "trials.jsonl"), Metric("loss", minimize)
    journal.append_all(events)

    def fits(point):
        return point["kind"][0] in fitting

    history = journal.read()
    told = [replace(o, seconds=None) for o in observe_trials(history, metric, sorted(history.proposals)).values()]
    expected = select_best_and_first([o for o in told if fits(o.point)], most) or told[:1]
    assert observe_best_and_first(read_values(journal), metric, most, fits) == expected


def test_what_a_newer_version_says_of_a_point_is_passed_over(tmp_path):
    journal = Journal(tmp_path / "trials.jsonl")
    journal.append("proposed", trial=0, point=POINT, why="new")
    journal.append("settled", trial=0, status="ok", reason="", value=0.5, more={"a": [1]})
    found = observe_best_and_first(read_values(journal), Metric(), 4, lambda point: True)
    assert found == [Observation(POINT, -0.5)]


@pytest.mark.parametrize(
    "line",
    [
        '{"event": "proposed", "time": 1.0, "trial": 0, "point": {"hidden": }}',
        '{"event": "proposed", "time": 1.0, "trial": 0, "point": 3}',
        '{"event": "proposed", "time": 1.0, "trial": 0, "point": ' + 20_000 * "[" + "}",
        '{"event": "proposed", "trial": 0, "pint": {}}',
        '{"event": "settled", "time": 1.0, "trial": 0, "status": "ok", "reason": "", "value": 1e999, "seconds": 1.0}',
        '{"event": "settled", "time": 1.0, "trial": 0, "status": "odd", "reason": "", "value": 1.0, "seconds": 1.0}',
        '{"event": "settled", "time": 1.0, "trial": 0, "status": "ok", "reason": "", "value": 1.0, "seco',
        "3",
    ],
    ids=["no JSON", "no point", "deep", "no point at all", "infinity", "no status", "half of it", "no record"],
)
def test_a_damaged_line_is_an_error_there_too(tmp_path, line):
    journal = Journal(tmp_path / "trials.jsonl")
    proposed = '{"event": "proposed", "time": 1.0, "trial": 0, "point": {"hidden": 128}}\n' * ("settled" in line)
    settled = (
        '{"event": "settled", "time": 1.0, "trial": 0, "status": "ok", "reason": "", "value": 1.0, "seconds": 1.0}\n'
    )
    journal.path.write_text(f"{proposed}{line}\n{settled}")
    with pytest.raises(RegiondagError, match="not a line of a journal"):
        observe_best_and_first(read_values(journal), Metric(), 4, lambda point: True)
