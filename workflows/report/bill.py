"""What a run took: hours, GPUs, and money where its machines have prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regiondag.accounting.prices import PriceTable, read_prices
from regiondag.accounting.usage import Taken, sum_up, take
from regiondag.condor.events.attempts import Attempt


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run took: hours, and each region's cost (None: unknown) by slug in a currency, empty if all is free.

    Machines that do not say what they are cost nothing by the table that is built in.
    """

    currency: str = ""
    regions: Mapping[str, float | None] = field(default_factory=dict)
    cost: float | None = None  # of all regions, as far as it is known
    gpu_hours: float | None = None
    lost_hours: float | None = None  # on slots, to evictions and failures


def read_bill(attempts: Sequence[Attempt], prices: Path | None, now: float) -> Bill:
    """Sum up by a table of prices, the one that is built in where none is given; RegiondagError when it is wrong."""
    return bill_of(attempts, read_prices(prices), now)


def bill_of(attempts: Sequence[Attempt], prices: PriceTable, now: float) -> Bill:
    """Sum up what the tries of all jobs took and cost."""
    if not attempts:
        return Bill()
    regions: dict[str, list[Taken]] = {}
    taken = take(attempts, {}, prices, now)
    for one in taken:
        regions.setdefault(one.node.slug, []).append(one)
    costs = {slug: sum_up(of_region, (), now).cost for slug, of_region in regions.items()}
    total = sum_up(taken, (), now)
    currency = "" if all(cost == 0 for cost in costs.values()) else prices.currency
    known = [cost for cost in costs.values() if cost is not None]
    lost = total.lost_to_eviction + total.lost_to_failure
    return Bill(currency, costs, sum(known) if known else None, total.gpu_hours, lost)
