"""Ours in tuner.py: `propose` of workflows, told the whole history each time, as PRE scripts do."""

from __future__ import annotations

from collections.abc import Sequence

from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real
from regiondag.tuning.propose import propose
from regiondag.tuning.sharing import Neighbour, Observation, Shared
from scripts.bench.tuner.peers import BATCH, BUDGETS
from scripts.bench.tuner.problem import Parameter, Point, Problem, Value

__all__ = ["Neighbour", "Observation", "Ours", "Shared", "propose", "search"]  # all that others need of workflows

METHOD = "bayes"


class Ours:
    """The default method, in rounds of one batch."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._search = search(problem.space, BUDGETS[-1] // BATCH, BATCH)
        self._seed = seed
        self._history: list[Observation] = []

    def ask(self, n: int) -> list[dict[str, Value]]:
        return propose(self._search, self._history, (), n, self._seed)

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        self._history += [Observation(point, value) for point, value in zip(points, values, strict=True)]


def search(space: Sequence[Parameter], rounds: int, batch: int, share: str = "off") -> Search:
    """Return the search of a study over a space."""
    return Search(METHOD, tuple(map(_parameter, space)), (batch,) * rounds, share=share)


def _parameter(parameter: Parameter) -> Choice | Integer | Real:
    if parameter.options:
        return Choice(parameter.name, parameter.options, parameter.when)
    if parameter.whole:
        return Integer(parameter.name, int(parameter.low), int(parameter.high), log=parameter.log, when=parameter.when)
    return Real(parameter.name, parameter.low, parameter.high, log=parameter.log, when=parameter.when)
