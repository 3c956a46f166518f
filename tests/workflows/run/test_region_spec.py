"""What PRE and POST know of a region, and when its search has come to an end."""

from __future__ import annotations

import json

import pytest

from nnlib.contract import Metric, TrainSettings
from regiondag.errors import GiveUpError, RegiondagError
from regiondag.run.history import CANCELLED, Fault, History, Proposal, TrialOutcome
from regiondag.run.region_spec import RegionSpec, read_spec, spec_to_json
from regiondag.run.region_state import check_not_hopeless, search_is_over, seconds_spent, why_hopeless
from regiondag.study.model import Init, JobRequest, Search
from regiondag.study.space import Choice, Integer

SEARCH = Search("bayes", (Choice("c", (1, "x")), Integer("n", 1, 5, when=(("c", (1,)),))), (2, 1), ("n < 4",))


def spec(**search) -> RegionSpec:
    return RegionSpec(
        *("study", "Malta", "malta", Metric(), TrainSettings()), Search("bayes", (), (3,), **search), ("final",), {}
    )


def history(*settled: TrialOutcome, **values) -> History:
    return History(settled={one.trial: one for one in settled}, **values)


def test_what_is_written_is_read(tmp_path):
    whole = RegionSpec(
        *("study", "Malta é", "malta", Metric("loss", minimize=True), TrainSettings(epochs=3), SEARCH),
        *(("train", "valid"), {"data.train.nc": "a" * 64}, 4, ({"c": 1, "n": 2},), Init("neighbour", "germany")),
        *(("n",), JobRequest(gpus=2), 3600),
    )
    path = tmp_path / "region.json"
    path.write_text(spec_to_json(whole), encoding="utf-8")
    assert read_spec(path) == whole


def test_what_an_older_version_left_out_has_its_default(tmp_path):
    path = tmp_path / "region.json"
    raw = json.loads(spec_to_json(spec()))
    for name in ("position", "first", "start", "shape", "job", "deadline"):
        del raw[name]
    path.write_text(json.dumps(raw))
    assert read_spec(path) == spec()
    assert (read_spec(path).position, read_spec(path).deadline) == (0, 0)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"study": 1}'])
def test_what_is_no_region(tmp_path, text):
    path = tmp_path / "region.json"
    path.write_text(text)
    words = {"{}": "it lacks 'study'", '{"study": 1}': "it lacks 'name'"}.get(text, "it is damaged")
    with pytest.raises(RegiondagError, match=rf"region\.json: cannot be read as a region of this version: {words}"):
        read_spec(path)


def test_a_region_whose_first_trials_all_fail_stops():
    failed = [TrialOutcome(n, "diverged", "NaN") for n in range(3)]
    assert why_hopeless(history(*failed), spec(give_up_after=3)) == (
        "the first 3 trials failed, so it stops (give_up_after: 3); 3 times diverged: NaN"
    )
    assert (
        why_hopeless(history(*failed), spec(give_up_after=4))
        == why_hopeless(history(*failed), spec(give_up_after=0))
        == ""
    )
    with pytest.raises(GiveUpError, match="'Malta': the first 3 trials failed"):
        check_not_hopeless(history(*failed), spec(give_up_after=3))
    check_not_hopeless(history(*failed), spec(give_up_after=4))


@pytest.mark.parametrize(
    ("other", "stops"),
    [
        (TrialOutcome(2, "ok", value=0.5), False),
        (TrialOutcome(2, "pruned", value=0.0), False),
        (TrialOutcome(2, "machine"), False),  # two failures are too few
        (TrialOutcome(2, "removed", CANCELLED), False),  # somebody did not want it
        (TrialOutcome(2, "removed", "past its deadline"), True),
    ],
)
def test_what_counts_as_a_failure(other, stops):
    failed = [TrialOutcome(n, "diverged", "NaN") for n in range(2)]
    assert bool(why_hopeless(history(*failed, other), spec(give_up_after=3))) is stops


def test_all_trained_seconds_count():
    known = history(
        TrialOutcome(0, "ok", value=1.0, seconds=10.0),
        TrialOutcome(1, "diverged", seconds=20.0),
        faults=[Fault(0, seconds=3.0), Fault(None, seconds=1000.0)],  # the last one is no trial's
        repeated_seconds=5.0,
    )
    assert seconds_spent(known) == 38.0
    for budget, over in ((0, False), (38, True), (39, False), (37, True)):
        assert search_is_over(Search("bayes", (), (3,), budget=budget), known) is over


@pytest.mark.parametrize(("proposed", "over"), [(2, False), (3, True), (4, True)])
def test_lanes_end_with_their_trials(proposed, over):
    known = History(proposals={n: Proposal(n, {}) for n in range(proposed)})
    assert search_is_over(Search("bayes", (), (2, 1)), known) is over


def test_a_budget_of_a_second_is_one():
    known = history(TrialOutcome(0, "ok", value=0.5, seconds=1.0))
    assert search_is_over(Search("bayes", (), (3,), budget=1), known)
    assert not search_is_over(Search("bayes", (), (3,), budget=0), known)


def test_three_reasons_are_enough_to_stop():
    reasons = "aaaabbbccd"
    known = history(*(TrialOutcome(n, "removed", reason=reason) for n, reason in enumerate(reasons)))
    assert why_hopeless(known, spec(give_up_after=10)).endswith(
        "; 4 times removed: a; 3 times removed: b; 2 times removed: c"
    )
