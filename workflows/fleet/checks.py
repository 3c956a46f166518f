"""Compare fleet.yaml with what AWS has: image, subnets, security groups, instance types. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from regiondag.errors import ConfigError
from regiondag.fleet.config import LATEST, Fleet
from regiondag.fleet.demand import WorkerSize
from regiondag.fleet.ec2 import is_nitro, list_all
from regiondag.fleet.template import Pool
from regiondag.util.aws import DRIVER_TAG, FABRIC_MANAGER_TAG, HTCONDOR_TAG, error_code, explain_errors, tags_of
from regiondag.util.instance_gpus import why_not_driven

IMAGE_TAG = "regiondag"  # every image that regiondag baked has a tag whose key begins so
MOST_POOLS = 300  # overrides that create_fleet takes


@dataclass(frozen=True, slots=True)
class AmiFacts:
    """What is needed of an AMI."""

    id: str
    name: str
    root_device: str
    size_gb: int
    architecture: str
    boot_mode: str
    ena: bool
    htcondor: str  # its version, empty where the image does not say
    driver: str  # NVIDIA's: none, closed or open, with its version; empty where the image does not say
    fabric_manager: bool | None  # whether it has NVIDIA's; None where the image does not say


@dataclass(frozen=True, slots=True)
class InstanceKind:
    """What is needed of an instance type."""

    name: str
    size: WorkerSize
    maker: str  # of its GPUs, empty without any
    architectures: tuple[str, ...]
    boot_modes: tuple[str, ...]
    purchases: tuple[str, ...]
    nitro: bool


@dataclass(frozen=True, slots=True)
class Ground:
    """Where the fleet's workers can be started, and what they will be."""

    image: AmiFacts
    kinds: Mapping[str, InstanceKind]
    zones: Mapping[str, str]  # subnet: its availability zone
    pools: tuple[Pool, ...]
    notes: tuple[str, ...]

    @property
    def size(self) -> WorkerSize:
        """What a worker has at the least."""
        sizes = [kind.size for kind in self.kinds.values()]
        return WorkerSize(
            min(size.gpus for size in sizes), min(size.cpus for size in sizes), min(size.memory_mb for size in sizes)
        )


@dataclass(slots=True)
class _Findings:
    fleet: Fleet
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def problem(self, key: str, text: str) -> None:
        self.problems.append(self.fleet.problem(key, text))


def look_up(client: Any, fleet: Fleet) -> Ground:
    """Return what AWS has for this fleet; ConfigError with everything that it has not."""
    findings = _Findings(fleet)
    image = _image(client, fleet, findings)
    subnets = _subnets(client, fleet, findings)
    _check_security_groups(client, fleet, subnets, findings)
    kinds = _kinds(client, fleet, findings)
    for kind in kinds.values():
        _check_kind(kind, image, fleet, findings)
    if image and image.driver == "none":
        text = f"{image.id} has no NVIDIA driver, so its workers would cost and offer no GPU; bake one with"
        findings.problem("image", f"{text}: regiondag bake image --driver auto --fleet {fleet.file}")
    if image and image.size_gb > fleet.disk_gb:
        findings.problem("disk", f"{fleet.disk_gb}GB is smaller than the image {image.id}: {image.size_gb}GB")
    zones = {raw["SubnetId"]: str(raw["AvailabilityZone"]) for raw in _one_per_zone(subnets, findings)}
    pools = _pools(client, kinds, zones, findings) if kinds and zones else ()
    if findings.problems or image is None:
        raise ConfigError(findings.problems)
    return Ground(image, kinds, zones, pools, tuple(findings.notes))


def _image(client: Any, fleet: Fleet, findings: _Findings) -> AmiFacts | None:
    which = {"Owners": ["self"]} if fleet.image == LATEST else {"ImageIds": [fleet.image]}
    try:
        with explain_errors(f"looking for the image {fleet.image}"):
            found = _quietly(lambda: list_all(client, "describe_images", "Images", **which), "InvalidAMIID")
    except LookupError as error:
        findings.problem("image", f"seen {fleet.image!r}: {error} (in {fleet.region})")
        return None
    ours = [raw for raw in found if any(key.startswith(IMAGE_TAG) for key in tags_of(raw))]
    usable = [raw for raw in ours if raw.get("State", "available") == "available"]
    if not usable:
        findings.problem("image", f"seen {fleet.image!r}: {_why_not(found, ours)}; `regiondag bake ami` makes one")
        return None
    return _image_of(max(usable, key=lambda raw: str(raw.get("CreationDate", ""))))


def _why_not(found: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> str:
    if ours:
        return ", ".join(f"{raw['ImageId']} is {raw['State']}, not available" for raw in ours)
    if found:
        names = ", ".join(raw["ImageId"] for raw in found[:5])
        return f"not baked by regiondag (no tag of its own on {names})"
    return "this account has no image here"


def _image_of(raw: Mapping[str, Any]) -> AmiFacts:
    root = str(raw.get("RootDeviceName", ""))
    disks = [disk for disk in raw.get("BlockDeviceMappings", []) if disk.get("DeviceName") == root]
    tagged = tags_of(raw)
    return AmiFacts(
        id=raw["ImageId"],
        name=str(raw.get("Name", "")),
        root_device=root,
        size_gb=max((int(disk.get("Ebs", {}).get("VolumeSize", 0)) for disk in disks), default=0),
        architecture=str(raw.get("Architecture", "x86_64")),
        boot_mode=str(raw.get("BootMode", "legacy-bios")),
        ena=bool(raw.get("EnaSupport", False)),
        htcondor=tagged.get(HTCONDOR_TAG, ""),
        driver=tagged.get(DRIVER_TAG, ""),
        fabric_manager=tagged[FABRIC_MANAGER_TAG] != "none" if FABRIC_MANAGER_TAG in tagged else None,
    )


def _quietly(ask: Any, *codes: str) -> Any:
    """Return what `ask` returns; LookupError where AWS says by one of these codes that there is no such thing."""
    try:
        return ask()
    except Exception as error:
        if error_code(error).startswith(codes):
            raise LookupError(str(getattr(error, "response", {}).get("Error", {}).get("Message", error))) from None
        raise


def _subnets(client: Any, fleet: Fleet, findings: _Findings) -> list[dict[str, Any]]:
    try:
        with explain_errors("looking up the subnets"):
            found = _quietly(
                lambda: list_all(client, "describe_subnets", "Subnets", SubnetIds=list(fleet.subnets)), "InvalidSubnet"
            )
    except LookupError as error:
        findings.problem("subnets", f"{error} (in {fleet.region})")
        return []
    networks = sorted({str(raw["VpcId"]) for raw in found})
    if len(networks) > 1:
        findings.problem("subnets", f"they lie in several networks ({', '.join(networks)}); workers need one")
    return list(found)


def _check_security_groups(
    client: Any, fleet: Fleet, subnets: Sequence[Mapping[str, Any]], findings: _Findings
) -> None:
    groups = list(fleet.security_groups)
    try:
        with explain_errors("looking up the security groups"):
            found = _quietly(
                lambda: list_all(client, "describe_security_groups", "SecurityGroups", GroupIds=groups), "InvalidGroup"
            )
    except LookupError as error:
        findings.problem("security_groups", f"{error} (in {fleet.region})")
        return
    networks = {raw["VpcId"] for raw in subnets}
    for raw in found:
        if networks and raw.get("VpcId") not in networks:
            text = f"{raw['GroupId']} belongs to the network {raw.get('VpcId')}, the subnets to {', '.join(networks)}"
            findings.problem("security_groups", text)


def _kinds(client: Any, fleet: Fleet, findings: _Findings) -> dict[str, InstanceKind]:
    """Return the types the region knows, each asked alone: one that it does not know makes EC2 refuse the list."""
    kinds = {}
    for name in fleet.instances:
        try:
            with explain_errors(f"looking up the instance type {name}"):
                found = _quietly(
                    lambda name=name: client.describe_instance_types(InstanceTypes=[name])["InstanceTypes"],
                    "InvalidInstanceType",
                )
        except LookupError:
            findings.problem("instances", f"there is no instance type {name!r} in {fleet.region}")
            continue
        kinds[name] = kind_of(found[0])
    return kinds


def kind_of(raw: Mapping[str, Any]) -> InstanceKind:
    """Return what is needed of EC2's description of an instance type."""
    gpus = raw.get("GpuInfo", {}).get("Gpus", [])
    # Of a shared GPU (g6f) EC2 says 0 GPUs, but 1 logical one, and that is what the worker sees.
    count = sum(max(int(gpu.get("Count", 0)), int(gpu.get("LogicalGpuCount", 0))) for gpu in gpus)
    return InstanceKind(
        name=raw["InstanceType"],
        size=WorkerSize(count, int(raw["VCpuInfo"]["DefaultVCpus"]), int(raw["MemoryInfo"]["SizeInMiB"])),
        maker=str(gpus[0].get("Manufacturer", "")) if gpus else "",
        architectures=tuple(raw.get("ProcessorInfo", {}).get("SupportedArchitectures", ())),
        boot_modes=tuple(raw.get("SupportedBootModes", ())),
        purchases=tuple(raw.get("SupportedUsageClasses", ())),
        nitro=is_nitro(raw),
    )


def _check_kind(kind: InstanceKind, image: AmiFacts | None, fleet: Fleet, findings: _Findings) -> None:
    if not kind.size.gpus:
        findings.problem("instances", f"{kind.name} has no GPU")
    elif kind.maker != "NVIDIA":
        findings.problem("instances", f"the GPUs of {kind.name} are {kind.maker}'s; the image has NVIDIA's driver")
    for purchase in fleet.purchases:
        if purchase not in kind.purchases:
            sold = " or ".join(kind.purchases)
            findings.problem("purchase", f"{kind.name} cannot be had as {purchase}, only as {sold}")
    if not kind.nitro:
        findings.notes.append(
            f"{kind.name} is not of the Nitro system and does not see tags set after its start: `scale --workers` and "
            "`down` cannot ask it to drain; it ends when it has been idle long enough, or by `down --now`"
        )
    if image is None:
        return
    if kind.architectures and image.architecture not in kind.architectures:
        findings.problem(
            "instances",
            f"{kind.name} has a processor of {', '.join(kind.architectures)}, {image.id} is for {image.architecture}",
        )
    if reason := why_not_driven(kind.name, image.driver, image.fabric_manager):
        findings.problem("instances", f"{reason} ({image.id})")
    if not image.ena:
        findings.problem("image", f"{image.id} does not say that it has ENA's driver; {kind.name} needs it")
    if image.boot_mode in ("uefi", "legacy-bios") and kind.boot_modes and image.boot_mode not in kind.boot_modes:
        findings.problem(
            "instances", f"{kind.name} boots by {', '.join(kind.boot_modes)}, {image.id} by {image.boot_mode}"
        )


def _one_per_zone(subnets: Iterable[Mapping[str, Any]], findings: _Findings) -> list[Mapping[str, Any]]:
    """Return the subnet with the most free addresses of each zone: EC2 takes a type only once for a zone."""
    best: dict[str, Mapping[str, Any]] = {}
    for raw in sorted(subnets, key=lambda raw: (-int(raw.get("AvailableIpAddressCount", 0)), raw["SubnetId"])):
        chosen = best.setdefault(raw["AvailabilityZone"], raw)
        if chosen is not raw:
            findings.notes.append(
                f"{raw['SubnetId']} is not used: it lies in {raw['AvailabilityZone']} as {chosen['SubnetId']} does, "
                "which has more free addresses"
            )
    return [best[zone] for zone in sorted(best)]


def _pools(
    client: Any, kinds: Mapping[str, InstanceKind], zones: Mapping[str, str], findings: _Findings
) -> tuple[Pool, ...]:
    filters = [
        {"Name": "instance-type", "Values": sorted(kinds)},
        {"Name": "location", "Values": sorted(set(zones.values()))},
    ]
    with explain_errors("asking where the instance types are offered"):
        found = list_all(
            client,
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=filters,
        )
    offered = {(raw["InstanceType"], raw["Location"]) for raw in found}
    pools = tuple((kind, subnet) for kind in kinds for subnet, zone in zones.items() if (kind, zone) in offered)
    if len(pools) > MOST_POOLS:
        findings.problem("instances", f"{len(pools)} pairs of type and zone; EC2 takes {MOST_POOLS}: leave some out")
    for kind in kinds:
        absent = sorted(zone for zone in zones.values() if (kind, zone) not in offered)
        if len(absent) == len(zones):
            findings.problem("instances", f"{kind} is not offered in any zone of the subnets: {', '.join(absent)}")
        elif absent:
            findings.notes.append(f"{kind} is not offered in {', '.join(absent)}; it is started in other zones only")
    return pools
