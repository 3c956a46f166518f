"""AWS as moto plays it, in this process; what moto leaves out is added, calls are recorded, faults can be planted."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.loaders import JSONFileLoader
from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse
from moto.ec2.models.fleets import Fleet as MotoFleet

from regiondag.fleet import queue
from regiondag.fleet.config import Fleet, load_fleet
from regiondag.fleet.demand import GpuRequest, Worker
from regiondag.pool import pool as pools
from regiondag.pool.pool import Pool
from regiondag.util import aws

REGION = "eu-central-1"
TAG = "regiondag:fleet"


def play_pool(
    patch: pytest.MonkeyPatch,
    requests: Callable[[], list[GpuRequest]],
    workers: Callable[[], dict[str, Worker]] = dict,
) -> None:
    """Let the commands find a pool of 23.9, with these requests and workers."""
    found = Pool("default", "installed", (23, 9, 6))
    patch.setattr(pools, "find_pool", lambda name=None: found)
    patch.setattr(pools, "require_pool", lambda name=None: found)
    patch.setattr(queue, "query_gpu_requests", lambda pool, fleet: requests())
    patch.setattr(queue, "query_workers", lambda pool, fleet: workers())


@dataclass
class Cloud:
    """The account, seen from the side."""

    ec2: Any
    image: str = ""
    subnets: list[str] = field(default_factory=list)
    group: str = ""
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)  # operation and body, repetitions as well
    answers: dict[str, Callable[[], tuple[int, bytes] | None]] = field(default_factory=dict)  # by operation

    def names(self) -> list[str]:
        return [name for _, name, _ in self.calls]

    def arguments(self, operation: str) -> dict[str, Any]:
        return [given for _, name, given in self.calls if name == operation][-1]

    def refuse(self, operation: str, code: str, message: str = "planted", times: int = 1000) -> None:
        """Let the next calls of an operation fail."""
        left = [times]

        def answer() -> tuple[int, bytes] | None:
            left[0] -= 1
            body = (
                f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
            )
            return (400, body.encode()) if left[0] >= 0 else None

        self.answers[operation] = answer

    def alive(self) -> list[dict[str, Any]]:
        states = {"Name": "instance-state-name", "Values": ["pending", "running"]}
        reservations = self.ec2.describe_instances(Filters=[states])["Reservations"]
        return [instance for reservation in reservations for instance in reservation["Instances"]]

    def ids(self) -> list[str]:
        return [instance["InstanceId"] for instance in self.alive()]

    def versions(self) -> list[dict[str, Any]]:
        templates = self.ec2.describe_launch_templates()["LaunchTemplates"]
        return [
            version
            for template in templates
            for version in self.ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])[
                "LaunchTemplateVersions"
            ]
        ]


def price_list(dollars: float) -> bytes:
    """Return the price list's answer for one product."""
    terms = {"OnDemand": {"a": {"priceDimensions": {"b": {"unit": "Hrs", "pricePerUnit": {"USD": str(dollars)}}}}}}
    return json.dumps({"FormatVersion": "aws_v1", "PriceList": [json.dumps({"terms": terms})]}).encode()


_load_file = functools.cache(JSONFileLoader().load_file)


@pytest.fixture(autouse=True)
def models_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading botocore's description of EC2 takes longer than most tests."""
    monkeypatch.setattr(JSONFileLoader, "load_file", lambda self, path: _load_file(path))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give credentials that open nothing, and let none of the user's own be found."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cloud(no_network: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cloud]:
    """An account with an image of ours, two subnets and a security group."""
    make_client = aws.client
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    with mock_aws():
        ec2 = make_client("ec2", REGION)
        account = Cloud(ec2)
        account.answers["GetProducts"] = lambda: (200, price_list(1.258))
        account.image = ec2.register_image(Name="regiondag-worker", RootDeviceName="/dev/xvda")["ImageId"]
        tags = [{"Key": "regiondag:manifest", "Value": "ab12"}, {"Key": "regiondag:htcondor", "Value": "23.9.6"}]
        ec2.create_tags(Resources=[account.image], Tags=tags)
        subnets = sorted(ec2.describe_subnets()["Subnets"], key=lambda raw: raw["AvailabilityZone"])
        account.subnets = [raw["SubnetId"] for raw in subnets]
        groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [subnets[0]["VpcId"]]}])
        account.group = groups["SecurityGroups"][0]["GroupId"]
        monkeypatch.setattr(BotocoreStubber, "__call__", _planting(account))
        monkeypatch.setattr(aws, "client", lambda *given: _watched(make_client(*given), account))
        # Of a fleet whose instances have ended, moto asks to terminate none, and then refuses that.
        monkeypatch.setattr(MotoFleet, "terminate_instances", lambda self: None)
        yield account


def _planting(account: Cloud) -> Callable[..., AWSResponse]:
    """Return moto's hook before a request is sent, with planted answers; nothing ever goes to the network."""
    ask_moto = BotocoreStubber.__call__

    def before_send(self: BotocoreStubber, event_name: str, request: Any, **more: Any) -> AWSResponse:
        operation = event_name.split(".")[-1]
        account.sent.append((operation, str(request.body)))
        planned = account.answers.get(operation)
        given = planned() if planned else None
        if given is not None:
            kind = "application/json" if given[1].startswith(b"{") else "text/xml"
            return AWSResponse(request.url, given[0], {"content-type": kind}, MockRawResponse(given[1]))
        answer = ask_moto(self, event_name, request, **more)
        assert answer is not None, f"{operation} would have gone to {request.url}"
        return answer

    return before_send


def _watched(client: Any, account: Cloud) -> Any:
    """Record the client's calls, and add to answers what moto leaves out."""

    def record(params: dict[str, Any], model: Any, **_: Any) -> None:
        account.calls.append((model.service_model.endpoint_prefix, model.name, params))

    def complete(parsed: dict[str, Any], **_: Any) -> None:
        for image in parsed.get("Images", []):
            image.setdefault("EnaSupport", True)
            image.setdefault("Architecture", "x86_64")

    client.meta.events.register("provide-client-params.*.*", record)
    client.meta.events.register("after-call.ec2.DescribeImages", complete)
    return client


@pytest.fixture
def fleet_file(cloud: Cloud, tmp_path: Path) -> Path:
    """A fleet.yaml that fits the account."""
    path = tmp_path / "fleet.yaml"
    path.write_text(fleet_text(cloud))
    return path


def fleet_text(cloud: Cloud, **changes: str) -> str:
    """Return fleet.yaml with some values (YAML text) changed, or left out where the change is empty."""
    values = {
        "fleet": "demo",
        "region": REGION,
        "manager": "10.0.0.5",
        "token": "{ssm: /regiondag/pool-token}",
        "instances": "[g5.xlarge, g4dn.xlarge]",
        "subnets": f"[{', '.join(cloud.subnets[:2])}]",
        "security_groups": f"[{cloud.group}]",
        "instance_profile": "regiondag-worker",
        "workers": "{min: 2, max: 4}",
    }
    return "".join(f"{key}: {value}\n" for key, value in {**values, **changes}.items() if value)


@pytest.fixture
def fleet(fleet_file: Path) -> Fleet:
    """What the file says."""
    return load_fleet(fleet_file)


def leave_orphans(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make one of each thing that a fleet can leave behind, old enough; return their ids."""
    from regiondag.fleet import orphans
    from regiondag.fleet.template import tags

    monkeypatch.setattr(orphans, "YOUNG_SECONDS", -60.0)
    monkeypatch.setattr(orphans, "UPLOAD_SECONDS", -60.0)

    def ours(kind: str) -> list[dict[str, Any]]:
        return [{"ResourceType": kind, "Tags": tags("demo")}]

    zone = cloud.ec2.describe_subnets(SubnetIds=cloud.subnets[:1])["Subnets"][0]["AvailabilityZone"]
    volume = cloud.ec2.create_volume(AvailabilityZone=zone, Size=30, TagSpecifications=ours("volume"))
    interface = cloud.ec2.create_network_interface(
        SubnetId=cloud.subnets[0], TagSpecifications=ours("network-interface")
    )
    request = cloud.ec2.request_spot_instances(
        LaunchSpecification={"ImageId": cloud.image, "InstanceType": "g5.xlarge"},
        TagSpecifications=ours("spot-instances-request"),
    )["SpotInstanceRequests"][0]
    stale = cloud.ec2.create_launch_template(
        LaunchTemplateName="regiondag-demo-old",
        LaunchTemplateData={"ImageId": cloud.image},
        TagSpecifications=ours("launch-template"),
    )["LaunchTemplate"]
    started = cloud.ec2.run_instances(
        ImageId=cloud.image, MinCount=1, MaxCount=1, InstanceType="g5.xlarge", TagSpecifications=ours("instance")
    )["Instances"][0]
    return [
        started["InstanceId"],
        request["SpotInstanceRequestId"],
        volume["VolumeId"],
        interface["NetworkInterface"]["NetworkInterfaceId"],
        stale["LaunchTemplateId"],
        leave_snapshot(cloud),
    ]


def leave_snapshot(cloud: Cloud, keep_image: bool = False) -> str:
    """Register an image as `bake ami` does, and deregister it; return the id of its snapshot."""
    image = cloud.ec2.register_image(Name=f"old-{len(cloud.calls)}", RootDeviceName="/dev/xvda")["ImageId"]
    (mapping,) = cloud.ec2.describe_images(ImageIds=[image])["Images"][0]["BlockDeviceMappings"]
    snapshot = mapping["Ebs"]["SnapshotId"]
    marks = [{"Key": "regiondag:manifest", "Value": "cd34"}, {"Key": "Name", "Value": "regiondag-trixie-old"}]
    cloud.ec2.create_tags(Resources=[snapshot], Tags=marks)
    if not keep_image:
        cloud.ec2.deregister_image(ImageId=image)
    return str(snapshot)
