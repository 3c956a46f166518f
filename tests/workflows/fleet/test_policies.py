"""The IAM policies allow what is done, and nothing that is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regiondag.cli import main
from regiondag.fleet.config import load_fleet
from regiondag.fleet.demand import GpuRequest
from tests.workflows import aws_policy
from tests.workflows.fleet.conftest import fleet_text, leave_orphans, play_pool

POLICIES = Path(__file__).parents[3] / "ami" / "policies"

# What AWS asks for beside the call that is made: create_fleet starts instances, tags them, hands them their role, and
# makes its own roles at its first use in an account.
IMPLIED = {
    "ec2:CreateFleet": {"ec2:RunInstances", "ec2:CreateTags", "iam:PassRole", "iam:CreateServiceLinkedRole"},
    "ec2:DeleteFleets": {"ec2:TerminateInstances"},
}
PREFIX = {"api.pricing": "pricing"}


def statements(name: str) -> list[dict[str, Any]]:
    return aws_policy.statements(POLICIES / name)


def allowing(name: str, action: str) -> list[dict[str, Any]]:
    return [statement for statement in statements(name) if statement["Action"] == [action]]


@pytest.fixture
def called(cloud, tmp_path, monkeypatch) -> set[str]:
    """Everything that the verbs call in the life of a fleet."""
    play_pool(monkeypatch, lambda: [GpuRequest(1, 1, 1)] * 9)
    path = tmp_path / "fleet.yaml"

    def run(*words: str, **changes: str) -> None:
        path.write_text(fleet_text(cloud, **changes))
        assert main(["fleet", words[0], "--file", str(path), *words[1:]]) == 0

    run("up", "--dry-run", purchase="on-demand")
    run("up", "--dry-run")
    run("up")
    run("up", idle_minutes="30")
    run("scale", idle_minutes="30")
    run("status")
    run("scale", "--workers", "1")
    run("down", "--dry-run")
    run("down", "--now")
    leave_orphans(cloud, monkeypatch)
    run("clean")
    run("clean", "--yes")
    return {f"{PREFIX.get(service, service)}:{name}" for service, name, _ in cloud.calls}


def test_every_call_is_allowed_and_nothing_else_is(called):
    implied = {action for call in called for action in IMPLIED.get(call, ())}
    aws_policy.check_policy(POLICIES / "fleet.json", called, implied)


def test_what_changes_something_is_tied_to_the_tag():
    """Only reading, and what has no tag to look at, is allowed everywhere."""
    free = {"ec2:CreateFleet", "iam:PassRole", "iam:CreateServiceLinkedRole", "ec2:RunInstances"}
    aws_policy.check_wide_resources(POLICIES / "fleet.json")
    for statement in statements("fleet.json"):
        given = set(statement["Action"])
        if all(action.split(":")[1].startswith(("Describe", "Get")) for action in given):
            assert "Condition" not in statement
        elif given == {"ec2:DeleteSnapshot"}:
            assert statement["Condition"] == {"Null": {"aws:ResourceTag/regiondag:manifest": "false"}}
        elif not given <= free:
            assert "regiondag:fleet" in json.dumps(statement["Condition"]), statement


def test_instances_cannot_be_started_without_the_tag_nor_with_an_open_metadata_service():
    started = [one for one in statements("fleet.json") if "ec2:RunInstances" in one["Action"]]
    (instances,) = (one for one in started if one["Resource"] == ["arn:aws:ec2:*:*:instance/*"])
    assert instances["Condition"]["Null"] == {"aws:RequestTag/regiondag:fleet": "false"}
    assert instances["Condition"]["StringEquals"] == {"ec2:MetadataHttpTokens": "required"}
    assert not any("instance/" in resource for one in started if one is not instances for resource in one["Resource"])


def test_tags_can_only_be_set_at_creation_or_to_drain():
    creation, drain = allowing("fleet.json", "ec2:CreateTags")
    at_creation = creation["Condition"]["StringEquals"]["ec2:CreateAction"]
    assert at_creation == ["CreateFleet", "CreateLaunchTemplate", "RunInstances"]
    assert drain["Resource"] == ["arn:aws:ec2:*:*:instance/*"]
    assert drain["Condition"] == {
        "ForAllValues:StringEquals": {"aws:TagKeys": ["regiondag-drain"]},
        "Null": {"ec2:ResourceTag/regiondag:fleet": "false"},
    }


def test_a_role_is_handed_to_ec2_only():
    (handed,) = allowing("fleet.json", "iam:PassRole")
    assert handed["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    assert handed["Resource"] == ["arn:aws:iam::*:role/regiondag-worker"]


def test_a_worker_may_read_the_token_and_nothing_else():
    found = {one["Action"][0]: one["Resource"] for one in statements("worker.json")}
    assert found == {
        "ssm:GetParameter": ["arn:aws:ssm:*:*:parameter/regiondag/pool-token"],
        # Secrets Manager puts a dash and six characters after the name.
        "secretsmanager:GetSecretValue": ["arn:aws:secretsmanager:*:*:secret:regiondag/pool-token-??????"],
    }


def test_the_examples_token_and_role_are_those_of_the_policies():
    fleet = load_fleet(POLICIES.parent / "fleet.example.yaml")
    (readable,) = allowing("worker.json", "ssm:GetParameter")
    assert readable["Resource"][0].endswith(f":parameter{fleet.token[1]}")
    (handed,) = allowing("fleet.json", "iam:PassRole")
    assert handed["Resource"][0].endswith(f":role/{fleet.instance_profile}")


# --- simulated calls ---------------------------------------------------------------------------------------

ARN = "arn:aws:ec2:eu-central-1:123456789012:{}/x"
IMAGE, SNAPSHOT = "arn:aws:ec2:eu-central-1::image/ami-1", "arn:aws:ec2:eu-central-1::snapshot/snap-1"
OUR_TAG = {"aws:RequestTag/regiondag:fleet": "demo"}
OURS = {"ec2:ResourceTag/regiondag:fleet": "demo"}
OUR_IMAGE = {"aws:ResourceTag/regiondag:manifest": "ab12"}
IMDSV2 = {"ec2:MetadataHttpTokens": "required"}
AT_START = {"ec2:CreateAction": "RunInstances"}
ROLE = "arn:aws:iam::123456789012:role/{}"
TO_LAMBDA = {"iam:PassedToService": "lambda.amazonaws.com"}
TO_EC2 = {"iam:PassedToService": "ec2.amazonaws.com"}


@pytest.mark.parametrize(
    ("policy", "action", "resource", "context", "allowed"),
    [
        ("fleet", "ec2:RunInstances", ARN.format("instance"), {**OUR_TAG, **IMDSV2}, True),
        ("fleet", "ec2:RunInstances", ARN.format("instance"), IMDSV2, False),
        ("fleet", "ec2:RunInstances", ARN.format("instance"), {**OUR_TAG, "ec2:MetadataHttpTokens": "optional"}, False),
        ("fleet", "ec2:RunInstances", ARN.format("launch-template"), OURS, True),
        ("fleet", "ec2:RunInstances", ARN.format("launch-template"), {}, False),
        ("fleet", "ec2:RunInstances", IMAGE, {}, True),
        ("fleet", "ec2:RunInstances", ARN.format("key-pair"), {}, False),
        ("fleet", "ec2:CreateFleet", ARN.format("fleet"), OUR_TAG, True),
        ("fleet", "ec2:CreateFleet", ARN.format("fleet"), {}, False),
        ("fleet", "ec2:CreateFleet", ARN.format("launch-template"), OURS, True),
        ("fleet", "ec2:CreateFleet", ARN.format("launch-template"), {}, False),
        ("fleet", "ec2:CreateFleet", ARN.format("subnet"), {}, True),
        ("fleet", "ec2:TerminateInstances", ARN.format("instance"), OURS, True),
        ("fleet", "ec2:TerminateInstances", ARN.format("instance"), {}, False),
        ("fleet", "ec2:DeleteLaunchTemplate", ARN.format("launch-template"), {}, False),
        ("fleet", "ec2:CreateTags", ARN.format("instance"), {**OUR_TAG, **AT_START}, True),
        ("fleet", "ec2:CreateTags", ARN.format("instance"), OUR_TAG, False),
        ("fleet", "ec2:CreateTags", ARN.format("instance"), {**OURS, "aws:TagKeys": ("regiondag-drain",)}, True),
        ("fleet", "ec2:CreateTags", ARN.format("instance"), {**OURS, "aws:TagKeys": ("regiondag:fleet",)}, False),
        ("fleet", "ec2:CreateTags", ARN.format("instance"), {"aws:TagKeys": ("regiondag-drain",)}, False),
        ("fleet", "iam:PassRole", ROLE.format("regiondag-worker"), TO_EC2, True),
        ("fleet", "iam:PassRole", ROLE.format("Admin"), TO_EC2, False),
        ("fleet", "iam:PassRole", ROLE.format("regiondag-worker"), TO_LAMBDA, False),
        ("fleet", "iam:CreateRole", ROLE.format("x"), {}, False),
        ("fleet", "ec2:RegisterImage", IMAGE, {}, False),
        ("bake", "ec2:RegisterImage", IMAGE, {"aws:RequestTag/regiondag:manifest": "a"}, True),
        ("bake", "ec2:RegisterImage", IMAGE, {}, False),
        ("bake", "ec2:RegisterImage", SNAPSHOT, OUR_IMAGE, True),
        ("bake", "ec2:RegisterImage", SNAPSHOT, {}, False),
        ("bake", "ec2:DeleteSnapshot", SNAPSHOT, {}, False),
        ("bake", "ec2:RunInstances", ARN.format("instance"), {**OUR_TAG, **IMDSV2}, False),
        ("worker", "ssm:GetParameter", "arn:aws:ssm:eu-central-1:1:parameter/regiondag/pool-token", {}, True),
        ("worker", "ssm:GetParameter", "arn:aws:ssm:eu-central-1:1:parameter/other", {}, False),
        ("worker", "ec2:TerminateInstances", ARN.format("instance"), OURS, False),
    ],
)  # fmt: skip
def test_a_simulated_call_is_answered_as_it_should(policy, action, resource, context, allowed):
    assert aws_policy.allows(POLICIES / f"{policy}.json", action, resource, context) is allowed
    if allowed:  # a role has both: its policy, and the boundary of all
        assert aws_policy.allows(POLICIES / "boundary.json", action, resource, context)


def test_the_boundary_is_what_the_three_roles_may_and_no_more():
    roles = set().union(*(aws_policy.granted(POLICIES / f"{name}.json") for name in ("fleet", "bake", "worker")))
    assert aws_policy.granted(POLICIES / "boundary.json") == roles
    for action, resource in (
        ("iam:PassRole", ROLE.format("Admin")),
        ("ssm:GetParameter", "arn:aws:ssm:x:1:parameter/x"),
    ):
        assert not aws_policy.allows(POLICIES / "boundary.json", action, resource, TO_EC2)


def test_the_manager_does_not_bake_and_the_baker_runs_nothing():
    fleet, bake = (aws_policy.granted(POLICIES / f"{name}.json") for name in ("fleet", "bake"))
    # Both may drop a snapshot with the tag; of one that an image uses EC2 refuses it.
    shared = {action for action in fleet & bake if "Describe" not in action}
    assert shared == {"ec2:CreateTags", "ec2:DeleteSnapshot"}
