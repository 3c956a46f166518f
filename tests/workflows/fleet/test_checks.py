"""fleet.yaml against what AWS has."""

from __future__ import annotations

import pytest

from regiondag.errors import AwsError, ConfigError
from regiondag.fleet.checks import _check_kind, _Findings, _image_of, kind_of, look_up
from regiondag.fleet.config import load_fleet
from regiondag.fleet.demand import WorkerSize
from regiondag.util import aws
from tests.workflows.fleet.conftest import REGION, Cloud, fleet_text

KIND = {
    "InstanceType": "x1.large",
    "GpuInfo": {"Gpus": [{"Manufacturer": "NVIDIA", "Count": 1}]},
    "VCpuInfo": {"DefaultVCpus": 4},
    "MemoryInfo": {"SizeInMiB": 16384},
    "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    "SupportedBootModes": ["legacy-bios", "uefi"],
    "SupportedUsageClasses": ["on-demand", "spot"],
    "Hypervisor": "nitro",
}
IMAGE = {"ImageId": "ami-12345678", "Architecture": "x86_64", "BootMode": "uefi-preferred", "EnaSupport": True}


def look(cloud: Cloud, tmp_path, **changes: str):
    path = tmp_path / "fleet.yaml"
    path.write_text(fleet_text(cloud, **changes))
    return look_up(aws.client("ec2", REGION), load_fleet(path))


def problems(cloud: Cloud, tmp_path, **changes: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        look(cloud, tmp_path, **changes)
    return [text.removeprefix(f"{tmp_path}/fleet.yaml:") for text in caught.value.problems]


def test_what_is_right(cloud, tmp_path):
    ground = look(cloud, tmp_path)
    assert ground.image.id == cloud.image
    assert ground.image.htcondor == "23.9.6"
    assert ground.size == WorkerSize(1, 4, 16384)
    assert set(ground.pools) == {(kind, net) for kind in ("g5.xlarge", "g4dn.xlarge") for net in cloud.subnets[:2]}
    assert ground.notes == ()


def test_the_newest_image_of_ours_is_taken(cloud, tmp_path):
    cloud.ec2.register_image(Name="of somebody else", RootDeviceName="/dev/xvda")
    assert look(cloud, tmp_path, image="latest").image.id == cloud.image
    assert look(cloud, tmp_path, image=cloud.image).image.id == cloud.image


def test_an_unknown_image(cloud, tmp_path):
    (line,) = problems(cloud, tmp_path, image="ami-0123456789abcdef0")
    assert line.startswith("10: image: seen 'ami-0123456789abcdef0': ")
    assert "does not exist" in line or "do not exist" in line or "not" in line
    assert "eu-central-1" in line


def test_an_image_without_a_driver_is_not_paid_for(cloud, tmp_path):
    tag = {"Key": "regiondag:driver", "Value": "none"}
    cloud.ec2.create_tags(Resources=[cloud.image], Tags=[tag])
    (line,) = problems(cloud, tmp_path)
    assert f"image: {cloud.image} has no NVIDIA driver" in line
    assert line.endswith(f"regiondag bake image --driver auto --fleet {tmp_path}/fleet.yaml")
    cloud.ec2.create_tags(Resources=[cloud.image], Tags=[{**tag, "Value": "closed 550.163.01"}])
    assert look(cloud, tmp_path).image.driver == "closed 550.163.01"


def test_an_image_of_somebody_else(cloud, tmp_path):
    other = cloud.ec2.register_image(Name="of somebody else", RootDeviceName="/dev/xvda")["ImageId"]
    (line,) = problems(cloud, tmp_path, image=other)
    assert f"not baked by regiondag (no tag of its own on {other})" in line
    assert "`regiondag bake ami` makes one" in line


def test_no_image_at_all(cloud, tmp_path):
    cloud.ec2.deregister_image(ImageId=cloud.image)
    (line,) = problems(cloud, tmp_path)
    assert line == "1: image: seen 'latest': this account has no image here; `regiondag bake ami` makes one"


def test_everything_wrong_is_said_at_once(cloud, tmp_path):
    found = problems(
        cloud,
        tmp_path,
        image="ami-0123456789abcdef0",
        subnets="[subnet-0123456789abcdef0]",
        security_groups="[sg-0123456789abcdef0]",
        instances="[g5.xlarge, m5.large, g99.huge]",
    )
    assert [line.split(": ")[1] for line in found] == ["image", "subnets", "security_groups", "instances", "instances"]
    assert "there is no instance type 'g99.huge' in eu-central-1" in found[3]
    assert "m5.large has no GPU" in found[4]


def test_security_groups_are_of_the_subnets_network(cloud, tmp_path):
    other = cloud.ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    group = cloud.ec2.create_security_group(GroupName="x", Description="x", VpcId=other)["GroupId"]
    (line,) = problems(cloud, tmp_path, security_groups=f"[{group}]")
    assert f"{group} belongs to the network {other}" in line
    subnet = cloud.ec2.create_subnet(VpcId=other, CidrBlock="10.9.0.0/24", AvailabilityZone=f"{REGION}c")
    nets = f"[{cloud.subnets[0]}, {subnet['Subnet']['SubnetId']}]"
    assert any("they lie in several networks" in line for line in problems(cloud, tmp_path, subnets=nets))


def test_one_subnet_of_each_zone_is_used(cloud, tmp_path):
    vpc = cloud.ec2.describe_subnets(SubnetIds=cloud.subnets[:1])["Subnets"][0]["VpcId"]
    small = cloud.ec2.create_subnet(VpcId=vpc, CidrBlock="172.31.200.0/28", AvailabilityZone=f"{REGION}a")
    name = small["Subnet"]["SubnetId"]
    ground = look(cloud, tmp_path, subnets=f"[{name}, {cloud.subnets[0]}]")
    assert {subnet for _, subnet in ground.pools} == {cloud.subnets[0]}
    assert len(ground.notes) == 1
    assert f"{name} is not used: it lies in {REGION}a as {cloud.subnets[0]} does" in ground.notes[0]


def test_a_type_that_is_offered_elsewhere_only(cloud, tmp_path, monkeypatch):
    body = (
        "<DescribeInstanceTypeOfferingsResponse><instanceTypeOfferingSet><item><instanceType>g5.xlarge</instanceType>"
        f"<locationType>availability-zone</locationType><location>{REGION}a</location></item></instanceTypeOfferingSet>"
        "</DescribeInstanceTypeOfferingsResponse>"
    )
    cloud.answers["DescribeInstanceTypeOfferings"] = lambda: (200, body.encode())
    ground = look(cloud, tmp_path, instances="[g5.xlarge]")
    assert ground.pools == (("g5.xlarge", cloud.subnets[0]),)
    assert ground.notes == (f"g5.xlarge is not offered in {REGION}b; it is started in other zones only",)
    (line,) = problems(cloud, tmp_path)
    assert f"g4dn.xlarge is not offered in any zone of the subnets: {REGION}a, {REGION}b" in line


def test_the_image_must_fit_on_the_disk(cloud, tmp_path):
    found = problems(cloud, tmp_path, disk="10GB")
    assert found == [f"10: disk: 10GB is smaller than the image {cloud.image}: 15GB"]


def test_unauthorised_names_what_was_being_done(cloud, tmp_path):
    cloud.refuse("DescribeImages", "UnauthorizedOperation", "You are not authorized to perform: ec2:DescribeImages")
    with pytest.raises(AwsError, match=r"looking for the image latest: AWS answers UnauthorizedOperation: .*policy"):
        look(cloud, tmp_path)


@pytest.mark.parametrize(
    ("changes", "image_changes", "message"),
    [
        ({"GpuInfo": {"Gpus": [{"Manufacturer": "AMD", "Count": 1}]}}, {}, "the GPUs of x1.large are AMD's"),
        ({"SupportedUsageClasses": ["on-demand"]}, {}, "x1.large cannot be had as spot, only as on-demand"),
        (
            {"ProcessorInfo": {"SupportedArchitectures": ["arm64"]}},
            {},
            "has a processor of arm64, ami-12345678 is for x86",
        ),
        ({}, {"EnaSupport": False}, "does not say that it has ENA's driver"),
        (
            {"SupportedBootModes": ["legacy-bios"]},
            {"BootMode": "uefi"},
            "x1.large boots by legacy-bios, ami-12345678 by uefi",
        ),
        ({}, {"BootMode": "legacy-bios"}, None),
        ({}, {}, None),
    ],
)
def test_a_type_and_an_image_must_fit(fleet, changes, image_changes, message):
    findings = _Findings(fleet)
    _check_kind(kind_of({**KIND, **changes}), _image_of({**IMAGE, **image_changes}), fleet, findings)
    assert [message in line for line in findings.problems] == ([True] if message else [])


def test_a_type_that_does_not_see_new_tags_is_said(fleet):
    findings = _Findings(fleet)
    _check_kind(kind_of({**KIND, "Hypervisor": "xen"}), _image_of(IMAGE), fleet, findings)
    assert findings.problems == []
    assert "x1.large is not of the Nitro system and does not see tags set after its start" in findings.notes[0]


def test_a_shared_gpu_is_one_gpu(cloud):
    raw = cloud.ec2.describe_instance_types(InstanceTypes=["g6f.xlarge"])["InstanceTypes"][0]
    assert raw["GpuInfo"]["Gpus"][0]["Count"] == 0
    assert kind_of(raw).size.gpus == 1
    bare = cloud.ec2.describe_instance_types(InstanceTypes=["g4dn.metal"])["InstanceTypes"][0]
    assert kind_of(bare).size.gpus == 8
    assert kind_of(bare).nitro
