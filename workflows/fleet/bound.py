"""Keep a fleet within `max_spend`: what may start, what must go. Pure, but for `look`, which counts.

The rule: a worker whose next hour would pass a bound is not started; one that runs, and whose next hour would, takes no
more jobs. With five minutes of what runs left, jobs are stopped with their checkpoints; at the bound instances end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regiondag.accounting.prices import PriceTable, read_prices
from regiondag.errors import AwsError
from regiondag.fleet import ec2, ledger
from regiondag.fleet.checks import Ground
from regiondag.fleet.config import ON_DEMAND, SPOT, Fleet
from regiondag.fleet.demand import Worker
from regiondag.fleet.ec2 import Instance
from regiondag.fleet.ledger import DAY, HOUR, Ledger, day_of, show_dollars
from regiondag.fleet.prices import Prices
from regiondag.fleet.scale import Wish
from regiondag.fleet.status import Spending
from regiondag.fleet.template import GRACEFUL

NO_TIME_LEFT = HOUR / 12  # of what runs: a look a minute, two minutes for checkpoints, and some
COSTLY = ("pending", "running", "stopping")
WINDOWS = {"day": "today (UTC)", "run": "since `fleet up`"}


@dataclass(frozen=True, slots=True)
class Account:
    """What a fleet with a bound has spent, and what its instances cost."""

    fleet: Fleet
    ledger: Ledger
    rates: Mapping[str, float]  # of those that run, dollars for an hour, by id
    prices: Prices
    table: PriceTable
    now: float

    @property
    def hour(self) -> float:
        """What the next hour of all that runs costs."""
        return sum(self.rates.values())

    def spent(self, window: str) -> float:
        """Return what was spent in a window: `day` or `run`."""
        return self.ledger.today(self.now) if window == "day" else self.ledger.run

    @property
    def tightest(self) -> str:
        """The window with the least left."""
        return min(self.fleet.max_spend, key=lambda window: self.fleet.max_spend[window] - self.spent(window))

    @property
    def left(self) -> float:
        """What may still be spent; negative beyond the bound."""
        return self.fleet.max_spend[self.tightest] - self.spent(self.tightest)

    def of(self, kind: str, zone: str, purchase: str) -> float | None:
        """Return the price of an hour, where only a higher one is known that."""
        known = self.prices.of(kind, zone, purchase)
        if known is None and purchase == SPOT:
            known = self.prices.on_demand.get(kind)  # spot never costs more
        row = self.table.instances.get(kind)
        return known if known is not None or row is None else row.on_demand


def look(
    client: Any, fleet: Fleet, prices: Prices, now: float, tell: Callable[[str], None], keep: bool = True
) -> Account | None:
    """Count what the fleet has spent until `now`, and write that down if `keep`; None for a fleet without bounds."""
    if not fleet.max_spend:
        return None
    path = ledger.ledger_path(fleet.region, fleet.name)
    with ledger.held(path):
        before = ledger.read_ledger(path)
        seen = ec2.find_instances(client, fleet.name, (*ec2.ALIVE, ec2.ENDING, ec2.ENDED))
        empty = Account(fleet, before, {}, prices, read_prices(), now)
        rates = {one.id: _rate(one, empty) for one in seen}
        after = ledger.count(before, seen, rates, now)
        for text in ledger.find_unseen(before, seen, now):
            tell(f"note: {text}")
        if keep and after != before:
            ledger.write_ledger(path, after)
    running = {one.id: rates[one.id] for one in seen if one.state in COSTLY}
    return replace(empty, ledger=after, rates=running)


def begin(fleet: Fleet) -> None:
    """Begin a new run: what was spent `since fleet up` is nothing again."""
    path = ledger.ledger_path(fleet.region, fleet.name)
    with ledger.held(path):
        ledger.write_ledger(path, ledger.begin_run(ledger.read_ledger(path)))


def _rate(one: Instance, account: Account) -> float:
    known = account.prices.of(one.type, one.zone, one.purchase)
    before = account.ledger.instances.get(one.id)
    if known is None and before:
        return before.rate  # what it was at the last look
    price = account.of(one.type, one.zone, one.purchase)
    if price is None:
        raise AwsError(
            f"no price of {one.type} is known, so max_spend of {account.fleet.file} cannot be kept; name it there: "
            f"prices: {{{one.type}: dollars for an hour}}",
            temporary=True,  # the price list may answer in a minute
        )
    return price


def hold(account: Account | None, ground: Ground, wish: Wish) -> tuple[Ground, Wish, str]:
    """Return where workers may start, which of those wished for, and why not all.

    EC2 chooses among types and zones, so each counts as the dearest of those whose hour alone would still fit. Those
    that are wanted on demand come first: what they need is not spent on others.
    """
    if account is None or wish.count == 0:
        return ground, wish, ""
    fleet, room, count = account.fleet, account.left - account.hour, wish.count
    ways = ([ON_DEMAND] if wish.on_demand else []) + list(fleet.ways if count > wish.on_demand else [])
    known = {pool: _dearest(account, ground, pool, ways) for pool in ground.pools}
    fitting = tuple(pool for pool, price in known.items() if price is not None and price <= room)
    many = _count_fitting(account, replace(ground, pools=fitting), wish, room) if fitting else 0
    held = replace(ground, pools=fitting), Wish(many, min(many, wish.on_demand))
    if many == count:
        return *held, ""
    if unknown := sorted({pool[0] for pool, price in known.items() if price is None}):
        why = f"no price of {', '.join(unknown)} is known, and `prices` in {fleet.file} names none"
        return *held, _refusal(account, count - many, count, why)
    cheapest = min(price for price in known.values() if price is not None)
    why = f"an hour of one more costs {show_dollars(cheapest)} or more; {_when(account, cheapest)}"
    return *held, _refusal(account, count - many, count, why)


def _count_fitting(account: Account, ground: Ground, wish: Wish, room: float) -> int:
    """Return how many of `wish` an amount of dollars pays for an hour; every place of `ground` has prices."""

    def pay(count: int, ways: Sequence[str], dollars: float) -> tuple[int, float]:
        price = max(_dearest(account, ground, pool, ways) or 0.0 for pool in ground.pools)
        paid = min(count, math.floor(dollars / price + 1e-9))
        return paid, dollars - paid * price

    firm, rest = pay(wish.on_demand, [ON_DEMAND], room) if wish.on_demand else (0, room)
    others = wish.count - wish.on_demand
    return firm + pay(others, account.fleet.ways, rest)[0] if others and firm == wish.on_demand else firm


def _dearest(account: Account, ground: Ground, pool: tuple[str, str], ways: Sequence[str]) -> float | None:
    prices = [account.of(pool[0], ground.zones[pool[1]], purchase) for purchase in ways]
    known = [price for price in prices if price is not None]
    return max(known) if len(known) == len(prices) else None


def _refusal(account: Account, refused: int, count: int, why: str) -> str:
    return f"{refused} of {count} workers are not started: {show(account, account.tightest)}, and {why}"


def _when(account: Account, price: float) -> str:
    limit, window = account.fleet.max_spend[account.tightest], account.tightest
    if account.hour + price > limit:
        return f"with what runs that is more than max_spend.{window} allows at all: raise it, or let workers end"
    if window == "day":
        return f"they may from {day_of((account.now // DAY + 1) * DAY)} 00:00 UTC"
    return "they may when max_spend.run is raised, or after `regiondag fleet down`, when `up` begins a new run"


@dataclass(frozen=True, slots=True)
class Curb:
    """The workers that a bound does not let go on."""

    drain: tuple[Instance, ...] = ()  # take no more jobs
    stop: tuple[Instance, ...] = ()  # send checkpoints back and power off
    end: tuple[Instance, ...] = ()  # at once


def curb(account: Account | None, alive: Sequence[Instance], workers: Mapping[str, Worker]) -> Curb:
    """Return what must go for the bound to hold: those with the fewest jobs first, then the youngest."""
    if account is None:
        return Curb()
    if account.left <= 0:
        return Curb(end=tuple(one for one in alive if one.state != "stopped"))
    if account.left < account.hour * NO_TIME_LEFT / HOUR:
        return Curb(stop=tuple(one for one in alive if one.drain != GRACEFUL))
    drained, kept = [], 0.0
    staying = [one for one in alive if not one.draining]
    for one in sorted(staying, key=lambda one: (-(workers[one.id].jobs if one.id in workers else 0), one.launched)):
        kept += account.rates.get(one.id, 0.0)
        if kept > account.left:
            drained.append(one)
    return Curb(drain=tuple(drained))


def show(account: Account, window: str) -> str:
    """Return what was spent of a bound."""
    spent, limit = show_dollars(account.spent(window)), show_dollars(account.fleet.max_spend[window])
    return f"{spent} of {limit} spent {WINDOWS[window]}"


def show_account(account: Account) -> str:
    """Return the line of `status`."""
    spent = "; ".join(show(account, window) for window in account.fleet.max_spend)
    return f"{spent}; the next hour of what runs: {show_dollars(account.hour)}"


def spending_of(account: Account | None) -> Spending | None:
    """Return what `status` says of it."""
    if account is None:
        return None
    words = show_account(account)
    return Spending(account.spent("day"), account.spent("run"), account.hour, account.fleet.max_spend, words)
