"""Ours: `propose` of a checkout, told the whole history each time, as PRE does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real
from regiondag.tuning.propose import propose
from regiondag.tuning.sharing import Neighbour, Observation, Shared
from scripts.bench.tuner.problem import Parameter, Value
from scripts.bench.tuner.tuners.face import BATCH, Task

__all__ = ["Neighbour", "Observation", "Ours", "Shared", "propose", "search"]  # all that others need of the product

METHOD = "bayes"


class Ours:
    """The default method: in rounds all that was asked for is settled, in lanes the others still run."""

    def __init__(self, task: Task, method: str = METHOD) -> None:
        self._search = search(
            task.space,
            task.trials // BATCH,
            BATCH,
            method=method,
            schedule=task.mode,
            constraints=task.constraints,
        )
        self._seed = task.seed
        self._asked: list[dict[str, Value]] = []
        self._values: dict[int, float | None] = {}

    def ask(self, n: int) -> list[dict[str, Value]]:
        history = [Observation(self._asked[number], value) for number, value in sorted(self._values.items())]
        pending = [point for number, point in enumerate(self._asked) if number not in self._values]
        asked = propose(self._search, history, pending, n, self._seed)
        if len(asked) < n:
            raise RuntimeError(f"the space has only {len(self._asked) + len(asked)} points")
        self._asked += asked
        return asked

    def tell(self, values: Mapping[int, float | None]) -> None:
        self._values.update(values)


def search(
    space: Sequence[Parameter],
    rounds: int,
    batch: int,
    *,
    method: str = METHOD,
    schedule: str = "rounds",
    share: str = "off",
    constraints: tuple[str, ...] = (),
) -> Search:
    """Return the search of a study over a space."""
    rounds_of = (batch,) * rounds
    parameters = tuple(map(_parameter, space))
    return Search(method, parameters, rounds_of, constraints=constraints, schedule=schedule, share=share)


def _parameter(parameter: Parameter) -> Choice | Integer | Real:
    when = parameter.when
    if parameter.options:
        # A checkout from before scales of options takes them for categories.
        knows_scales = any(field.name == "ordered" for field in fields(Choice))
        more = {"ordered": True} if parameter.ordered and knows_scales else {}
        return Choice(parameter.name, parameter.options, when=when, **more)
    if parameter.whole:
        return Integer(parameter.name, int(parameter.low), int(parameter.high), log=parameter.log, when=when)
    return Real(parameter.name, parameter.low, parameter.high, log=parameter.log, when=when)


make = Ours
