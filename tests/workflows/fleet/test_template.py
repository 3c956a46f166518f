"""What is sent to EC2: user data that nothing can break out of, arguments that EC2's model accepts."""

from __future__ import annotations

import base64
import dataclasses
import json

import pytest
import yaml
from botocore.stub import ANY, Stubber
from hypothesis import given
from hypothesis import strategies as st

from regiondag.errors import ConfigError
from regiondag.fleet import ec2
from regiondag.fleet.config import ON_DEMAND, SPOT
from regiondag.fleet.template import (
    fleet_request,
    tags,
    template_data,
    template_hash,
    template_name,
    user_data,
    worker_settings,
)
from regiondag.fleet.user_data import render_user_data
from regiondag.util import aws

VALUES = st.recursive(
    st.text(st.characters(codec=None), max_size=30) | st.integers(-(2**40), 2**40) | st.booleans(),
    lambda inner: st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=10), VALUES, max_size=6))
def test_whatever_the_values_parsing_gives_exactly_them_back(worker):
    text = render_user_data(worker)
    assert text.startswith("#cloud-config\n")
    parsed = yaml.safe_load(text)
    (file,) = parsed.pop("write_files")
    assert parsed == {}
    assert json.loads(file.pop("content")) == worker
    assert file == {"path": "/etc/regiondag/worker.json", "owner": "root:root", "permissions": "0600"}


@pytest.mark.parametrize(
    "value",
    ['"\nruncmd: [reboot]\n', "{{ 7 * 7 }}", "{% raw %}", "$(reboot)", "\x7f\x85\u2028\ufeff", "'", "\\", "😀\ud800"],
)
def test_hostile_values_stay_values(value):
    parsed = yaml.safe_load(render_user_data({"manager": value}))
    assert list(parsed) == ["write_files"]
    assert json.loads(parsed["write_files"][0]["content"]) == {"manager": value}


def test_worker_json_is_what_workers_read(fleet):
    assert worker_settings(fleet) == {
        "manager": "10.0.0.5",
        "token": {"ssm": "/regiondag/pool-token"},
        "region": "eu-central-1",
        "fleet": "demo",
        "idle_minutes": 15,
        "join_minutes": 15,
    }
    more = dataclasses.replace(fleet, domain="pool.example", settings={"START": "true"})
    assert worker_settings(more) | worker_settings(fleet) == worker_settings(more)
    assert (worker_settings(more)["domain"], worker_settings(more)["settings"]) == ("pool.example", {"START": "true"})


def test_user_data_has_a_limit(fleet):
    large = dataclasses.replace(fleet, settings={"A": "x" * 17_000})
    with pytest.raises(ConfigError, match=r"fleet.yaml:1: settings: they make user data of \d+ bytes; EC2 takes 16384"):
        user_data(large)


def test_launch_template_arguments(fleet, no_network):
    data = template_data(fleet, "ami-12345678", "/dev/xvda", SPOT)
    client = aws.client("ec2", "eu-central-1")
    answer = {"LaunchTemplate": {"LaunchTemplateId": "lt-1"}}
    expected = {
        "LaunchTemplateName": "regiondag-demo-spot",
        "VersionDescription": template_hash(data),
        "LaunchTemplateData": {
            "ImageId": "ami-12345678",
            "IamInstanceProfile": {"Name": "regiondag-worker"},
            "SecurityGroupIds": list(fleet.security_groups),
            "UserData": ANY,
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": 1,
                "InstanceMetadataTags": "enabled",
            },
            "BlockDeviceMappings": [
                {
                    "DeviceName": "/dev/xvda",
                    "Ebs": {"VolumeSize": 30, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True},
                }
            ],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tags("demo")}
                for kind in ("instance", "volume", "network-interface", "spot-instances-request")
            ],
        },
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags("demo")}],
    }
    with Stubber(client) as stub:
        stub.add_response("create_launch_template", answer, expected)
        ec2.create_template(client, "demo", template_name("demo", SPOT), data, template_hash(data))
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("purchase", "options"),
    [
        (
            SPOT,
            {
                "SpotOptions": {
                    "AllocationStrategy": "price-capacity-optimized",
                    "InstanceInterruptionBehavior": "terminate",
                }
            },
        ),
        (ON_DEMAND, {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}}),
    ],
)
def test_fleet_arguments_and_partial_capacity(no_network, purchase, options):
    pools = (("g5.xlarge", "subnet-a"), ("g5.xlarge", "subnet-b"))
    expected = {
        "Type": "instant",
        "ClientToken": "token",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "3"},
                "Overrides": [
                    {"InstanceType": "g5.xlarge", "SubnetId": "subnet-a"},
                    {"InstanceType": "g5.xlarge", "SubnetId": "subnet-b"},
                ],
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 3, "DefaultTargetCapacityType": purchase},
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags("demo")} for kind in ("fleet",)],
        **options,
    }
    answer = {
        "FleetId": "fleet-1",
        "Instances": [{"InstanceIds": ["i-1", "i-2"], "InstanceType": "g5.xlarge"}],
        "Errors": [
            {
                "ErrorCode": "InsufficientInstanceCapacity",
                "ErrorMessage": "none left",
                "LaunchTemplateAndOverrides": {"Overrides": {"InstanceType": "g5.xlarge", "SubnetId": "subnet-a"}},
            }
        ],
    }
    client = aws.client("ec2", "eu-central-1")
    with Stubber(client) as stub:
        stub.add_response("create_fleet", answer, expected)
        started, failures = ec2.start(client, fleet_request("demo", ("lt-1", 3), pools, purchase, 3, "token"))
    assert started == ["i-1", "i-2"]
    assert failures == [ec2.LaunchFailure("InsufficientInstanceCapacity", "none left", "g5.xlarge in subnet-a")]


def test_only_a_template_for_spot_tags_spot_requests(fleet):
    kinds = [
        {
            spec["ResourceType"]
            for spec in template_data(fleet, "ami-12345678", "/dev/xvda", purchase)["TagSpecifications"]
        }
        for purchase in (SPOT, ON_DEMAND)
    ]
    assert kinds[0] - kinds[1] == {"spot-instances-request"}


def test_the_hash_follows_what_is_in_the_template(fleet):
    first = template_hash(template_data(fleet, "ami-12345678", "/dev/xvda", SPOT))
    assert first == template_hash(template_data(fleet, "ami-12345678", "/dev/xvda", SPOT))
    assert len(first) <= 255
    changed = dataclasses.replace(fleet, idle_minutes=16)
    assert first != template_hash(template_data(changed, "ami-12345678", "/dev/xvda", SPOT))
    assert first != template_hash(template_data(fleet, "ami-12345679", "/dev/xvda", SPOT))


def test_a_profile_may_be_an_arn(fleet):
    arn = "arn:aws:iam::123456789012:instance-profile/worker"
    data = template_data(dataclasses.replace(fleet, instance_profile=arn), "ami-12345678", "/dev/xvda", SPOT)
    assert data["IamInstanceProfile"] == {"Arn": arn}


def test_no_token_is_in_user_data(fleet):
    text = base64.b64decode(user_data(fleet)).decode()
    assert '\\"token\\": {\\"ssm\\": \\"/regiondag/pool-token\\"}' in text
