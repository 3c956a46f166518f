"""What PRE tells a region's optimizer of others: journals beside its own, and what earlier runs left in its folder.

Journals of other regions are read without their locks: a line that is being written counts as not there yet. Of each
of them only those trials are taken that a model is told of.
"""

from __future__ import annotations

from collections.abc import Iterator

from regiondag.errors import RegiondagError
from regiondag.node.journal_index import read_indexed
from regiondag.run.earlier_trials import read_earlier
from regiondag.run.journal import Journal
from regiondag.run.layout import RegionFolder
from regiondag.run.observations import observe_best_and_first
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.values import read_values
from regiondag.study.space import seed_of
from regiondag.tuning.domain import domain_of
from regiondag.tuning.sharing import EACH, Neighbour, Shared

MOST = 64  # neighbours whose journals are read; of more regions a sample, another one for each region


def read_shared(folder: RegionFolder, spec: RegionSpec, until: float | None = None) -> Shared | None:
    """Return what a region may learn from others, or might at some time; None when it shares nothing."""
    if spec.search.share == "off":
        return None
    found = [one for one in (*read_earlier(folder), *_siblings(folder, spec, until)) if one.history]
    return Shared(spec.position, tuple(found))


def _siblings(folder: RegionFolder, spec: RegionSpec, until: float | None) -> Iterator[Neighbour]:
    fits = domain_of(spec.search).has
    others = [path for path in sorted(folder.path.parent.iterdir()) if path.name != spec.slug and path.is_dir()]
    others = sorted(others, key=lambda path: seed_of(spec.slug, path.name))[:MOST]
    for other in map(RegionFolder, sorted(others)):
        if not other.journal.exists():
            continue
        try:
            sibling = read_spec(other.spec)
            if sibling.metric == spec.metric and sibling.search.share != "off":
                values = read_indexed(other) if until is None else read_values(Journal(other.journal), until)
                yield Neighbour(sibling.slug, observe_best_and_first(values, spec.metric, EACH, fits))
        except RegiondagError:
            continue  # its own scripts say what is wrong with it
