"""What is sent to EC2 to make a fleet: tags, launch template, request for workers. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence

from regiondag.errors import ConfigError
from regiondag.fleet.config import LEASE_MINUTES, SPOT, Fleet
from regiondag.fleet.user_data import render_user_data
from regiondag.util.aws import tag_list

FLEET_TAG = "regiondag:fleet"
DRAIN_TAG = "regiondag-drain"
PEACEFUL = "peaceful"  # running jobs end by themselves
GRACEFUL = "graceful"  # they save and stop
MOST_USER_DATA = 16 * 1024  # EC2's limit, in bytes before base64

Pool = tuple[str, str]  # instance type, subnet


def tags(name: str) -> list[dict[str, str]]:
    """Return the tags of everything that belongs to a fleet."""
    return tag_list({FLEET_TAG: name, "Name": f"regiondag-{name}"})


def of_fleet(name: str) -> list[dict[str, object]]:
    """Return the filter that finds what belongs to a fleet."""
    return [{"Name": f"tag:{FLEET_TAG}", "Values": [name]}]


def worker_settings(fleet: Fleet) -> dict[str, object]:
    """Return what user data writes to /etc/regiondag/worker.json."""
    kind, name = fleet.token
    worker: dict[str, object] = {
        "manager": fleet.manager,
        "token": {kind: name},
        "region": fleet.region,
        "fleet": fleet.name,
        "idle_minutes": fleet.idle_minutes,
        "join_minutes": fleet.join_minutes,
    }
    # Images that were baked before there were leases do not know the key, and would not join.
    if fleet.lease_minutes != LEASE_MINUTES:
        worker["lease_minutes"] = fleet.lease_minutes
    if fleet.domain:
        worker["domain"] = fleet.domain
    if fleet.settings:
        worker["settings"] = dict(fleet.settings)
    return worker


def user_data(fleet: Fleet) -> str:
    """Return the user data of a worker, in base64."""
    text = render_user_data(worker_settings(fleet)).encode()
    if len(text) > MOST_USER_DATA:
        raise ConfigError(
            [fleet.problem("settings", f"they make user data of {len(text)} bytes; EC2 takes {MOST_USER_DATA}")]
        )
    return base64.b64encode(text).decode()


def template_name(name: str, purchase: str) -> str:
    """Return the name of a fleet's launch template; there is one for each way to buy.

    A template that tags spot requests cannot start instances on demand: EC2 refuses it.
    """
    return f"regiondag-{name}-{purchase}"


def template_data(fleet: Fleet, image_id: str, root_device: str, purchase: str) -> dict[str, object]:
    """Return the launch template of a fleet's workers."""
    tagged = ["instance", "volume", "network-interface"]
    if purchase == SPOT:
        tagged.append("spot-instances-request")
    profile = "Arn" if fleet.instance_profile.startswith("arn:") else "Name"
    return {
        "ImageId": image_id,
        "IamInstanceProfile": {profile: fleet.instance_profile},
        "SecurityGroupIds": list(fleet.security_groups),
        "UserData": user_data(fleet),
        "InstanceInitiatedShutdownBehavior": "terminate",  # a worker that powers off is gone for good
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "enabled",  # how a worker hears that it shall drain
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": root_device,
                "Ebs": {
                    "VolumeSize": fleet.disk_gb,
                    "VolumeType": "gp3",
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags(fleet.name)} for kind in tagged],
    }


def template_hash(data: Mapping[str, object]) -> str:
    """Return the description of a template's version, by which the next `up` knows whether it is still right."""
    return "regiondag " + hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def fleet_request(
    name: str, template: tuple[str, int], pools: Sequence[Pool], purchase: str, count: int, token: str
) -> dict[str, object]:
    """Return the arguments of create_fleet for `count` workers; `template` is an id and a version.

    Type `instant`: EC2 answers at once with what it started, and replaces nothing that ends, so a fleet whose
    idle workers power off stays small. Nothing is bought twice: a repeated `token` gives the first call's answer.
    """
    request: dict[str, object] = {
        "Type": "instant",
        "ClientToken": token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template[0], "Version": str(template[1])},
                "Overrides": [{"InstanceType": kind, "SubnetId": subnet} for kind, subnet in pools],
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": purchase},
        # The launch template tags all that an instance is made of.
        "TagSpecifications": [{"ResourceType": "fleet", "Tags": tags(name)}],
    }
    if purchase == SPOT:
        request["SpotOptions"] = {
            "AllocationStrategy": "price-capacity-optimized",
            "InstanceInterruptionBehavior": "terminate",
        }
    else:
        request["OnDemandOptions"] = {"AllocationStrategy": "lowest-price"}
    return request
