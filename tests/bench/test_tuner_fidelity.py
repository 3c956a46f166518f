"""The simulated trainings that end, pause and go on at rungs, beside what was worked out by hand."""

from __future__ import annotations

import random
from itertools import count, pairwise

import pytest

from regiondag.tuning.pruning import FIRST_RUNG, make_rungs
from scripts.bench.tuner.fidelity.policies import EPOCHS, LANES, MOVED, PENDING, Job, Policy, Run, best_so_far


def steady(point):
    """A training that is as good after each epoch as its point says, and a little better after the next one."""
    return [point["height"] - epoch / 1000 for epoch in range(EPOCHS)]


def run_of(policy, heights, budget, start=0.0, curve_of=steady):
    waiting = iter(heights)
    run = Run(policy, curve_of, lambda _: {"height": next(waiting)})
    run.simulate(start, budget)
    return run


def test_the_rungs_are_those_of_the_product():
    chance = random.Random(1)
    curves = [best_so_far([chance.random() for _ in range(chance.randint(1, EPOCHS))]) for _ in range(40)]
    assert Policy("asha").rungs(curves) == make_rungs("asha", curves, EPOCHS, minimize=True)
    assert Policy("asha", first=FIRST_RUNG).rungs(curves) == Policy("asha").rungs(curves)
    assert [epoch for epoch, _ in Policy("asha", first=1).rungs(curves)] == [
        1,
        *(e for e, _ in Policy("asha").rungs(curves)),
    ]


def test_without_rungs_every_trial_is_trained_through_while_there_is_budget():
    run = run_of(Policy(), count(), 5 * EPOCHS)
    assert [(job.trial, job.begin, job.end) for job in run.jobs] == [(number, 0, EPOCHS) for number in range(5)]
    assert [job.spent for job in run_of(Policy(), count(), 150, start=2.0).jobs] == [0, 54, 108]


def test_trials_that_are_not_good_enough_by_then_end_at_the_first_rung():
    run = run_of(Policy("asha"), [3, 2, 1, 4, 9, 9, 5, 0], 6 * EPOCHS + 4)
    # What is known when a job begins counts: three are through when the seventh does.
    assert run.jobs[6:] == [Job(6, 0, 3, 6 * EPOCHS), Job(7, 0, EPOCHS, 6 * EPOCHS + 3)]
    assert set(run.through()) == {0, 1, 2, 3, 4, 5, 7}
    assert run.chosen(10**9) == steady({"height": 0})[-1]


def test_what_paused_goes_on_where_it_was_once_it_is_among_the_best():
    run = run_of(Policy("asha", at_every_rung=True, first=3, pauses=True), count(), 60)
    first = {job.trial: job for job in reversed(run.jobs)}
    assert all((job.begin, job.end) == (0, 3) for job in first.values())
    later = [job for job in run.jobs if job.begin]
    assert (later[0].trial, later[0].begin, later[0].end) == (0, 3, 9)
    assert all(before.end == after.begin for trial in first for before, after in pairs(run, trial))


def pairs(run, trial):
    jobs = [job for job in run.jobs if job.trial == trial]
    return list(pairwise(jobs))


def test_a_hybrid_goes_on_in_the_same_job_and_resumes_no_trial_that_runs():
    chance = random.Random(2)
    run = run_of(Policy("asha", pauses=True), iter(chance.random, 2.0), 40 * EPOCHS)
    resumed = [job for job in run.jobs if job.begin]
    assert resumed and any(job.end == EPOCHS for job in run.jobs if not job.begin)
    assert all(before.end == after.begin for job in resumed for before, after in pairs(run, job.trial))
    assert len({(job.trial, job.begin) for job in run.jobs}) == len(run.jobs)


def test_the_search_is_told_what_was_reached_or_moved_or_nothing():
    for told, expected in (("reached", 4.998), (MOVED, 4.998 - 0.049), (PENDING, None)):
        run = run_of(Policy("asha", told=told), [3, 2, 1, 4, 9, 9, 5], 6 * EPOCHS + 1)
        assert run.losses()[6] == (expected if expected is None else pytest.approx(expected))
        assert run.losses()[0] == pytest.approx(2.949)


def test_trials_that_run_are_not_told():
    seen = []

    def propose(run):
        seen.append(run.losses())
        return {"height": len(seen)}

    Run(Policy(), steady, propose).simulate(0.0, 5 * EPOCHS)
    assert seen[LANES - 1] == [None] * (LANES - 1) and seen[LANES][0] == pytest.approx(0.949)


def test_where_no_trial_is_through_the_furthest_one_is_chosen():
    run = run_of(Policy("asha", at_every_rung=True, first=3, pauses=True), [2, 1, 3, 4, 5, 6], 13)
    assert run.through() == [] and run.chosen(10**9) == steady({"height": 1})[-1]
