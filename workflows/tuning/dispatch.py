"""The methods by name, and what they share: where the search stands, what was tried already, small spaces' ends."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workflows.space import Point, Value, seed_of
from workflows.study import Search
from workflows.tuning.domain import Domain, domain_of, identity

INITIAL_SHARE = 0.25  # of all trials are spread over the space before the first model is fitted,
INITIAL_MOST = 8  # but not more than these
SOBOL_TRIES = 64  # points of the sequence that may be illegal or taken before chance helps out


@dataclass(frozen=True, slots=True)
class Observation:
    """One settled trial. `loss` is better when small and None when the trial failed; failures count as the worst."""

    point: Point
    loss: float | None
    seconds: float | None = None


def propose(
    search: Search, history: Sequence[Observation], pending: Sequence[Point], n: int, seed: int
) -> list[dict[str, Value]]:
    """Return the next `n` points to try, fewer only when the space has no others left.

    `history` holds what is settled and `pending` what was proposed and is not: together all points proposed so far.
    """
    history = [o if o.loss is None or math.isfinite(o.loss) else Observation(o.point, None, o.seconds) for o in history]
    domain = domain_of(search)
    taken = {identity(point) for point in [*(o.point for o in history), *pending]}
    first = len(history) + len(pending)
    succeeded = sum(observation.loss is not None for observation in history)
    if search.method == "grid":
        return list(itertools.islice((p for p in domain.grid() if identity(p) not in taken), n))
    points: list[dict[str, Value]] = []
    for index in range(first, first + _spread(search, first, succeeded, n)):
        _take(points, taken, _spread_point(domain, index, seed, taken))
    if search.method in ("bayes", "skopt") and succeeded >= 2 and len(points) < n:
        for point in _ask(search, domain, history, [*pending, *points], n - len(points), seed_of(seed, first, "ask")):
            if identity(point) not in taken and domain.holds(point):
                _take(points, taken, point)
    for index in range(first + len(points), first + n):
        _take(points, taken, domain.random(seed_of(seed, index), taken))
    return points


def _spread(search: Search, first: int, succeeded: int, n: int) -> int:
    """Return how many of the next `n` points come from the Sobol sequence."""
    if search.method == "random":
        return 0
    if search.method == "sobol" or succeeded < 2:
        return n
    return min(max(initial_trials(search) - first, 0), n)


def _ask(
    search: Search, domain: Domain, history: Sequence[Observation], pending: Sequence[Point], n: int, seed: int
) -> list[dict[str, Value]]:
    if search.method == "skopt":
        from workflows.tuning import skopt_method

        return skopt_method.ask(domain, history, pending, n, seed)
    from threadpoolctl import threadpool_limits  # NumPy and this: only where a model is really fitted

    from workflows.tuning import bayes

    # One thread: the sums are the same on any number of cores, and PRE scripts of many regions run side by side.
    with threadpool_limits(1):
        return bayes.ask(domain, history, pending, n, seed, search.acquisition == "improvement_per_second")


def initial_trials(search: Search) -> int:
    """Return how many trials are spread over the space before a model takes over."""
    return min(max(math.ceil(INITIAL_SHARE * search.trials), 2), INITIAL_MOST)


def _spread_point(domain: Domain, index: int, seed: int, taken: set[str]) -> dict[str, Value] | None:
    """Return the Sobol point of trial `index`; the next ones stand in for those that are illegal or taken."""
    for point in _candidates(domain, index, seed):
        if domain.holds(point) and identity(point) not in taken:
            return point
    return domain.random(seed_of(seed, index, "spread"), taken)


def _candidates(domain: Domain, index: int, seed: int) -> Iterator[dict[str, Value]]:
    yield domain.sobol(index, seed)
    for attempt in range(1, SOBOL_TRIES):  # from far beyond, so that no later trial's own point is used up
        yield domain.sobol((1 << 20) + index * SOBOL_TRIES + attempt, seed)


def _take(points: list[dict[str, Value]], taken: set[str], point: dict[str, Value] | None) -> None:
    if point is not None:
        points.append(point)
        taken.add(identity(point))
