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
        yield from self.blend()
        yield self.final

    def blend(self) -> tuple[NodeName, ...]:
        """Return the trial that blends what the others found, if there is to be one."""
        number = self.region.search.blend
        return () if number is None else (NodeName(self.region.slug, number),)

    def first(self) -> Iterator[NodeName]:
        """Yield the nodes that wait for no other one of the region."""
        first = self.region.search.sizes[:1]
        return (NodeName(self.region.slug, number) for number in range(*first)) if first else iter((self.final,))

    def edges(self) -> Iterator[tuple[tuple[NodeName, ...], tuple[NodeName, ...]]]:
        """Yield (parents, children): every child waits for every parent."""
        blend = self.blend()
        if self.region.search.schedule == "lanes" and self.region.search.sizes:
            yield from self._lanes(blend or (self.final,))
            yield from itertools.pairwise([blend, (self.final,)] if blend else [])
        else:
            yield from itertools.pairwise([*self.rounds(), *([blend] if blend else []), (self.final,)])

    def _lanes(self, after: tuple[NodeName, ...]) -> Iterator[tuple[tuple[NodeName, ...], tuple[NodeName, ...]]]:
        search, slug = self.region.search, self.region.slug
        lanes = search.sizes[0]
        for number in range(lanes, search.nodes):
            yield (NodeName(slug, number - lanes),), (NodeName(slug, number),)
        last = range(max(search.nodes - lanes, 0), search.nodes)
        yield tuple(NodeName(slug, number) for number in last), after


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
        """Yield (final training, first nodes of a region that start from its model, or that it serves)."""
        finals = {plan.region.slug: plan.final for plan in self.regions}
        for plan in self.regions:
            source = plan.region.init.source or plan.region.served_by
            if source:
                yield finals[source], plan.first()


def build_plan(config: Config) -> Plan:
    """Return the graph of `config`."""
    return Plan(config, tuple(RegionPlan(region) for region in config.regions))
