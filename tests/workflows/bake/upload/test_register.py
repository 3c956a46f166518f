"""What AWS is told of an AMI, checked against its own description of the calls."""

from __future__ import annotations

import dataclasses

import pytest
from botocore.stub import Stubber

from regiondag.bake.upload import register
from regiondag.bake.upload.register import (
    Ami,
    ami_name,
    ami_tags,
    check_free,
    describe_image,
    find_ami,
    register_arguments,
)
from regiondag.errors import AwsError, UsageError
from regiondag.util import aws as aws_module
from tests.workflows.bake.conftest import MANIFEST
from tests.workflows.fake_aws import REGION

TAGS = ami_tags("worker", MANIFEST, "ab" * 32)


@pytest.fixture
def stubbed(aws):
    """A client of EC2 whose answers are given, and whose arguments are checked."""
    ec2 = aws_module.client("ec2", REGION)
    with Stubber(ec2) as stubber:
        yield ec2, stubber
        stubber.assert_no_pending_responses()
    ec2.close()
    assert aws.calls == []


def test_the_arguments_of_register_image(stubbed):
    ec2, stubber = stubbed
    expected = {
        "Name": "worker",
        "Description": "regiondag worker: HTCondor 23.9.6, Debian trixie, NVIDIA driver 550.163.01 (closed), "
        f"manifest {MANIFEST.hash}",
        "Architecture": "x86_64",
        "VirtualizationType": "hvm",
        "EnaSupport": True,
        "BootMode": "uefi-preferred",
        "ImdsSupport": "v2.0",
        "RootDeviceName": "/dev/xvda",
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/xvda",
                "Ebs": {"SnapshotId": "snap-01", "VolumeType": "gp3", "DeleteOnTermination": True},
            }
        ],
        "TagSpecifications": [
            {"ResourceType": "image", "Tags": [{"Key": key, "Value": value} for key, value in TAGS.items()]}
        ],
    }
    stubber.add_response("register_image", {"ImageId": "ami-01"}, expected)
    assert register.register(ec2, register_arguments("worker", MANIFEST, TAGS, "snap-01")) == "ami-01"


def test_an_ami_is_read_with_its_tags_and_disks(stubbed):
    ec2, stubber = stubbed
    raw = {
        "ImageId": "ami-01",
        "Name": "worker",
        "State": "available",
        "Tags": [{"Key": "regiondag:manifest", "Value": "ab"}],
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True}}, {"VirtualName": "ephemeral0"}],
    }
    asked = {"Owners": ["self"], "Filters": [{"Name": "name", "Values": ["worker"]}]}
    stubber.add_response("describe_images", {"Images": [raw]}, asked)
    assert find_ami(ec2, "worker") == Ami("ami-01", "available", "ab", True)
    stubber.add_response("describe_images", {"Images": []}, asked)
    assert find_ami(ec2, "worker") is None


def test_waiting_for_an_ami(stubbed, monkeypatch):
    ec2, stubber = stubbed
    asked = {"ImageIds": ["ami-01"]}
    stubber.add_client_error("describe_images", "InvalidAMIID.NotFound", expected_params=asked)
    stubber.add_response("describe_images", {"Images": [{"State": "pending"}]}, asked)
    stubber.add_response("describe_images", {"Images": [{"State": "available"}]}, asked)
    register.wait_until_available(ec2, "ami-01")
    failed = {"State": "failed", "StateReason": {"Message": "Client.InternalError"}}
    stubber.add_response("describe_images", {"Images": [failed]}, asked)
    with pytest.raises(AwsError, match=r"ami-01 cannot be used: Client\.InternalError; deregister it"):
        register.wait_until_available(ec2, "ami-01")
    monkeypatch.setattr(register, "PATIENCE", -1.0)
    stubber.add_response("describe_images", {"Images": [{"State": "pending"}]}, asked)
    with pytest.raises(AwsError, match="still pending; run the same command again"):
        register.wait_until_available(ec2, "ami-01")


def test_the_default_name_says_what_is_in_it():
    assert ami_name(None, MANIFEST) == f"regiondag-trixie-closed-{MANIFEST.hash[:12]}"
    assert ami_name("My worker (2) [x] ./-'@_", MANIFEST) == "My worker (2) [x] ./-'@_"


def test_a_description_fits():
    assert "no NVIDIA driver" in describe_image(dataclasses.replace(MANIFEST, driver="none", driver_version=""))
    assert len(describe_image(dataclasses.replace(MANIFEST, driver_version="5" * 300))) == 255


def test_tags_are_within_the_limits_of_aws():
    assert all(len(key) <= 127 and len(value) <= 255 and not key.startswith("aws:") for key, value in TAGS.items())
    assert (
        ami_tags("n", dataclasses.replace(MANIFEST, driver="none", driver_version=""), "")["regiondag:driver"] == "none"
    )


@pytest.mark.parametrize("encrypted", [False, True])
def test_an_ami_of_this_manifest_is_taken(encrypted):
    check_free(None, "worker", MANIFEST, encrypted)
    check_free(Ami("ami-01", "available", MANIFEST.hash, True), "worker", MANIFEST, encrypted)


def test_a_bad_name_is_an_error_of_usage():
    with pytest.raises(UsageError, match="English letters, digits, spaces"):
        ami_name("größe", MANIFEST)
