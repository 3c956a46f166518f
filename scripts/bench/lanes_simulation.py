"""Slots that run a study's graph, as an event simulation: when each node runs, how busy the slots are. Pure."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from nnlib.contract import Metric, TrainSettings
from regiondag.generate.plan import RegionPlan
from regiondag.run.layout import NodeName
from regiondag.study.model import JobRequest, Region, Search

LONGEST = 4  # times as long as the shortest trial


@dataclass(frozen=True)
class Shape:
    """Regions with `lanes` trials at the same time and `steps` one after the other, on `slots`."""

    regions: int
    lanes: int
    steps: int
    slots: int
    shortest: float  # seconds of a trial; the longest takes `LONGEST` times as long

    @property
    def trials(self) -> int:
        """Trials over all regions."""
        return self.regions * self.lanes * self.steps

    def __str__(self) -> str:
        regions = "1 region" if self.regions == 1 else f"{self.regions} regions"
        length = f"{self.shortest:.0f} to {LONGEST * self.shortest:.0f} s"
        if self.shortest >= 60:
            length = f"{self.shortest / 60:.0f} to {LONGEST * self.shortest / 60:.0f} min"
        return f"{regions} x {self.lanes} lanes x {self.steps} trials of {length} on {self.slots} slots"


@dataclass(frozen=True)
class Delays:
    """What lies between two trials, in seconds."""

    manager: float  # from the end of the last parent to the child's job in the queue: POST, PRE, DAGMan, submission
    start: float  # from then, or from the moment a slot is free, to the job's start: negotiation or claim, transfer


@dataclass(frozen=True)
class Span:
    """When a node's job ran, in seconds."""

    begin: float
    end: float


@dataclass(frozen=True)
class Use:
    """What slots did between the first trial's start and the last one's end, as shares of all slots' time."""

    busy: float
    start: float  # before a slot's first job
    between: float  # between two jobs of a slot
    drain: float  # after a slot's last job
    seconds: float  # that all took

    @property
    def without_drain(self) -> float:
        """The busy share of what is left without the slots' time after their last jobs."""
        return self.busy / (1 - self.drain)


def plans(shape: Shape, schedule: str) -> list[RegionPlan]:
    """Return the graph of a study of this shape, as `generate` would write it."""
    search = Search("sobol", (), (shape.lanes,) * shape.steps, schedule=schedule)
    return [
        RegionPlan(Region(slug, slug, {}, Path(), Metric(), TrainSettings(), search, JobRequest()))
        for slug in (f"region-{number}" for number in range(shape.regions))
    ]


def durations(regions: Iterable[RegionPlan], shortest: float, seed: int) -> dict[NodeName, float]:
    """Draw how long each node takes, log-uniformly from `shortest` to `LONGEST` times that; by name and seed."""
    nodes = [node for region in regions for node in region.nodes()]
    return {node: shortest * LONGEST ** random.Random(f"{node} {seed}").random() for node in nodes}  # noqa: S311


def simulate(
    regions: Sequence[RegionPlan], seconds: Mapping[NodeName, float], slots: int, delays: Delays
) -> dict[NodeName, Span]:
    """Run every node as soon as its parents ended, its delay is over and a slot is free; who is ready first goes first.

    When all trials of a region are taken, its other nodes do nothing, as PRE skips them: they have no span. Raises
    ValueError if the graph has a cycle.
    """
    order = {node: number for number, node in enumerate(node for region in regions for node in region.nodes())}
    children: dict[NodeName, list[NodeName]] = {}
    waits = dict.fromkeys(order, 0)
    for before, after in (edge for region in regions for edge in region.edges()):
        for node in before:
            children.setdefault(node, []).extend(after)
        for node in after:
            waits[node] += len(before)
    ready = [(0.0, number, node) for node, number in order.items() if not waits[node]]
    free = [0.0] * slots
    ended: dict[NodeName, float] = {}
    spans: dict[NodeName, Span] = {}
    left = {region.region.slug: region.region.search.trials for region in regions}
    while ready:  # whatever is added later is not ready before the one that is taken now
        queued, _, node = heapq.heappop(ready)
        end = queued
        if node.number is None or left[node.slug]:
            left[node.slug] -= node.number is not None
            begin = max(queued, free[0]) + delays.start
            end = begin + seconds[node]
            spans[node] = Span(begin, end)
            heapq.heapreplace(free, end)
        for child in children.get(node, ()):
            waits[child] -= 1
            ended[child] = max(ended.get(child, 0.0), end)  # who is taken last need not end last
            if not waits[child]:
                heapq.heappush(ready, (ended[child] + delays.manager, order[child], child))
    if any(waits.values()):
        raise ValueError(f"{sum(map(bool, waits.values()))} of {len(order)} nodes wait for each other")
    return spans


def use_of(spans: Mapping[NodeName, Span], slots: int) -> Use:
    """Return what the slots did until the last trial's end; what final trainings did until then counts as well.

    A job is taken to have run on the slot that was free for the shortest time, so that a slot's last job is early.
    """
    first = min(span.begin for span in spans.values())
    last = max(span.end for node, span in spans.items() if node.number is not None)
    free = [first] * slots
    used: set[int] = set()
    idle = {"start": 0.0, "between": 0.0, "drain": 0.0}
    busy = 0.0
    for span in sorted(spans.values(), key=lambda span: span.begin):
        if span.begin >= last:
            continue
        slot = max((s for s in range(slots) if free[s] <= span.begin), key=free.__getitem__)
        idle["between" if slot in used else "start"] += span.begin - free[slot]
        busy += min(span.end, last) - span.begin
        free[slot] = min(span.end, last)
        used.add(slot)
    idle["drain"] = sum(last - moment for moment in free)
    whole = slots * (last - first)
    return Use(busy / whole, **{name: value / whole for name, value in idle.items()}, seconds=last - first)


def mean_use(uses: Sequence[Use]) -> Use:
    """Return the mean of each figure."""
    return Use(*(math.fsum(values) / len(uses) for values in zip(*map(astuple, uses), strict=True)))
