"""Every state that a call may find, and what it does next."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from regiondag.pipeline.next_step import NOT_SUBMITTED, OVER, Facts, Step, next_step

WORKING = ("idle", "running", "held")
FRESH = Facts(pool=True, run=False)
DONE = Facts(pool=True, run=True, dag="ended", served=True, news="")


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        (FRESH, Step.DATA),
        (replace(FRESH, pool=False), Step.DATA),  # a bad table is told before a pool is built
        (replace(FRESH, pool=False, news=""), Step.POOL),
        (replace(FRESH, news=""), Step.RUN),
        (Facts(True, True, NOT_SUBMITTED), Step.DATA),  # killed before it was submitted: is it still the study?
        (Facts(True, True, NOT_SUBMITTED, news=""), Step.DOCTOR),
        (Facts(True, True, NOT_SUBMITTED, news="", doctored=True), Step.SUBMIT),
        (Facts(True, True, NOT_SUBMITTED, news="new data", doctored=True), Step.RUN),
        *((Facts(True, True, dag), Step.WATCH) for dag in WORKING),
        *((Facts(False, True, dag), Step.POOL) for dag in WORKING),  # the manager was started anew
        *((Facts(True, True, dag, anew=True, news="new data"), Step.WATCH) for dag in WORKING),
        *((Facts(True, True, dag), Step.DATA) for dag in OVER),
        *((Facts(True, True, dag, news=""), Step.DOCTOR) for dag in OVER),  # some region has no champion: go on
        *((Facts(True, True, dag, news="", doctored=True), Step.SUBMIT) for dag in OVER),
        *((Facts(True, True, dag, news="new data"), Step.RUN) for dag in OVER),
        *((Facts(True, True, dag, watched=True), Step.REPORT) for dag in OVER),  # never twice in one call
        (DONE, Step.REPORT),
        (replace(DONE, pool=False), Step.REPORT),  # which needs none
        (replace(DONE, news="new data"), Step.RUN),
        (replace(DONE, news="new data", pool=False), Step.POOL),
        (replace(DONE, anew=True), Step.RUN),
        (replace(DONE, served=False), Step.DOCTOR),
    ],
)
def test_each_state_has_its_step(facts, step):
    assert next_step(facts) == step


def every_fact():
    flags = (False, True)
    dags = (NOT_SUBMITTED, *WORKING, *OVER)
    for pool, run, dag, served, news, anew, doctored, watched in product(
        flags, flags, dags, flags, (None, "", "new"), flags, flags, flags
    ):
        yield Facts(pool, run, dag, served, news, anew, doctored, watched)


def test_nothing_is_submitted_that_is_in_progress_or_was_not_found_good():
    for facts in every_fact():
        step = next_step(facts)
        if step == Step.SUBMIT:
            assert facts.run and facts.pool and facts.doctored and not facts.working and facts.news == ""
        if step == Step.RUN:
            assert not facts.working and facts.news is not None
        if step == Step.WATCH:
            assert facts.working and facts.pool


def after(facts: Facts, step: Step) -> Facts:
    """What a step that goes well changes."""
    return {
        Step.DATA: replace(facts, news=""),
        Step.POOL: replace(facts, pool=True),
        Step.RUN: replace(facts, run=True, dag=NOT_SUBMITTED, news="", anew=False, served=False),
        Step.DOCTOR: replace(facts, doctored=True),
        Step.SUBMIT: replace(facts, dag="running"),
        Step.WATCH: replace(facts, dag="ended", watched=True),
    }[step]


def test_from_every_state_steps_come_to_the_report_and_none_is_done_twice():
    for begin in every_fact():
        facts, done = begin, []
        while (step := next_step(facts)) != Step.REPORT:
            assert step not in done, (begin, done, step)
            done.append(step)
            facts = after(facts, step)
