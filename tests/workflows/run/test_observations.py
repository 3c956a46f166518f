"""What an optimizer learns of trials."""

from __future__ import annotations

import pytest

from nnlib.contract import Metric
from regiondag.run.history import History, Proposal, TrialOutcome
from regiondag.run.observations import observe_trial, observe_trials
from regiondag.tuning.sharing import Observation

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
