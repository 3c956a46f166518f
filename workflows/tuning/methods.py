"""The search methods by name: where the points of each come from.

NumPy and scikit-optimize are imported when a model is really asked: most PRE scripts need none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regiondag.study.space import Point
from regiondag.tuning.domain import Domain, UnitSequence
from regiondag.tuning.proposed import Proposed, Source
from regiondag.tuning.sharing import SHARING, Neighbour, Observation
from regiondag.tuning.sobol import sobol_point
from regiondag.util.one_thread import on_one_thread


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is told, and how many points it is asked for."""

    domain: Domain
    history: Sequence[Observation]
    pending: Sequence[Point]
    n: int
    seed: int
    per_second: bool  # whether cheap trials are preferred
    neighbours: Sequence[Neighbour]


@dataclass(frozen=True, slots=True)
class Method:
    """How points are found: along a sequence, then by a model; without the two by chance."""

    sequence: UnitSequence | None = None
    ask: Callable[[Question], list[Proposed]] | None = None  # None: no trial depends on another one's outcome
    sharing: tuple[str, ...] = SHARING[:1]  # what `share` may be


def _ask_skopt(asked: Question) -> list[Proposed]:
    from regiondag.tuning import skopt_method

    points = skopt_method.ask(asked.domain, asked.history, asked.pending, asked.n, asked.seed)
    return [Proposed(point, Source.MODEL, "what scikit-optimize proposes by its defaults") for point in points]


def _ask_gaussian_process(asked: Question) -> list[Proposed]:
    from regiondag.tuning.gp import ask

    # One thread: the sums are the same on any number of cores, and PRE scripts of many regions run side by side.
    with on_one_thread():
        return ask.ask_with_reasons(
            asked.domain, asked.history, asked.pending, asked.n, asked.seed, asked.per_second, asked.neighbours
        )


METHODS = {  # in the order in which messages list them
    "grid": Method(),  # all points of the grid, see `propose`
    "random": Method(),
    "sobol": Method(sobol_point),
    "skopt": Method(sobol_point, _ask_skopt, SHARING[:2]),
    "bayes": Method(sobol_point, _ask_gaussian_process, SHARING),
}

AUTO, BEST = "auto", "bayes"  # the best by scripts/bench/tuner, whatever the space: see docs/concepts/tuner.md


def resolve_method(name: str) -> str:
    """Return the method that a study's `search.method` means.

    >>> resolve_method("auto"), resolve_method("grid")
    ('bayes', 'grid')
    """
    return BEST if name == AUTO else name
