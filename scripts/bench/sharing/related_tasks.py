"""Related tasks as regions: data sets on which one learner was tried, and the same with half of them made strangers.

The tasks are YAHPO's (see `tuner.problems.yahpo`), of which those that the tuner's own benchmark has are left out. A
stranger has the space of the others and nothing else in common with them: what is good there is bad here, or lies at
the other end of every range.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.tuner.problem import Parameter, Point, Problem, Value
from scripts.bench.tuner.problems import yahpo

FAMILIES = ("rbv2_xgboost", "rbv2_rpart", "lcbench")
ALIKE, MIXED = KINDS = "alike", "mixed"
STRANGERS = " inverted", " reflected"  # how their names end
REGIONS = 8
PARTS = 2  # so many times eight tasks of a family; the defaults were decided by the first


def make_regions(family: str, kind: str, part: int) -> list[Problem]:
    """Return the regions of a study; in a mixed one every second is a stranger."""
    place = os.environ.get(yahpo.VARIABLE)
    if not place:
        raise NotMeasuredError(f"{yahpo.VARIABLE} is not set: it names a copy of the repository slds-lmu/yahpo_data")
    scenario = yahpo.SCENARIOS[family]
    every = yahpo.list_tasks(Path(place), family, scenario)
    left = sorted(set(every) - set(yahpo.spread(every, scenario.tasks)), key=int)
    tasks = yahpo.spread(left, REGIONS * PARTS)[part::PARTS]
    found = [yahpo.read_problem(f"{family}-{task}", Path(place) / family, scenario, task) for task in tasks]
    if kind == ALIKE:
        return found
    ways = (lambda problem: problem, invert, lambda problem: problem, reflect)
    return [ways[number % len(ways)](problem) for number, problem in enumerate(found)]


def is_stranger(name: str) -> bool:
    """Return whether a region of this name is a stranger."""
    return name.endswith(STRANGERS)


def invert(problem: Problem) -> Problem:
    """Return the problem in which what was worst is best."""
    return replace(problem, name=problem.name + STRANGERS[0], true=lambda point: -problem.true(point))


def reflect(problem: Problem) -> Problem:
    """Return the problem in which every range runs the other way, and options have changed places."""
    parents = {name for parameter in problem.space for name, _ in parameter.when}
    turned = {parameter.name: parameter for parameter in problem.space if parameter.name not in parents}

    def true(point: Point) -> float:
        return problem.true({name: _turn(turned[name], v) if name in turned else v for name, v in point.items()})

    return replace(problem, name=problem.name + STRANGERS[1], true=true)


def _turn(parameter: Parameter, value: Value) -> Value:
    if parameter.options:
        return parameter.options[(parameter.options.index(value) + 1) % len(parameter.options)]
    low, high, number = parameter.low, parameter.high, float(value)
    other = low * high / number if parameter.log else low + high - number
    return round(other) if parameter.whole else min(max(other, low), high)
