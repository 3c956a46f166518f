"""What carries the fleet's tag and serves nobody, and snapshots of images that are gone: found, shown, removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from regiondag.errors import AwsError
from regiondag.fleet import ec2
from regiondag.fleet.config import Fleet
from regiondag.fleet.ec2 import list_all
from regiondag.fleet.template import of_fleet, template_name
from regiondag.util.aws import MANIFEST_TAG, explain_errors, tags_of

YOUNG_SECONDS = 600.0  # disks and requests are with nobody for a moment while an instance starts or ends
UPLOAD_SECONDS = 86400.0  # so long may a snapshot wait for its image: `bake ami` goes on with what was interrupted
INSTANCE, REQUEST, VOLUME, INTERFACE, TEMPLATE, SNAPSHOT = (
    "instance",
    "spot request",
    "volume",
    "network interface",
    "launch template",
    "snapshot",
)
HEADINGS = ("what", "id", "why")


@dataclass(frozen=True, slots=True)
class Orphan:
    """One thing to remove."""

    kind: str
    id: str
    why: str


def find_orphans(client: Any, fleet: Fleet, now: float) -> list[Orphan]:
    """Return the fleet's orphans. A worker that the pool does not know is none: it ends by itself, or joins again."""
    alive = ec2.find_instances(client, fleet.name)
    templates = ec2.find_templates(client, fleet.name)
    wanted = {template_name(fleet.name, purchase) for purchase in fleet.purchases}
    forgotten = [] if wanted & templates.keys() else [one for one in alive if not one.draining]
    why = "the fleet is not up: its launch templates are gone"
    found = [Orphan(INSTANCE, one.id, why) for one in forgotten]
    found += _loose(client, fleet, {one.id for one in alive}, now)
    stale = [template for name, template in templates.items() if name not in wanted]
    found += [Orphan(TEMPLATE, one.id, f"{one.name}: {fleet.file} no longer buys so") for one in stale]
    return [*found, *_without_image(client, now)]


def _without_image(client: Any, now: float) -> list[Orphan]:
    """Return the snapshots of images that are deregistered: they serve no fleet of this account, and cost by the month.

    One that is pending is being filled, or was given up and AWS cancels it after a day. Snapshots of images that are
    only disabled stay, and EC2 itself deletes none that an image uses.
    """
    made_here = [{"Name": "tag-key", "Values": [MANIFEST_TAG]}]
    with explain_errors("looking for snapshots without their image"):
        snapshots = list_all(client, "describe_snapshots", "Snapshots", Filters=made_here, OwnerIds=["self"])
        images = (
            list_all(client, "describe_images", "Images", Owners=["self"], IncludeDisabled=True) if snapshots else []
        )
    used = {disk.get("Ebs", {}).get("SnapshotId") for image in images for disk in image.get("BlockDeviceMappings", [])}
    return [
        Orphan(SNAPSHOT, raw["SnapshotId"], f"{tags_of(raw).get('Name', 'an image')} is deregistered")
        for raw in snapshots
        if raw["SnapshotId"] not in used
        and raw["State"] != "pending"
        and now - raw["StartTime"].timestamp() >= UPLOAD_SECONDS
    ]


def _loose(client: Any, fleet: Fleet, alive: set[str], now: float) -> list[Orphan]:
    """Return what an instance has left behind."""
    filters = of_fleet(fleet.name)
    with explain_errors(f"looking for what fleet {fleet.name} left behind"):
        requests = list_all(client, "describe_spot_instance_requests", "SpotInstanceRequests", Filters=filters)
        volumes = list_all(client, "describe_volumes", "Volumes", Filters=filters)
        interfaces = list_all(client, "describe_network_interfaces", "NetworkInterfaces", Filters=filters)
    old_requests = [
        raw
        for raw in requests
        if raw["State"] in ("open", "active") and raw.get("InstanceId") not in alive and _is_old(raw, now)
    ]
    free_volumes = [raw for raw in volumes if raw["State"] == "available" and _is_old(raw, now)]
    free_interfaces = [raw for raw in interfaces if raw["Status"] == "available"]
    return [
        *(Orphan(REQUEST, raw["SpotInstanceRequestId"], f"{raw['State']}, without instance") for raw in old_requests),
        *(Orphan(VOLUME, raw["VolumeId"], f"{raw['Size']} GiB that no instance uses") for raw in free_volumes),
        *(Orphan(INTERFACE, raw["NetworkInterfaceId"], "no instance uses it") for raw in free_interfaces),
    ]


def _is_old(raw: Mapping[str, Any], now: float) -> bool:
    return bool(now - raw["CreateTime"].timestamp() >= YOUNG_SECONDS)


def remove(client: Any, orphans: list[Orphan], tell: Callable[[str], None]) -> list[Orphan]:
    """Remove them, and return what could not be; one refusal keeps no other from going."""
    calls = {
        INSTANCE: lambda one: client.terminate_instances(InstanceIds=[one]),
        REQUEST: lambda one: client.cancel_spot_instance_requests(SpotInstanceRequestIds=[one]),
        VOLUME: lambda one: client.delete_volume(VolumeId=one),
        INTERFACE: lambda one: client.delete_network_interface(NetworkInterfaceId=one),
        TEMPLATE: lambda one: client.delete_launch_template(LaunchTemplateId=one),
        SNAPSHOT: lambda one: client.delete_snapshot(SnapshotId=one),
    }
    left = []
    for orphan in orphans:
        try:
            with explain_errors(f"removing the {orphan.kind} {orphan.id}"):
                calls[orphan.kind](orphan.id)
        except AwsError as error:
            tell(str(error))
            left.append(orphan)
    return left
