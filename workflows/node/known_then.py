"""What PRE knew when it proposed a trial, read back from the journals: a proposal is a pure function of it."""

from __future__ import annotations

from dataclasses import dataclass

from regiondag.node.init_model import start_from_model
from regiondag.node.shared_trials import read_shared
from regiondag.run.history import History
from regiondag.run.journal import Journal
from regiondag.run.layout import RegionFolder
from regiondag.run.proposal import ProposalRequest, batch_of, make_request
from regiondag.run.region_spec import RegionSpec, read_spec


@dataclass(frozen=True, slots=True)
class KnownThen:
    """A region as it was when a trial was proposed."""

    spec: RegionSpec
    history: History
    request: ProposalRequest | None  # what the tuner was asked; None of the trial that blends, of which it was not


def read_known_then(folder: RegionFolder, number: int) -> KnownThen | None:
    """Return what was known when a trial was proposed; None where it was not.

    Other regions are taken as their journals were at that time, which may be a moment after PRE read them.
    """
    spec, journal = read_spec(folder.spec), Journal(folder.journal)
    if folder.init_facts.exists():  # else nothing was proposed yet, or all start from chance
        spec = start_from_model(folder, spec)
    if number > spec.search.last:
        return None
    blend = number == spec.search.blend
    numbers = range(number, number + 1) if blend else batch_of(spec, History(), number)[0]
    history, together, when = journal.read_before(number, numbers)
    if not together:
        return None
    if blend:
        return KnownThen(spec, history, None)
    numbers, before = batch_of(spec, history, number)
    numbers = range(numbers.start, max(together) + 1)  # others were refused then
    return KnownThen(spec, history, make_request(spec, history, numbers, before, read_shared(folder, spec, when)))
