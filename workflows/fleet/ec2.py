"""Ask and tell EC2 about one fleet. Every call says what it was doing when AWS refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from regiondag.errors import AwsError
from regiondag.fleet.template import DRAIN_TAG, FLEET_TAG, GRACEFUL, PEACEFUL, of_fleet, tags
from regiondag.util.aws import error_code, explain_errors, tag_list, tags_of

ALIVE = ("pending", "running", "stopping", "stopped")  # what costs money and does not end by itself
ENDING = "shutting-down"
ENDED = "terminated"  # EC2 lists these for about an hour
ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
NO_CAPACITY = (
    "InsufficientInstanceCapacity",
    "UnfulfillableCapacity",
    "InsufficientHostCapacity",
    "InsufficientCapacity",
)
NO_QUOTA = ("MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded")
FLEETS_AT_ONCE = 25  # delete_fleets takes no more of type `instant`
TAGS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of the fleet."""

    id: str
    type: str
    zone: str
    state: str
    purchase: str  # spot or on-demand
    launched: float  # Unix time
    drain: str = ""  # how it was asked to drain, if it was
    ended: float | None = None  # Unix time, where EC2 says it

    @property
    def draining(self) -> bool:
        """Whether it was asked to take no more jobs."""
        return self.drain in (PEACEFUL, GRACEFUL)


@dataclass(frozen=True, slots=True)
class Template:
    """A launch template of the fleet, and what its newest version was made of."""

    id: str
    name: str
    version: int
    description: str


@dataclass(frozen=True, slots=True)
class LaunchFailure:
    """Why EC2 did not start a worker of one type in one subnet."""

    code: str
    message: str
    where: str


def list_all(client: Any, operation: str, key: str, **arguments: Any) -> list[Any]:
    """Return the items of all pages of a `describe` call."""
    return [item for page in client.get_paginator(operation).paginate(**arguments) for item in page[key]]


def find_instances(client: Any, name: str, states: Sequence[str] = ALIVE) -> list[Instance]:
    """Return the fleet's instances in these states, the oldest first."""
    filters = [*of_fleet(name), {"Name": "instance-state-name", "Values": list(states)}]
    with explain_errors(f"listing the instances of fleet {name}"):
        reservations = list_all(client, "describe_instances", "Reservations", Filters=filters)
    found = [_instance(raw) for reservation in reservations for raw in reservation["Instances"]]
    return sorted(found, key=lambda instance: (instance.launched, instance.id))


def _instance(raw: dict[str, Any]) -> Instance:
    return Instance(
        id=raw["InstanceId"],
        type=raw["InstanceType"],
        zone=raw.get("Placement", {}).get("AvailabilityZone", ""),
        state=raw["State"]["Name"],
        purchase=raw.get("InstanceLifecycle", "on-demand"),
        launched=raw["LaunchTime"].timestamp(),
        drain=tags_of(raw).get(DRAIN_TAG, ""),
        ended=read_end(str(raw.get("StateTransitionReason", ""))),
    )


def read_end(reason: str) -> float | None:
    """Return when an instance ended, where the reason says it.

    >>> read_end("User initiated (1970-01-01 00:01:00 GMT)")
    60.0
    """
    found = ENDED_AT.search(reason)
    return datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp() if found else None


def find_templates(client: Any, name: str) -> dict[str, Template]:
    """Return the fleet's launch templates by name."""
    with explain_errors(f"listing the launch templates of fleet {name}"):
        found = list_all(client, "describe_launch_templates", "LaunchTemplates", Filters=of_fleet(name))
        return {raw["LaunchTemplateName"]: _template(client, raw) for raw in found}


def _template(client: Any, raw: dict[str, Any]) -> Template:
    answer = client.describe_launch_template_versions(LaunchTemplateId=raw["LaunchTemplateId"], Versions=["$Latest"])
    newest = answer["LaunchTemplateVersions"][0]
    return Template(
        raw["LaunchTemplateId"],
        raw["LaunchTemplateName"],
        int(newest["VersionNumber"]),
        str(newest.get("VersionDescription", "")),
    )


def refuse_foreign_template(client: Any, fleet: str, name: str) -> None:
    """Raise AwsError if a launch template has the name that this fleet needs, but is not the fleet's."""
    by_name = [{"Name": "launch-template-name", "Values": [name]}]
    with explain_errors(f"looking for the launch template {name}"):
        found = list_all(client, "describe_launch_templates", "LaunchTemplates", Filters=by_name)
    for raw in found:
        if tags_of(raw).get(FLEET_TAG) != fleet:
            raise AwsError(
                f"the launch template {name} ({raw['LaunchTemplateId']}) exists and is not of fleet {fleet}: it lacks "
                f"the tag {FLEET_TAG}={fleet}. It is left as it is; choose another name for the fleet, or remove it"
            )


def create_template(client: Any, fleet: str, name: str, data: dict[str, object], description: str) -> Template:
    """Create a launch template, tagged from its first moment."""
    with explain_errors(f"creating the launch template {name}"):
        raw = client.create_launch_template(
            LaunchTemplateName=name,
            VersionDescription=description,
            LaunchTemplateData=data,
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags(fleet)}],
        )["LaunchTemplate"]
    return Template(raw["LaunchTemplateId"], name, 1, description)


def new_version(client: Any, template: Template, data: dict[str, object], description: str) -> Template:
    """Add a version to a launch template; workers that run keep what they were started with."""
    with explain_errors(f"adding a version to the launch template {template.name}"):
        raw = client.create_launch_template_version(
            LaunchTemplateId=template.id, VersionDescription=description, LaunchTemplateData=data
        )["LaunchTemplateVersion"]
    return Template(template.id, template.name, int(raw["VersionNumber"]), description)


def delete_template(client: Any, template: Template) -> None:
    """Delete a launch template; its instances go on. One that is gone already, EC2 may still have listed."""
    with explain_errors(f"deleting the launch template {template.name}"):
        try:
            client.delete_launch_template(LaunchTemplateId=template.id)
        except Exception as error:
            if not error_code(error).endswith("NotFound"):
                raise


def start(client: Any, request: dict[str, object]) -> tuple[list[str], list[LaunchFailure]]:
    """Start workers; return the ids of those that EC2 gave, and why it gave no more."""
    with explain_errors("starting workers"):
        try:
            answer = client.create_fleet(**request)
        except Exception as error:
            code = error_code(error)
            if code not in (*NO_CAPACITY, *NO_QUOTA):
                raise
            return [], [LaunchFailure(code, str(error), "")]
    started = [one for group in answer.get("Instances", []) for one in group.get("InstanceIds", [])]
    failures = []
    for failed in answer.get("Errors", []):
        asked = failed.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        where = " in ".join(filter(None, (asked.get("InstanceType"), asked.get("SubnetId"))))
        failures.append(LaunchFailure(failed.get("ErrorCode", "unknown"), failed.get("ErrorMessage", ""), where))
    return started, failures


def drain(client: Any, ids: Sequence[str], how: str = PEACEFUL) -> None:
    """Ask workers to take no more jobs, finish those they run (or, GRACEFUL, save and stop them), and power off."""
    for begin in range(0, len(ids), TAGS_AT_ONCE):
        with explain_errors("asking workers to drain"):
            client.create_tags(Resources=list(ids[begin : begin + TAGS_AT_ONCE]), Tags=tag_list({DRAIN_TAG: how}))


def terminate(client: Any, ids: Sequence[str]) -> None:
    """End instances at once."""
    if ids:
        with explain_errors("ending instances"):
            client.terminate_instances(InstanceIds=list(ids))


def fleet_ids(client: Any, name: str) -> list[str]:
    """Return the ids of the EC2 fleets; describe_fleets does not list those of type `instant`, their tags do."""
    filters = [
        {"Name": "resource-type", "Values": ["fleet"]},
        {"Name": "key", "Values": [FLEET_TAG]},
        {"Name": "value", "Values": [name]},
    ]
    with explain_errors(f"listing the EC2 fleets of {name}"):
        return sorted(tag["ResourceId"] for tag in list_all(client, "describe_tags", "Tags", Filters=filters))


def delete_fleets(client: Any, ids: Sequence[str]) -> int:
    """Delete EC2 fleets of type `instant`, which ends whatever of them still runs: only for those that ended.

    Return how many were deleted; tags of fleets that are gone already stay listed for a while.
    """
    deleted = 0
    for begin in range(0, len(ids), FLEETS_AT_ONCE):
        with explain_errors("deleting EC2 fleets"):
            answer = client.delete_fleets(FleetIds=list(ids[begin : begin + FLEETS_AT_ONCE]), TerminateInstances=True)
        deleted += len(answer.get("SuccessfulFleetDeletions", []))
    return deleted


def find_leftovers(client: Any, name: str) -> list[str]:
    """Return a line for everything that carries the fleet's tag and may cost money."""
    filters = of_fleet(name)
    left = [f"instance {one.id} ({one.state})" for one in find_instances(client, name, (*ALIVE, ENDING))]
    with explain_errors(f"looking for what fleet {name} left behind"):
        volumes = list_all(client, "describe_volumes", "Volumes", Filters=filters)
        interfaces = list_all(client, "describe_network_interfaces", "NetworkInterfaces", Filters=filters)
        snapshots = list_all(client, "describe_snapshots", "Snapshots", Filters=filters, OwnerIds=["self"])
    left += [f"volume {raw['VolumeId']} ({raw['State']})" for raw in volumes if raw["State"] not in ("deleting",)]
    left += [f"network interface {raw['NetworkInterfaceId']} ({raw['Status']})" for raw in interfaces]
    left += [f"snapshot {raw['SnapshotId']} ({raw['State']})" for raw in snapshots]
    left += [f"launch template {template.name}" for template in find_templates(client, name).values()]
    return left


def not_nitro(client: Any, types: Iterable[str]) -> set[str]:
    """Return which instance types do not see tags that they get after their start."""
    names = sorted(set(types))
    if not names:
        return set()
    with explain_errors("looking up instance types"):
        found = list_all(client, "describe_instance_types", "InstanceTypes", InstanceTypes=names)
    return {raw["InstanceType"] for raw in found if not is_nitro(raw)}


def is_nitro(raw: Mapping[str, object]) -> bool:
    """Return whether an instance type, as EC2 describes it, is of the Nitro system: there new tags are seen inside."""
    return raw.get("Hypervisor") != "xen"
