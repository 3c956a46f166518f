"""The IAM policies allow what is done, and nothing that is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.fleet.conftest import fleet_text
from workflows import condor
from workflows import pool as pools
from workflows.cli import main
from workflows.fleet.config import load_fleet
from workflows.fleet.demand import Request
from workflows.pool import Pool

POLICIES = Path(__file__).parents[3] / "ami" / "policies"

# What AWS asks for beside the call that is made: create_fleet starts instances, tags them, hands them their role, and
# makes its own roles at its first use in an account.
IMPLIED = {
    "ec2:CreateFleet": {"ec2:RunInstances", "ec2:CreateTags", "iam:PassRole", "iam:CreateServiceLinkedRole"},
    "ec2:DeleteFleets": {"ec2:TerminateInstances"},
}
PREFIX = {"api.pricing": "pricing"}


def statements(name: str) -> list[dict[str, Any]]:
    policy = json.loads((POLICIES / name).read_text())
    assert policy["Version"] == "2012-10-17"
    return policy["Statement"]


def actions(name: str) -> set[str]:
    found: set[str] = set()
    for statement in statements(name):
        given = statement["Action"]
        found |= {given} if isinstance(given, str) else set(given)
    return found


@pytest.fixture
def called(cloud, tmp_path, monkeypatch) -> set[str]:
    """Everything that the verbs call in the life of a fleet."""
    found = Pool("default", "installed", (23, 9, 6))
    monkeypatch.setattr(pools, "find_pool", lambda name=None: found)
    monkeypatch.setattr(pools, "require_pool", lambda name=None: found)
    monkeypatch.setattr(condor, "query_gpu_requests", lambda pool, fleet: [Request(1, 1, 1)] * 9)
    monkeypatch.setattr(condor, "query_workers", lambda pool, fleet: {})
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
    return {f"{PREFIX.get(service, service)}:{name}" for service, name, _ in cloud.calls}


def test_every_call_is_allowed_and_nothing_else_is(called):
    implied = {action for call in called for action in IMPLIED.get(call, ())}
    allowed = actions("fleet.json")
    assert called - allowed == set(), "not allowed, so the command would fail"
    assert allowed - called - implied == set(), "allowed, but never called"
    assert implied <= allowed


def test_what_changes_something_is_tied_to_the_tag():
    """Only reading, and what has no tag to look at, is allowed everywhere."""
    free = {"ec2:CreateFleet", "iam:PassRole", "iam:CreateServiceLinkedRole", "ec2:RunInstances"}
    for statement in statements("fleet.json"):
        given = {statement["Action"]} if isinstance(statement["Action"], str) else set(statement["Action"])
        reading = all(action.split(":")[1].startswith(("Describe", "Get")) for action in given)
        if reading:
            assert "Condition" not in statement
        elif not given <= free:
            assert "regiondag:fleet" in json.dumps(statement["Condition"]), statement
        assert statement["Effect"] == "Allow"
        assert not any("*" in action for action in given)


def test_instances_cannot_be_started_without_the_tag_nor_with_an_open_metadata_service():
    (started,) = (
        one
        for one in statements("fleet.json")
        if "instance/*" in json.dumps(one.get("Resource")) and one["Action"] == "ec2:RunInstances"
    )
    assert started["Condition"]["Null"] == {"aws:RequestTag/regiondag:fleet": "false"}
    assert started["Condition"]["StringEquals"]["ec2:MetadataHttpTokens"] == "required"


def test_tags_can_only_be_set_at_creation_or_to_drain():
    tagging = [one for one in statements("fleet.json") if one["Action"] == "ec2:CreateTags"]
    assert len(tagging) == 2
    creation, drain = sorted(tagging, key=lambda one: "ec2:CreateAction" not in json.dumps(one))
    assert set(creation["Condition"]["StringEquals"]["ec2:CreateAction"]) == {
        "CreateFleet",
        "CreateLaunchTemplate",
        "RunInstances",
    }
    assert drain["Resource"] == "arn:aws:ec2:*:*:instance/*"
    assert drain["Condition"]["ForAllValues:StringEquals"] == {"aws:TagKeys": ["regiondag-drain"]}
    assert drain["Condition"]["Null"] == {"ec2:ResourceTag/regiondag:fleet": "false"}


def test_a_role_is_handed_to_ec2_only():
    (handed,) = (one for one in statements("fleet.json") if one["Action"] == "iam:PassRole")
    assert handed["Condition"] == {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    assert handed["Resource"] == "arn:aws:iam::*:role/regiondag-worker"


def test_a_worker_may_read_the_token_and_nothing_else():
    assert actions("worker.json") == {"ssm:GetParameter", "secretsmanager:GetSecretValue"}
    for statement in statements("worker.json"):
        resources = statement["Resource"]
        assert isinstance(resources, str)
        assert resources.split(":", 5)[5].startswith(("parameter/regiondag/", "secret:regiondag/"))
        assert "/*" not in resources.split(":", 5)[5]


def test_the_examples_token_and_role_are_those_of_the_policies():
    fleet = load_fleet(POLICIES.parent / "fleet.example.yaml")
    resources = {statement["Resource"].split(":", 5)[5] for statement in statements("worker.json")}
    assert f"parameter{fleet.token[1]}" in resources
    (handed,) = (one for one in statements("fleet.json") if one["Action"] == "iam:PassRole")
    assert handed["Resource"].endswith(f"role/{fleet.instance_profile}")
