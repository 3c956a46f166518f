"""`regiondag fleet`'s verbs, one function each. HTCondor is asked through what the command hands in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regiondag.errors import AwsError, PoolError, RegiondagError, UsageError
from regiondag.fleet import bound, ec2, lifecycle
from regiondag.fleet.backoff import Memory, advise
from regiondag.fleet.bound import Account
from regiondag.fleet.checks import Ground, look_up
from regiondag.fleet.config import ON_DEMAND, Fleet
from regiondag.fleet.demand import GpuRequest, Worker
from regiondag.fleet.ec2 import Instance
from regiondag.fleet.prices import Prices, estimate, find_prices, price_rows
from regiondag.fleet.scale import Wish, decide, wish
from regiondag.fleet.status import FleetStatus, assemble
from regiondag.fleet.watch import Recall

Text = Callable[[str], None]
Table = Callable[[str, Sequence[str], Sequence[Sequence[str]]], None]

PRICE_HEADINGS = ("type", "zone", "bought", "$/h")
NOT_ALL = "instances only: disks, addresses and traffic come on top"


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where words go: `tell` to stderr, `say` and `table` to stdout."""

    tell: Text
    say: Text
    table: Table


@dataclass(frozen=True, slots=True)
class PoolView:
    """How to ask the HTCondor pool; each call asks anew."""

    name: str
    version: tuple[int, ...]
    requests: Callable[[], list[GpuRequest]]
    workers: Callable[[], dict[str, Worker]]


# --- up ----------------------------------------------------------------------------------------------------


def up(client: Any, fleet: Fleet, out: Outlet, pool: PoolView | None, dry_run: bool) -> None:
    """Make the launch templates right and start what is missing to `workers.min`."""
    ground = _ground(client, fleet, out, pool)
    alive = ec2.find_instances(client, fleet.name)
    staying = [one for one in alive if not one.draining]
    if len(staying) < len(alive):
        out.tell(
            f"note: {len(alive) - len(staying)} workers drain and will end; they count towards workers.max until then"
        )
    missing = max(0, min(fleet.minimum - len(staying), fleet.maximum - len(alive)))
    if fleet.max_spend and not dry_run and not alive and not ec2.find_templates(client, fleet.name):
        bound.begin(fleet)
    account = _keep_within(client, fleet, ground, out, alive, lambda: _workers(pool, out.tell), dry_run)
    ground, allowed = _hold(account, ground, wish(fleet, alive, missing), out)
    if dry_run:
        found = ec2.find_templates(client, fleet.name)
        for name in lifecycle.find_outdated(found, fleet, ground):
            if name not in found:
                ec2.refuse_foreign_template(client, fleet.name, name)
            out.say(f"would {'add a version to' if name in found else 'create'} the launch template {name}")
        _preview(client, fleet, ground, out, allowed)
        return
    found = lifecycle.ensure_templates(client, fleet, ground, out.tell)
    if allowed.count:
        _start(client, fleet, ground, found, allowed, out)
    many = len(staying) + allowed.count
    more = "" if fleet.minimum else "; `regiondag fleet scale` starts what the queue asks for"
    out.tell(f"fleet {fleet.name} is up: {many} worker{'' if many == 1 else 's'} of {fleet.maximum} at most{more}")
    if fleet.minimum and fleet.idle_minutes:
        out.tell(f"a worker that is idle for {fleet.idle_minutes} minutes powers off, also one of these")


def _ground(client: Any, fleet: Fleet, out: Outlet, pool: PoolView | None) -> Ground:
    ground = look_up(client, fleet)
    for note in ground.notes:
        out.tell(f"note: {note}")
    if pool:
        _refuse_other_series(ground, pool)
    return ground


def _start(client: Any, fleet: Fleet, ground: Ground, found: dict[str, ec2.Template], asked: Wish, out: Outlet) -> None:
    started = lifecycle.start(client, fleet, ground, found, asked)
    for one in started.ids:
        out.say(one)
    if started.ids:
        many = len(started.ids)
        out.tell(f"{many} worker{'s' if many > 1 else ''} started; each joins the pool about a minute after its start")
    if started.otherwise and not started.short:
        reasons = "".join(f"\n  {reason}" for reason in started.reasons)
        out.tell(f"note: workers.on_demand lacks {started.otherwise}, which are bought as the others are:{reasons}")
    lifecycle.require(started)


def _preview(client: Any, fleet: Fleet, ground: Ground, out: Outlet, asked: Wish) -> None:
    """Print what an hour of so many more workers costs."""
    prices = find_prices(client, fleet, list(ground.kinds), fleet.purchases, out.tell)
    kinds = " or ".join(ground.kinds)
    how = f"{asked.on_demand} on-demand, else {fleet.purchase}" if asked.on_demand else fleet.purchase
    out.say(f"would start {asked.count} worker{'' if asked.count == 1 else 's'} ({how}) of type {kinds}")
    out.table(
        f"fleet {fleet.name}, image {ground.image.id}", PRICE_HEADINGS, price_rows(ground, prices, fleet.purchases)
    )
    for one, text in ((asked, "these"), (Wish(fleet.maximum, fleet.on_demand), "all that workers.max allows")):
        cost = estimate(ground, prices, [ON_DEMAND], one.on_demand)
        cost += estimate(ground, prices, fleet.ways, one.count - one.on_demand)
        out.say(f"an hour of {text} ({one.count}): {cost}")
    out.say(NOT_ALL)


# --- scale -------------------------------------------------------------------------------------------------


def scale(
    client: Any, fleet: Fleet, out: Outlet, pool: PoolView, dry_run: bool, recall: Recall = lambda *_: Memory()
) -> None:
    """Start what the queue asks for; `recall` adds to what is seen what earlier looks showed, if there were any."""
    ground = _ground(client, fleet, out, pool)
    workers, requests = pool.workers(), pool.requests()
    alive = ec2.find_instances(client, fleet.name)
    advice = advise(recall(alive, workers, requests), requests, ground.size, fleet.region)
    account = _keep_within(client, fleet, ground, out, alive, lambda: workers, dry_run)
    decision = decide(fleet, ground, alive, workers, advice.requests, time.time())
    out.tell(decision.summary)
    for note in (*decision.notes, *advice.notes):
        out.tell(f"note: {note}")
    missing = 0 if advice.halt else decision.missing
    ground, allowed = _hold(account, ground, wish(fleet, alive, missing), out)
    _grow(client, fleet, ground, out, allowed, dry_run)


def _keep_within(
    client: Any,
    fleet: Fleet,
    ground: Ground,
    out: Outlet,
    alive: Sequence[Instance],
    ask: Callable[[], dict[str, Worker] | None],
    dry: bool,
) -> Account | None:
    """Count what the fleet has spent, and let those workers go that its bound does not let go on.

    `ask` gives the workers that the pool knows; a fleet without a bound needs none.
    """
    if not fleet.max_spend:
        return None
    kinds = sorted({*ground.kinds, *(one.type for one in alive)})
    prices = find_prices(client, fleet, kinds, {*fleet.purchases, *(one.purchase for one in alive)}, out.tell)
    account = bound.look(client, fleet, prices, time.time(), out.tell, keep=not dry)
    curb = bound.curb(account, alive, ask() or {})
    if account and curb != bound.Curb():
        out.tell(bound.show_account(account))
    lifecycle.obey(client, curb, out.tell, dry)
    return account


def _hold(account: Account | None, ground: Ground, asked: Wish, out: Outlet) -> tuple[Ground, Wish]:
    ground, allowed, why = bound.hold(account, ground, asked)
    if why:
        out.tell(f"note: {why}")
    return ground, allowed


def _refuse_other_series(ground: Ground, pool: PoolView) -> None:
    """Workers of another HTCondor series refuse to join: they would be paid for, over and over, for nothing."""
    ours = ground.image.htcondor.split(".")[:2]
    theirs = [str(part) for part in pool.version[:2]]
    if ours != [""] and ours != theirs:
        raise AwsError(
            f"the image {ground.image.id} has HTCondor {'.'.join(ours)}, the pool {pool.name} {'.'.join(theirs)}; "
            "workers of another series never match. Bake an image of the pool's series, or name one with `image`"
        )


def _grow(client: Any, fleet: Fleet, ground: Ground, out: Outlet, asked: Wish, dry_run: bool) -> None:
    found = ec2.find_templates(client, fleet.name)
    if not found and not dry_run:
        raise AwsError(f"fleet {fleet.name} is not up in {fleet.region}; make it with: regiondag fleet up")
    old = lifecycle.find_outdated(found, fleet, ground)
    if absent := [name for name in old if name not in found and not dry_run]:
        raise AwsError(f"the launch template {absent[0]} is missing; `regiondag fleet up` makes it")
    if old and not dry_run:
        out.tell(
            f"note: {fleet.file} or its image has changed since `regiondag fleet up`; new workers are as before it"
        )
    if dry_run:
        _preview(client, fleet, ground, out, asked)
    elif asked.count:
        _start(client, fleet, ground, found, asked, out)


def set_number(client: Any, fleet: Fleet, out: Outlet, pool: PoolView | None, number: int, dry_run: bool) -> None:
    """Bring the fleet to `number` workers: start those missing, or drain the surplus, idle ones first."""
    if number > fleet.maximum:
        raise UsageError(f"--workers {number}: {fleet.file} allows {fleet.maximum} at most (workers.max)")
    alive = ec2.find_instances(client, fleet.name)
    staying = [one for one in alive if not one.draining]
    if number >= len(staying):
        ground = _ground(client, fleet, out, pool)
        room = max(0, fleet.maximum - len(alive))
        missing = min(number - len(staying), room)
        if missing < number - len(staying):
            out.tell(f"note: {len(alive) - len(staying)} workers still drain and count towards workers.max")
        account = _keep_within(client, fleet, ground, out, alive, lambda: _workers(pool, out.tell), dry_run)
        ground, allowed = _hold(account, ground, wish(fleet, alive, missing), out)
        _grow(client, fleet, ground, out, allowed, dry_run)
        return
    workers = pool.workers() if pool else {}
    if pool is None:
        out.tell("note: there is no pool to ask which workers are idle; the youngest are drained first")
    going = lifecycle.choose_surplus(alive, workers, number, fleet.on_demand)
    for one in going:
        jobs = workers[one.id].jobs if one.id in workers else 0
        out.say(f"{'would drain' if dry_run else 'drains'} {one.id} ({one.type}, {jobs} running jobs)")
    if not dry_run:
        ec2.drain(client, [one.id for one in going])
        out.tell("they take no more jobs, finish those they run, and power off")
        lifecycle.tell_of_deaf(client, going, out.tell)


# --- down --------------------------------------------------------------------------------------------------


def down(
    client: Any, fleet: Fleet, out: Outlet, pool: PoolView | None, *, now: bool, timeout: float, dry_run: bool
) -> None:
    """Let the fleet go: drained, or with `now` at once; then remove what is left of it."""
    if dry_run:
        _preview_down(client, fleet, out, pool, now)
        return
    _count(client, fleet, out)
    lifecycle.close(client, fleet, out.tell)
    if now:
        alive = ec2.find_instances(client, fleet.name)
        jobs = _jobs(alive, _workers(pool, out.tell))
        out.tell(f"{len(alive)} instances end now, with {jobs}; their jobs go back to the queue")
        ec2.terminate(client, [one.id for one in alive])
    elif lifecycle.drain_all(client, fleet, out.tell):
        out.tell("workers take no more jobs, finish those they run, and power off (Ctrl-C leaves them at that)")

    def progress(left: Sequence[Instance]) -> str:
        return f"{len(left)} still there, with {_jobs(left, _workers(pool, lambda _: None))}"

    if not lifecycle.wait(client, fleet, timeout, progress, out.tell):
        left = ec2.find_instances(client, fleet.name)
        for one in left:
            out.say(f"{one.id} {one.type} {one.state}")
        raise RegiondagError(
            f"{len(left)} instances of fleet {fleet.name} still run; nothing was ended by force. They end with their "
            "jobs; `regiondag fleet down` goes on waiting, `regiondag fleet down --now` ends them and their jobs"
        )
    _count(client, fleet, out)  # to the end that EC2 names, which it forgets within the hour
    left_behind = lifecycle.clean_up(client, fleet, out.tell)
    for line in left_behind:
        out.say(line)
    if left_behind:
        raise RegiondagError(
            f"fleet {fleet.name} has ended, but the above carries its tag and may cost money; "
            "`regiondag fleet down` looks again"
        )
    out.tell(f"fleet {fleet.name} is gone: no instance, volume, snapshot or network interface carries its tag")


def _count(client: Any, fleet: Fleet, out: Outlet) -> None:
    """Count what the fleet has spent; what stands in the way of that keeps nobody from letting it go."""
    try:
        bound.look(client, fleet, Prices(fleet.prices, {}), time.time(), out.tell)
    except RegiondagError as error:
        out.tell(f"note: {error}")


def _workers(pool: PoolView | None, tell: Text) -> dict[str, Worker] | None:
    """Return the workers that the pool knows; None without a pool, or when it does not answer: `down` goes on."""
    try:
        return pool.workers() if pool else None
    except PoolError as error:
        tell(f"note: {error}")
        return None


def _jobs(alive: Sequence[Instance], workers: dict[str, Worker] | None) -> str:
    if workers is None:
        return "an unknown number of running jobs (no pool answers)"
    jobs = sum(workers[one.id].jobs for one in alive if one.id in workers)
    return f"{jobs} running job{'' if jobs == 1 else 's'}"


def _preview_down(client: Any, fleet: Fleet, out: Outlet, pool: PoolView | None, now: bool) -> None:
    alive = ec2.find_instances(client, fleet.name)
    prices = find_prices(client, fleet, sorted({one.type for one in alive}), {one.purchase for one in alive}, out.tell)
    jobs = _jobs(alive, _workers(pool, out.tell))
    out.say(f"would {'end at once' if now else 'drain'} {len(alive)} instances, with {jobs}")
    for one in alive:
        price = prices.of(one.type, one.zone, one.purchase)
        cost = "unknown" if price is None else f"${price:.4f}"
        out.say(f"  {one.id} {one.type} {one.purchase} {one.zone} {one.state}: {cost} an hour")
    for template in ec2.find_templates(client, fleet.name).values():
        out.say(f"would delete the launch template {template.name}")


# --- status ------------------------------------------------------------------------------------------------


def look(client: Any, fleet: Fleet, out: Outlet, pool: PoolView | None) -> FleetStatus:
    """Return what runs, what it does and what it costs."""
    alive = ec2.find_instances(client, fleet.name, (*ec2.ALIVE, ec2.ENDING))
    workers = _workers(pool, out.tell)
    kinds, purchases = sorted({one.type for one in alive}), {one.purchase for one in alive}
    prices = find_prices(client, fleet, kinds, purchases, out.tell) if alive else Prices({}, {})
    asked = pool.name if pool and workers is not None else None
    now = time.time()
    account = bound.look(client, fleet, prices, now, out.tell)
    names = (fleet.name, fleet.region, asked)
    return assemble(names, alive, workers or {}, prices, fleet.join_minutes, now, bound.spending_of(account))
