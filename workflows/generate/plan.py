"""The graph as data: which nodes there are and what waits for what. No DAGMan syntax here."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from regiondag.run.layout import NodeName
from regiondag.study.model import Config, Region


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """One region's part of the graph: rounds or lanes of trials, then the final training.

    Nodes are made on the fly, because a study may have a million of them.
    """

    region: Region

    @property
    def final(self) -> NodeName:
        """The node that trains the winner."""
        return NodeName(self.region.slug, None)

    def rounds(self) -> Iterator[tuple[NodeName, ...]]:
        """Yield the trial nodes of each round; all of one round end before the next one starts."""
        first = 0
        for size in self.region.search.sizes:
            yield tuple(NodeName(self.region.slug, number) for number in range(first, first + size))
            first += size

    def nodes(self) -> Iterator[NodeName]:
        """Yield all nodes of the region, the final one last."""
        for number in range(self.region.search.nodes):
            yield NodeName(self.region.slug, number)
        yield self.final

    def first(self) -> Iterator[NodeName]:
        """Yield the trials that wait for no other trial of the region."""
        return (NodeName(self.region.slug, number) for number in range(self.region.search.sizes[0]))

    def edges(self) -> Iterator[tuple[tuple[NodeName, ...], tuple[NodeName, ...]]]:
        """Yield (parents, children): every child waits for every parent."""
        if self.region.search.schedule == "lanes":
            yield from self._lanes()
        else:
            yield from itertools.pairwise([*self.rounds(), (self.final,)])

    def _lanes(self) -> Iterator[tuple[tuple[NodeName, ...], tuple[NodeName, ...]]]:
        search, slug = self.region.search, self.region.slug
        lanes = search.sizes[0]
        for number in range(lanes, search.nodes):
            yield (NodeName(slug, number - lanes),), (NodeName(slug, number),)
        last = range(max(search.nodes - lanes, 0), search.nodes)
        yield tuple(NodeName(slug, number) for number in last), (self.final,)


@dataclass(frozen=True, slots=True)
class Plan:
    """The graph of a study: one part per region, independent but for models that others start from."""

    config: Config
    regions: tuple[RegionPlan, ...]

    @property
    def trials(self) -> int:
        """Number of trials over all regions."""
        return sum(region.region.search.trials for region in self.regions)

    def starts(self) -> Iterator[tuple[NodeName, Iterator[NodeName]]]:
        """Yield (final training, first trials of a region that start from its model)."""
        finals = {plan.region.slug: plan.final for plan in self.regions}
        for plan in self.regions:
            if plan.region.init.source:
                yield finals[plan.region.init.source], plan.first()


def build_plan(config: Config) -> Plan:
    """Return the graph of `config`."""
    return Plan(config, tuple(RegionPlan(region) for region in config.regions))
