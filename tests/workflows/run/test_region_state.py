"""Where a region stands, and when its search has come to an end."""

from __future__ import annotations

import pytest

from nnlib.contract import Metric, Status, TrainSettings
from regiondag.errors import GiveUpError
from regiondag.run.history import CANCELLED, Fault, History, Proposal, TrialOutcome
from regiondag.run.region_spec import RegionSpec
from regiondag.run.region_state import (
    FINISHED,
    RegionOutcome,
    check_not_hopeless,
    seconds_spent,
    state_of,
    why_not_needed,
)
from regiondag.study.model import Init, Search

RANDOM = Init()


def spec(start: Init = RANDOM, sizes: tuple[int, ...] = (3,), **search) -> RegionSpec:
    return RegionSpec(
        *("study", "Malta", "malta", Metric(), TrainSettings()),
        Search("bayes", (), sizes, **search),
        *(("final",), {}),
        init=start,
    )


def history(*settled: TrialOutcome, **values) -> History:
    return History(settled={one.trial: one for one in settled}, **values)


def final(*outcome: object, **values: object) -> TrialOutcome:
    return TrialOutcome(None, *outcome, **values)  # type: ignore[arg-type]


NEIGHBOUR = Init("neighbour", "germany")
FAILED = [TrialOutcome(n, Status.DIVERGED, "NaN") for n in range(3)]


@pytest.mark.parametrize(
    ("known", "outcome", "reason"),
    [
        (History(final=final(Status.OK, promoted=True)), "promoted", ""),
        (History(final=final(Status.OK, "kept: worse")), "kept", "kept: worse"),
        (History(final=final(Status.MACHINE, "no GPU")), "failed", "no GPU"),
        (history(TrialOutcome(1, Status.BAD_INPUT, "no data")), "failed", "no data"),
        (history(TrialOutcome(1, Status.BAD_INPUT)), "failed", ""),
        (History(stopped={1: "a", 0: "region 'Malta': b"}), "failed", "b"),
        (history(*FAILED), "failed", "all 3 trials failed, 3 of them: diverged: NaN"),
        (
            history(*FAILED[:2]),
            "failed",
            "the first 2 trials failed, so it stops (give_up_after: 2); 2 times diverged: NaN",
        ),
        (History(), "unfinished", "none of its jobs has run; submit the DAG"),
        (
            history(FAILED[0], proposals={0: Proposal(0, {})}),
            "unfinished",
            "not all of its jobs have run; submit the DAG again to go on",
        ),
    ],
)
def test_what_has_become_of_a_region(known, outcome, reason):
    state = state_of(spec(give_up_after=2), known)
    assert (state.outcome, state.reason) == (outcome, reason)
    assert (state.outcome in FINISHED) == (outcome in ("promoted", "kept"))


def test_a_region_waits_for_the_champion_of_another_until_it_has_begun():
    state = state_of(spec(NEIGHBOUR), History())
    assert state.waits and state.outcome == RegionOutcome.UNFINISHED
    assert state.reason == "waits for the champion of the region 'germany', from which it starts"
    begun = state_of(spec(NEIGHBOUR), History(proposals={0: Proposal(0, {})}))
    assert not begun.waits and begun.reason.startswith("not all of its jobs")


def test_why_a_trial_will_not_come():
    known = History(proposals={n: Proposal(n, {}) for n in range(3)})
    state = state_of(spec(), known)
    assert why_not_needed(state, known, 1) == ""  # it was proposed: its job is to come
    assert why_not_needed(state, known, 3) == "the search of its region has all its trials"
    late = state_of(spec(), known, expired=True)
    assert why_not_needed(late, known, 1) == "the study's deadline has passed"


def test_a_region_whose_first_trials_all_fail_stops():
    failed = [TrialOutcome(n, "diverged", "NaN") for n in range(3)]
    assert state_of(spec(give_up_after=3), history(*failed)).hopeless == (
        "the first 3 trials failed, so it stops (give_up_after: 3); 3 times diverged: NaN"
    )
    with pytest.raises(GiveUpError, match="'Malta': the first 3 trials failed"):
        check_not_hopeless(spec(), state_of(spec(give_up_after=3), history(*failed)))
    for most in (4, 0):
        state = state_of(spec(give_up_after=most), history(*failed))
        assert state.hopeless == ""
        check_not_hopeless(spec(), state)


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
    assert bool(state_of(spec(give_up_after=3), history(*failed, other)).hopeless) is stops


def test_all_trained_seconds_count():
    known = history(
        TrialOutcome(0, "ok", value=1.0, seconds=10.0),
        TrialOutcome(1, "diverged", seconds=20.0),
        faults=[Fault(0, seconds=3.0), Fault(None, seconds=1000.0)],  # the last one is no trial's
        repeated_seconds=5.0,
    )
    assert seconds_spent(known) == 38.0
    for budget, over in ((0, False), (38, True), (39, False), (37, True)):
        assert bool(state_of(spec(budget=budget), known).complete) is over


@pytest.mark.parametrize(("proposed", "over"), [(2, False), (3, True), (4, True)])
def test_lanes_end_with_their_trials(proposed, over):
    known = History(proposals={n: Proposal(n, {}) for n in range(proposed)})
    assert bool(state_of(spec(sizes=(2, 1)), known).complete) is over


def test_a_budget_of_a_second_is_one():
    known = history(TrialOutcome(0, "ok", value=0.5, seconds=1.0))
    assert state_of(spec(budget=1), known).complete == "the budget of its region's search is spent"
    assert not state_of(spec(budget=0), known).complete


def test_three_reasons_are_enough_to_stop():
    reasons = "aaaabbbccd"
    known = history(*(TrialOutcome(n, "removed", reason=reason) for n, reason in enumerate(reasons)))
    assert state_of(spec(give_up_after=10), known).hopeless.endswith(
        "; 4 times removed: a; 3 times removed: b; 2 times removed: c"
    )
