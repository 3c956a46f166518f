"""What runs in a fleet, what it does and what it costs. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nnlib.util.columns import Narrow
from regiondag.fleet.demand import Worker
from regiondag.fleet.ec2 import Instance
from regiondag.fleet.prices import Prices
from regiondag.fleet.scale import has_not_joined

HEADINGS = ("instance", "type", "bought", "zone", "state", "age", "GPUs claimed", "unclaimed", "jobs", "$/h")
NARROW = Narrow(("zone", "bought", "unclaimed", "GPUs claimed", "age"))


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One instance. What only the pool knows is None where there is no pool to ask, or it does not know the worker."""

    instance: str
    type: str
    purchase: str
    zone: str
    state: str
    age_seconds: int
    gpus_claimed: int | None
    gpus_unclaimed: int | None
    jobs: int | None
    dollars_per_hour: float | None


@dataclass(frozen=True, slots=True)
class Spending:
    """Dollars: what a fleet with a bound has spent, and what the next hour of all that runs costs."""

    day: float  # since midnight, UTC
    run: float  # since `fleet up`
    next_hour: float
    bounds: Mapping[str, float]  # max_spend of the file
    words: str


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """A fleet at one moment."""

    fleet: str
    region: str
    pool: str | None
    rows: tuple[InstanceRow, ...]
    orphans: tuple[str, ...]  # instances that should have joined by now and have not
    spending: Spending | None = None  # without max_spend nothing is counted


def assemble(
    names: tuple[str, str, str | None],
    alive: Sequence[Instance],
    workers: Mapping[str, Worker],
    prices: Prices,
    join_minutes: int,
    now: float,
    spending: Spending | None = None,
) -> FleetStatus:
    """Put together what EC2 and the pool say; `names`: of the fleet, its region, the pool (None: none was asked)."""
    fleet, region, pool = names
    orphans = (
        tuple(one.id for one in alive if has_not_joined(one, workers, join_minutes, now)) if pool is not None else ()
    )
    rows = tuple(_row(one, workers.get(one.id), pool, one.id in orphans, prices, now) for one in alive)
    return FleetStatus(fleet, region, pool, rows, orphans, spending)


def _row(
    instance: Instance, worker: Worker | None, pool: str | None, orphan: bool, prices: Prices, now: float
) -> InstanceRow:
    state = instance.state
    if state == "running" and pool is not None:
        state = "never joined" if orphan else "joined" if worker else "booting"
    if instance.draining and instance.state in ("pending", "running"):
        state = "draining"
    return InstanceRow(
        instance=instance.id,
        type=instance.type,
        purchase=instance.purchase,
        zone=instance.zone,
        state=state,
        age_seconds=max(0, int(now - instance.launched)),
        gpus_claimed=worker.gpus - worker.free_gpus if worker else None,
        gpus_unclaimed=worker.free_gpus if worker else None,
        jobs=worker.jobs if worker else None,
        dollars_per_hour=prices.of(instance.type, instance.zone, instance.purchase),
    )


def as_json(status: FleetStatus) -> str:
    """Return one JSON object."""
    return json.dumps(dataclasses.asdict(status), indent=1)


def table_rows(status: FleetStatus) -> list[tuple[str, ...]]:
    """Return the rows under HEADINGS."""
    return [
        (
            row.instance,
            row.type,
            row.purchase,
            row.zone,
            row.state,
            show_age(row.age_seconds),
            _shown(row.gpus_claimed),
            _shown(row.gpus_unclaimed),
            _shown(row.jobs),
            "unknown" if row.dollars_per_hour is None else f"{row.dollars_per_hour:.4f}",
        )
        for row in status.rows
    ]


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)


def show_age(seconds: int) -> str:
    """Return a duration as people say it.

    >>> show_age(3720), show_age(90), show_age(190000)
    ('1h02m', '1m', '2d04h')
    """
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days}d{hours % 24:02}h"
    return f"{hours}h{minutes % 60:02}m" if hours else f"{minutes}m"


def show_total(status: FleetStatus) -> str:
    """Return the last line: how many workers, and what an hour of them costs."""
    known = [row.dollars_per_hour for row in status.rows if row.dollars_per_hour is not None]
    unknown = len(status.rows) - len(known)
    cost = f"${sum(known):.2f} an hour" + (f", and {unknown} of unknown price" if unknown else "")
    many = len(status.rows)
    return f"{many} worker{'' if many == 1 else 's'}, {cost}" if many else "no workers"
