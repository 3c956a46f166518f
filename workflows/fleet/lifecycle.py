"""Make a fleet, grow it, let it go. Whatever is interrupted, the next call finds by its tags and goes on from there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regiondag.errors import AwsError
from regiondag.fleet import ec2
from regiondag.fleet.bound import Curb
from regiondag.fleet.checks import Ground
from regiondag.fleet.config import ON_DEMAND, Fleet
from regiondag.fleet.demand import Worker
from regiondag.fleet.ec2 import Instance, LaunchFailure, Template
from regiondag.fleet.scale import Wish
from regiondag.fleet.template import GRACEFUL, fleet_request, template_data, template_hash, template_name

Tell = Callable[[str], None]
Progress = Callable[[Sequence[Instance]], str]

POLL_SECONDS = 15.0
LEFT_SECONDS = 60.0  # a volume goes some seconds after its instance
TRY_LATER = "AWS has no such machine free there now: add instance types, or subnets in other zones, or try later"
QUOTA = (
    "ask for more under Service Quotas, Amazon EC2, All G and VT (or P) Spot Instance Requests, or Running On-Demand G "
    "and VT (or P) instances; new accounts have none for GPUs"
)
POLICY = "ami/policies/fleet.json lists what these credentials must be allowed"
HINTS = {
    **dict.fromkeys(ec2.NO_CAPACITY, TRY_LATER),
    **dict.fromkeys(ec2.NO_QUOTA, QUOTA),
    "InsufficientFreeAddressesInSubnet": "that subnet has no free address: give subnets with more",
    "UnauthorizedOperation": POLICY,
    "AccessDenied": POLICY,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": (
        "an administrator must run once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    ),
}


@dataclass(frozen=True, slots=True)
class StartedInstances:
    """What came of a wish for more workers."""

    ids: tuple[str, ...]
    asked: int
    reasons: tuple[str, ...]  # why they are fewer than asked for
    passing: bool  # whether a later try may get more: no capacity, a full quota, or no reason given
    otherwise: int = 0  # of those wanted on demand, how many EC2 did not have so

    @property
    def short(self) -> bool:
        """Whether fewer were started than asked for."""
        return len(self.ids) < self.asked


# --- up ----------------------------------------------------------------------------------------------------


def plan_templates(fleet: Fleet, ground: Ground) -> dict[str, dict[str, object]]:
    """Return the launch templates this file makes, by name."""
    image = ground.image
    return {
        template_name(fleet.name, purchase): template_data(fleet, image.id, image.root_device, purchase)
        for purchase in fleet.purchases
    }


def find_outdated(found: Mapping[str, Template], fleet: Fleet, ground: Ground) -> list[str]:
    """Return the names of the launch templates that are missing, or that another file or image made."""
    return [
        name
        for name, data in plan_templates(fleet, ground).items()
        if name not in found or found[name].description != template_hash(data)
    ]


def ensure_templates(client: Any, fleet: Fleet, ground: Ground, tell: Tell) -> dict[str, Template]:
    """Create the launch templates, or give them a new version where the file or the image changed."""
    found = ec2.find_templates(client, fleet.name)
    wanted = plan_templates(fleet, ground)
    for name in wanted.keys() - found.keys():
        ec2.refuse_foreign_template(client, fleet.name, name)  # before anything is created
    for name in find_outdated(found, fleet, ground):
        data = wanted[name]
        if name in found:
            found[name] = ec2.new_version(client, found[name], data, template_hash(data))
            tell(f"launch template {name}: version {found[name].version}; workers that run keep what they have")
        else:
            found[name] = ec2.create_template(client, fleet.name, name, data, template_hash(data))
            tell(f"launch template {name} created")
    return found


def start(client: Any, fleet: Fleet, ground: Ground, found: Mapping[str, Template], wish: Wish) -> StartedInstances:
    """Start what is wished for, or as much as EC2 gives: each way to buy is tried for what is still missing.

    Those that are wanted on demand come first; where EC2 has none, another way is better than no worker.
    """
    ids: list[str] = []
    failures: list[LaunchFailure] = []
    reasons: list[str] = []
    otherwise = 0
    for purchase, most, firm in ((ON_DEMAND, wish.on_demand, True), *((one, wish.count, False) for one in fleet.ways)):
        left = min(most, wish.count - len(ids))
        if left <= 0:
            continue
        template = found[template_name(fleet.name, purchase)]
        token = uuid.uuid4().hex  # one for all repetitions of this call, so that a lost answer starts nothing twice
        request = fleet_request(fleet.name, (template.id, template.version), ground.pools, purchase, left, token)
        started, failed = ec2.start(client, request)
        ids += started
        failures += failed
        reasons += explain(failed, purchase)
        otherwise += left - len(started) if firm else 0
    passing = not failures or any(failure.code in (*ec2.NO_CAPACITY, *ec2.NO_QUOTA) for failure in failures)
    return StartedInstances(tuple(ids), wish.count, tuple(reasons), passing, otherwise)


def explain(failures: Sequence[LaunchFailure], purchase: str) -> list[str]:
    """Return one sentence for each kind of failure: where, what AWS says, what to do."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        grouped.setdefault((failure.code, failure.message), []).append(failure.where)
    sentences = []
    for (code, message), places in grouped.items():
        where = ", ".join(dict.fromkeys(filter(None, places)))
        hint = f" -- {HINTS[code]}" if code in HINTS else ""
        sentences.append(f"{purchase}{f' ({where})' if where else ''}: {code}: {message}{hint}")
    return sentences


def require(started: StartedInstances) -> None:
    """Raise AwsError that says why there are fewer workers than asked for."""
    if started.short:
        reasons = "".join(f"\n  {reason}" for reason in started.reasons) or " AWS does not say why."
        raise AwsError(
            f"{len(started.ids)} of {started.asked} workers started; what runs, stays. The same command again starts "
            f"only those missing.{reasons}",
            temporary=started.passing,
        )


# --- scale -------------------------------------------------------------------------------------------------


def choose_surplus(
    alive: Sequence[Instance], workers: Mapping[str, Worker], number: int, on_demand: int = 0
) -> list[Instance]:
    """Return the instances to drain so that `number` go on: idle ones first, then those with the fewest jobs.

    Of equals the youngest go first; one that has not joined yet counts as idle. Those that drain already are gone.
    `on_demand` of those bought so go after all others.
    """
    staying = [instance for instance in alive if not instance.draining]

    def key(instance: Instance) -> tuple[int, float]:
        worker = workers.get(instance.id)
        return (worker.jobs if worker else 0, -instance.launched)

    order = sorted(staying, key=key)
    firm = [one for one in reversed(order) if one.purchase == ON_DEMAND][:on_demand]
    order.sort(key=lambda one: one in firm)
    return order[: max(0, len(order) - number)]


def obey(client: Any, curb: Curb, tell: Tell, dry_run: bool = False) -> None:
    """Let those workers go that a bound does not let go on, and say which."""
    for asked, text in (
        (curb.drain, "take no more jobs, for their next hour would pass max_spend"),
        (curb.stop, "stop their jobs, which send their checkpoints back, for max_spend is all but reached"),
        (curb.end, "end now, for max_spend is reached; their jobs go back to the queue"),
    ):
        if asked:
            names = ", ".join(one.id for one in asked)
            tell(f"{'a real run would let these go: ' if dry_run else ''}{names} {text}")
    if not dry_run:
        ec2.drain(client, [one.id for one in curb.drain])
        ec2.drain(client, [one.id for one in curb.stop], GRACEFUL)
        ec2.terminate(client, [one.id for one in curb.end])


def tell_of_deaf(client: Any, asked: Sequence[Instance], tell: Tell) -> None:
    """Name the workers that cannot hear that they shall drain."""
    deaf = ec2.not_nitro(client, (one.type for one in asked))
    for one in asked:
        if one.type in deaf:
            tell(
                f"note: {one.id} ({one.type}) does not see new tags: it ends when it has been idle long enough, or by "
                "`regiondag fleet down --now`"
            )


# --- down --------------------------------------------------------------------------------------------------


def close(client: Any, fleet: Fleet, tell: Tell) -> None:
    """Delete the launch templates: from here on nobody can start a worker of this fleet, not even `scale --watch`."""
    for template in ec2.find_templates(client, fleet.name).values():
        ec2.delete_template(client, template)
        tell(f"launch template {template.name} deleted: nothing new starts")


def drain_all(client: Any, fleet: Fleet, tell: Tell) -> list[Instance]:
    """Ask every worker to drain and return those alive; a stopped one runs no job, so it is ended."""
    alive = ec2.find_instances(client, fleet.name)
    stopped = [one.id for one in alive if one.state in ("stopping", "stopped")]
    running = [one for one in alive if one.id not in stopped]
    ec2.terminate(client, stopped)
    ec2.drain(client, [one.id for one in running if not one.draining])
    tell_of_deaf(client, running, tell)
    return running


def wait(client: Any, fleet: Fleet, timeout: float, progress: Progress, tell: Tell, poll: float = POLL_SECONDS) -> bool:
    """Wait until all instances have ended by themselves; return whether they have. Says what changed."""
    end = time.monotonic() + timeout
    said = ""
    while True:
        left: list[Instance] | None = None
        try:
            left = ec2.find_instances(client, fleet.name, (*ec2.ALIVE, ec2.ENDING))
        except AwsError as error:
            if not error.temporary:
                raise
            tell(f"{error}; still waiting")
        if left is not None:
            if not left:
                return True
            if (text := progress(left)) != said:
                tell(text)
                said = text
        if time.monotonic() >= end:
            return False
        time.sleep(min(poll, max(0.0, end - time.monotonic())))


def clean_up(client: Any, fleet: Fleet, tell: Tell, patience: float = LEFT_SECONDS, poll: float = 5.0) -> list[str]:
    """Delete the EC2 fleets of instances that have ended; return what still carries the fleet's tag."""
    deleted = ec2.delete_fleets(client, ec2.fleet_ids(client, fleet.name))
    if deleted:
        tell(f"{deleted} EC2 fleet request{'s' if deleted > 1 else ''} deleted")
    end = time.monotonic() + patience
    while (left := ec2.find_leftovers(client, fleet.name)) and time.monotonic() < end:
        time.sleep(poll)
    return left
