"""The AMI: its name, tags and properties, looking for one that exists, and registering it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regiondag.bake.artifact import Manifest
from regiondag.errors import AwsError, UsageError
from regiondag.util import aws

ROOT_DEVICE = "/dev/xvda"
SHORT_HASH = 12  # characters of the manifest's hash in a default name
POLL = 5.0  # seconds
PATIENCE = 600.0  # seconds for a registered AMI to become available; it takes a few as a rule

_NAME = re.compile(r"[A-Za-z0-9()\[\] ./'@_-]{3,128}")


@dataclass(frozen=True, slots=True)
class Ami:
    """An AMI of this account."""

    id: str
    state: str
    manifest: str  # hash of its manifest; empty if regiondag did not make it
    encrypted: bool


def ami_name(name: str | None, manifest: Manifest) -> str:
    """Return the name that is asked for, or the default one; UsageError for a name that AWS would refuse."""
    chosen = f"regiondag-{manifest.suite}-{manifest.driver}-{manifest.hash[:SHORT_HASH]}" if name is None else name
    if not _NAME.fullmatch(chosen):
        raise UsageError(
            f"--name {chosen!r}: an AMI's name has 3 to 128 characters: English letters, digits, spaces and ()[]./-'@_"
        )
    return chosen


def ami_tags(name: str, manifest: Manifest, disk_sha256: str) -> dict[str, str]:
    """Return the tags of AMI and snapshot."""
    return {
        "Name": name,
        aws.MANIFEST_TAG: manifest.hash,
        "regiondag:disk": disk_sha256,
        "regiondag:suite": manifest.suite,
        aws.HTCONDOR_TAG: manifest.htcondor,
        aws.DRIVER_TAG: " ".join(filter(None, (manifest.driver, manifest.driver_version))),
        aws.FABRIC_MANAGER_TAG: manifest.fabric_manager or "none",
        "regiondag:kernel": manifest.kernel,
    }


def describe_image(manifest: Manifest) -> str:
    """Say what is in the image, in as many characters as AWS keeps."""
    driver = "no NVIDIA driver"
    if manifest.driver != "none":
        driver = f"NVIDIA driver {manifest.driver_version} ({manifest.driver})"
    text = (
        f"regiondag worker: HTCondor {manifest.htcondor}, Debian {manifest.suite}, {driver}, manifest {manifest.hash}"
    )
    return text[:255]


def register_arguments(name: str, manifest: Manifest, tags: Mapping[str, str], snapshot: str) -> dict[str, object]:
    """Return the arguments of RegisterImage."""
    return {
        "Name": name,
        "Description": describe_image(manifest),
        "Architecture": "x86_64",
        "VirtualizationType": "hvm",
        "EnaSupport": True,
        "BootMode": "uefi-preferred",  # the disk boots both ways; some GPU types know only BIOS
        "ImdsSupport": "v2.0",  # instances of this AMI demand tokens unless told otherwise at launch
        "RootDeviceName": ROOT_DEVICE,
        "BlockDeviceMappings": [
            {
                "DeviceName": ROOT_DEVICE,
                "Ebs": {"SnapshotId": snapshot, "VolumeType": "gp3", "DeleteOnTermination": True},
            }
        ],
        "TagSpecifications": [{"ResourceType": "image", "Tags": aws.tag_list(tags)}],
    }


def find_ami(ec2: Any, name: str) -> Ami | None:
    """Return this account's AMI of that name."""
    with aws.explain_errors(f"looking for an AMI called {name!r}"):
        answer = ec2.describe_images(Owners=["self"], Filters=[{"Name": "name", "Values": [name]}])
    for raw in answer["Images"]:
        if raw.get("Name") == name:
            return _ami(raw)
    return None


def _ami(raw: Mapping[str, Any]) -> Ami:
    tags = aws.tags_of(raw)
    disks = [mapping["Ebs"] for mapping in raw.get("BlockDeviceMappings", ()) if "Ebs" in mapping]
    encrypted = bool(disks) and all(disk.get("Encrypted", False) for disk in disks)
    return Ami(raw["ImageId"], raw.get("State", ""), tags.get(aws.MANIFEST_TAG, ""), encrypted)


def check_free(ami: Ami | None, name: str, manifest: Manifest, encrypted: bool) -> None:
    """Raise UsageError if the name belongs to an AMI that is not made of this manifest, or not as it is wanted."""
    if ami is None:
        return
    choice = "choose another with --name, or deregister that AMI"
    if ami.manifest != manifest.hash:
        whose = f"made of manifest {ami.manifest[:SHORT_HASH]}" if ami.manifest else "not made by regiondag"
        raise UsageError(
            f"the name {name!r} is taken by {ami.id}, {whose} (this image's: {manifest.hash[:SHORT_HASH]}); {choice}"
        )
    if encrypted and not ami.encrypted:
        raise UsageError(f"{ami.id} is made of this image and called {name!r}, but it is not encrypted; {choice}")


def register(ec2: Any, arguments: Mapping[str, object]) -> str:
    """Register the AMI and return its id."""
    name = arguments["Name"]
    with aws.explain_errors(f"registering the AMI {name!r}"):
        try:
            return str(ec2.register_image(**arguments)["ImageId"])
        except Exception as error:
            if aws.error_code(error) != "InvalidAMIName.Duplicate":
                raise
    raise UsageError(
        f"the name {name!r} was given to another AMI meanwhile; choose another with --name: "
        "the uploaded snapshot is kept, and nothing is sent twice"
    )


def wait_until_available(ec2: Any, ami_id: str) -> None:
    """Wait until instances can be made of the AMI."""
    until = time.monotonic() + PATIENCE
    while True:
        with aws.explain_errors(f"asking for the state of {ami_id}"):
            raw = _describe(ec2, ami_id)
        state = raw.get("State", "pending")
        if state == "available":
            return
        if state not in ("pending", "transient"):
            reason = raw.get("StateReason", {}).get("Message") or state
            raise AwsError(f"{ami_id} cannot be used: {reason}; deregister it and run the same command again")
        if time.monotonic() > until:
            raise AwsError(f"{ami_id} is registered, but still {state}; run the same command again to go on waiting")
        time.sleep(POLL)


def _describe(ec2: Any, ami_id: str) -> dict[str, Any]:
    try:
        images: list[dict[str, Any]] = ec2.describe_images(ImageIds=[ami_id])["Images"]
    except Exception as error:  # AWS's own databases need a moment to know a new AMI
        if aws.error_code(error) != "InvalidAMIID.NotFound":
            raise
        return {}
    return images[0] if images else {}
