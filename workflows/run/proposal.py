"""What the tuner is asked when trials are proposed: by PRE then, and by who wants to know why later. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regiondag.run.history import History
from regiondag.run.observations import observe_trials
from regiondag.run.region_spec import RegionSpec
from regiondag.study.families import BLEND, FAMILY, INCUMBENT
from regiondag.study.model import Search
from regiondag.study.space import Choice, Point, seed_of
from regiondag.tuning.sharing import Observation, Shared


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """What is known when trials are proposed, and how many points are asked for after those that are given."""

    numbers: range  # of the trials
    given: tuple[Point, ...]  # points of the first of them
    search: Search
    told: Mapping[int, Observation]  # what is known of trials, by trial
    pending: tuple[Point, ...]  # points of which nothing is known yet
    seed: int
    shared: Shared | None

    @property
    def asked(self) -> int:
        """Number of points that are asked for."""
        return len(self.numbers) - len(self.given)


def batch_of(spec: RegionSpec, history: History, number: int) -> tuple[range, list[int]]:
    """Return the trials that are proposed together with one, and those that were proposed before them.

    In lanes each trial is proposed alone, in rounds the first node proposes for the whole round.
    """
    if spec.search.schedule == "lanes":
        return range(number, number + 1), sorted(history.proposals)
    together = spec.search.trials_of_round(number)
    return together, [n for n in sorted(history.proposals) if n < together.start]


def make_request(
    spec: RegionSpec, history: History, numbers: range, before: Sequence[int], shared: Shared | None
) -> ProposalRequest:
    """Return what is asked for the trials `numbers`, after those `before` them."""
    choices = (one.options for one in spec.search.space if one.name == FAMILY and isinstance(one, Choice))
    strange = {BLEND, INCUMBENT}.difference(*choices)  # what the tuner does not propose, and learns nothing from
    before = [trial for trial in before if history.proposals[trial].point.get(FAMILY) not in strange]
    told = observe_trials(history, spec.metric, before)
    given = spec.first[numbers.start : numbers.stop]
    pending = [history.proposals[trial].point for trial in before if trial not in told]
    return ProposalRequest(
        numbers=numbers,
        given=given,
        search=spec.search,
        told=told,
        pending=(*pending, *(point for point in given if point.get(FAMILY) not in strange)),
        seed=seed_of(spec.train.seed, spec.slug if shared is None else spec.study),
        shared=shared,
    )
