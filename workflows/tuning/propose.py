"""The next points of a search, whatever its method: where it stands, what was tried already, small spaces' ends."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from regiondag.study.model import Search
from regiondag.study.space import Point, Value, seed_of
from regiondag.tuning.domain import Domain, UnitSequence, domain_of, identity_of
from regiondag.tuning.methods import METHODS, Method, Question
from regiondag.tuning.noise import Gain
from regiondag.tuning.proposed import Proposed, Source
from regiondag.tuning.sharing import Neighbour, Observation, Shared, index_in_sequence, is_from_block
from regiondag.util.one_thread import on_one_thread

if TYPE_CHECKING:  # NumPy is imported when a model is really asked
    from regiondag.tuning.gp.ask import Foreseen
    from regiondag.tuning.gp.dependence import Dependence

INITIAL_SHARE = 0.25  # of all trials are spread over the space before the first model is fitted,
INITIAL_MOST = 8  # but not more than these
WARM_EVERY = 4  # with `share: warm` one trial in so many is a neighbour's best
SEQUENCE_TRIES = 64  # points of the sequence that may be illegal or taken before chance helps out


def propose(
    search: Search,
    history: Sequence[Observation],
    pending: Sequence[Point],
    n: int,
    seed: int,
    shared: Shared | None = None,
) -> list[dict[str, Value]]:
    """Return the next `n` points to try, fewer only when the space has no others left.

    `history` holds what is settled and `pending` what was proposed and is not: together all points proposed so far.
    `shared` is what the region knows of others; it says nothing where `search.share` is off. All regions of a study
    then have one `seed`, and each its own block.
    """
    return [dict(one.point) for one in propose_with_reasons(search, history, pending, n, seed, shared)]


def propose_with_reasons(
    search: Search,
    history: Sequence[Observation],
    pending: Sequence[Point],
    n: int,
    seed: int,
    shared: Shared | None = None,
) -> list[Proposed]:
    """Return what `propose` does, each point with where it came from."""
    task = _Task(search, domain_of(search), _finite(history), tuple(pending), seed, _usable(search, shared))
    if search.method == "grid":
        taken = task.taken()
        left = itertools.islice((p for p in task.domain.grid() if identity_of(p) not in taken), n)
        return [Proposed(point, Source.GRID, "the next point of the grid") for point in left]
    return task.next(n)


def foresee(
    search: Search,
    history: Sequence[Observation],
    pending: Sequence[Point],
    point: Point,
    came: float | None,
    seed: int,
    shared: Shared | None = None,
) -> Foreseen | None:
    """Return what the model that `propose` asks, with these arguments, expected of a point whose loss `came`.

    None where it asks no Gaussian process, or one that knows nothing of the loss yet.
    """
    task = _Task(search, domain_of(search), _finite(history), tuple(pending), seed, _usable(search, shared))
    if search.method != "bayes" or task.succeeded < 2:
        return None
    from regiondag.tuning.gp.ask import foresee_loss

    with on_one_thread():  # the same bits as those that were asked
        return foresee_loss(task.domain, task.history, point, came, task.seed_of_model, task.neighbours)


def expect_gain(search: Search, history: Sequence[Observation], points: Sequence[Point], seed: int) -> Gain | None:
    """Return how much loss the best of the next `points` is expected to gain; None where no model says so."""
    if search.method != "bayes" or sum(o.loss is not None for o in history) < count_initial_trials(search):
        return None
    from regiondag.tuning.gp.ask import expect_improvement

    with on_one_thread():  # the same bits whatever the number of threads
        return expect_improvement(domain_of(search), _finite(history), points, seed)


def depend(search: Search, history: Sequence[Observation], seed: int) -> list[Dependence]:
    """Return how the loss depends on each hyperparameter, by a model of trials of any method; the strongest first."""
    from regiondag.tuning.gp.dependence import depend_on_each

    with on_one_thread():
        return depend_on_each(domain_of(search), _finite(history), seed)


def rank_trials(search: Search, history: Sequence[Observation], seed: int, shared: Shared | None = None) -> list[int]:
    """Return the successful trials of `history` as numbers, that with the best point first, the earliest of equals.

    By the losses that were observed, or by what a model takes them to be, as `search.winner` says: it has seen the
    points around them too, and what others found there, so it is not taken in by luck. `auto` asks it only where it
    has learned that chance decides much.
    """
    history = _finite(history)
    values = [math.inf if o.loss is None else o.loss for o in history]
    done = [number for number, o in enumerate(history) if o.loss is not None]
    if search.winner != "observed":
        from regiondag.tuning.gp import ask

        usable = _usable(search, shared)
        predict = ask.predict_losses if search.winner == "model" else ask.predict_noisy_losses
        with on_one_thread():
            found = predict(domain_of(search), history, seed, usable.neighbours if usable else ())
        values = values if found is None else [float(value) for value in found]
    return sorted(done, key=values.__getitem__)


def count_initial_trials(search: Search) -> int:
    """Return how many trials are spread over the space before a model takes over."""
    return min(max(math.ceil(INITIAL_SHARE * search.trials), 2), INITIAL_MOST)


def _usable(search: Search, shared: Shared | None) -> Shared | None:
    """Return what a region may know of others; nothing where it shares nothing."""
    if shared is None or search.share == "off":
        return None
    return replace(shared, neighbours=tuple(replace(n, history=_finite(n.history)) for n in shared.neighbours))


def _finite(history: Sequence[Observation]) -> list[Observation]:
    return [o if o.loss is None or math.isfinite(o.loss) else replace(o, loss=None) for o in history]


@dataclass(frozen=True, slots=True)
class _Task:
    """What is known when points are asked for."""

    search: Search
    domain: Domain
    history: Sequence[Observation]
    pending: tuple[Point, ...]
    seed: int
    shared: Shared | None

    @property
    def method(self) -> Method:
        """Where points come from."""
        return METHODS[self.search.method]

    @property
    def first(self) -> int:
        """Number of the next trial, from 0."""
        return len(self.history) + len(self.pending)

    @property
    def succeeded(self) -> int:
        """Number of the region's own successes."""
        return sum(observation.loss is not None for observation in self.history)

    @property
    def models_others(self) -> bool:
        """Whether the model of this region is also one of others."""
        return self.search.share == "model" and self.shared is not None and bool(self.shared.neighbours)

    def taken(self) -> set[str]:
        """Return the identities of all points so far."""
        return {identity_of(point) for point in [*(o.point for o in self.history), *self.pending]}

    @property
    def seed_of_model(self) -> int:
        """What chance in the model begins with."""
        return seed_of(self.seed, self._index(self.first), "ask")

    @property
    def neighbours(self) -> tuple[Neighbour, ...]:
        """Those that the model is told of, too."""
        return self.shared.neighbours if self.shared and self.models_others else ()

    def next(self, n: int) -> list[Proposed]:
        """Return the next `n` points: first those that are spread, then those that are asked for, then chance's."""
        taken = self.taken()
        numbers = range(self.first, self.first + n)
        spread = {number: sequence for number in numbers if (sequence := self._sequence_of(number)) is not None}
        points: list[Proposed] = []
        for number, sequence in spread.items():
            found = self._spread_point(sequence, number, taken)
            if found is None:  # looking for more would take as long again for each
                return points
            _take(points, taken, found)
        for one in self._neighbours_best([number for number in numbers if number not in spread], taken):
            _take(points, taken, one)
        if len(points) < n:
            for one in self._ask([*self.pending, *(one.point for one in points)], n - len(points)):
                if identity_of(one.point) not in taken and self.domain.holds(one.point):
                    _take(points, taken, one)
        alone = "the method has no model" if self.method.ask is None else "the model had nothing to propose"
        for number in numbers[len(points) :]:
            drawn = self.domain.random(seed_of(self.seed, self._index(number)), taken)
            if drawn is None:
                break
            _take(points, taken, Proposed(drawn, Source.CHANCE, f"a random point: {alone}"))
        return points

    def _sequence_of(self, number: int) -> UnitSequence | None:
        """Return the sequence that trial `number` is a point of; None where it comes from elsewhere."""
        return self.method.sequence if self.method.ask is None or self._is_before_the_model(number) else None

    def _is_before_the_model(self, number: int) -> bool:
        if self.shared is not None:
            nothing_yet = self.succeeded < 2 and not any(n.history for n in self.shared.neighbours)
            return nothing_yet or is_from_block(number, self.search.sizes[0], self.shared)
        return self.succeeded < 2 or number < count_initial_trials(self.search)

    def _index(self, number: int) -> int:
        """Return where in the sequence the point of trial `number` stands."""
        if self.shared is None:
            return number
        return index_in_sequence(number, self.search.sizes[0], self.shared.block)

    def _spread_point(self, sequence: UnitSequence, number: int, taken: set[str]) -> Proposed | None:
        """Return the sequence's point of trial `number`; others stand in for those that are illegal or taken."""
        index = self._index(number)
        name = f"the {sequence.__name__.removesuffix('_point').title()} sequence"
        for attempt, point in enumerate(_candidates(self.domain, sequence, index, self.seed)):
            if self.domain.holds(point) and identity_of(point) not in taken:
                own = f"point {index + 1:,} of {name}"
                instead = f"a point of {name} in the place of one that is illegal or was tried"
                return Proposed(point, Source.SEQUENCE, instead if attempt else own)
        found = self.domain.random(seed_of(self.seed, index, "spread"), taken)
        how = f"a random point: those of {name} are illegal or were tried"
        return None if found is None else Proposed(found, Source.CHANCE, how)

    def _neighbours_best(self, numbers: Sequence[int], taken: set[str]) -> list[Proposed]:
        """Return what fills the slots of neighbours among `numbers`: the best points of the most similar ones."""
        slots = sum(number % WARM_EVERY == 0 for number in numbers)
        if self.search.share != "warm" or self.shared is None or not self.shared.neighbours or not slots:
            return []
        from regiondag.tuning.gp.training_set import compare

        with on_one_thread():
            compared = compare(self.domain, self.history, self.shared.neighbours)
        best: dict[str, Proposed] = {}
        for neighbour, _, _ in compared.neighbours:
            point = dict(neighbour.best)
            how = f"the best point of {neighbour.name}, by its trials the most similar one that had not been tried here"
            best.setdefault(identity_of(point), Proposed(point, Source.NEIGHBOUR, how))
        return [one for identity, one in best.items() if identity not in taken][:slots]

    def _ask(self, pending: Sequence[Point], n: int) -> list[Proposed]:
        """Return what the method's model proposes; nothing without a model, or before it has anything to go by."""
        learns_alone = self.models_others and "model" in self.method.sharing
        if self.method.ask is None or (self.succeeded < 2 and not learns_alone):
            return []
        per_second = self.search.acquisition == "improvement_per_second"
        question = Question(self.domain, self.history, pending, n, self.seed_of_model, per_second, self.neighbours)
        return self.method.ask(question)


def _candidates(domain: Domain, sequence: UnitSequence, index: int, seed: int) -> Iterator[dict[str, Value]]:
    yield domain.in_sequence(sequence, index, seed)
    for attempt in range(1, SEQUENCE_TRIES):  # from far beyond, so that no later trial's own point is used up
        yield domain.in_sequence(sequence, (1 << 20) + index * SEQUENCE_TRIES + attempt, seed)


def _take(points: list[Proposed], taken: set[str], one: Proposed) -> None:
    points.append(one)
    taken.add(identity_of(one.point))
