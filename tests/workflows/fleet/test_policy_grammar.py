"""The IAM policies name what AWS knows, by its tables of actions, resources and condition keys (policy_sentry's copy).

An action that is misspelt, a resource that it does not take, or a key that AWS does not send with it, makes a statement
that never applies, and IAM does not complain of any. AWS's tables know: what is found is either mended or listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from policy_sentry.querying.actions import get_action_data

from tests.workflows import aws_policy

POLICIES = Path(__file__).parents[3] / "ami" / "policies"
NAMES = sorted(path.name for path in POLICIES.glob("*.json"))

Row = dict[str, Any]  # an action, one kind of resource that it takes, the condition keys that AWS sends with both

# What may be done to anything, though AWS could tell one thing from another, and why.
WIDE = {
    ("boundary.json", "MachinesAndImages"): "a bound: each role's own policy says of what, and both must allow a call",
}
# Actions by which somebody could get more rights than he has, and what keeps him from it.
RAISING = {
    ("boundary.json", "iam:PassRole"): "the workers' role alone, to EC2 alone",
    ("boundary.json", "iam:CreateServiceLinkedRole"): "roles whose rights AWS fixes",
    ("fleet.json", "iam:PassRole"): "the workers' role alone, to EC2 alone",
    ("fleet.json", "iam:CreateServiceLinkedRole"): "two roles whose rights AWS fixes",
}
# Kinds of resources that AWS's table does not have for an action: spot requests stand in examples of AWS, and all of
# them in the policies of other makers of fleets. What is never asked for is never granted.
UNLISTED = {
    "AskForWhatAFleetIsMadeOf": {"network-interface", "security-group", "snapshot", "spot-instances-request"},
    "AndWhatAnInstanceIsMadeOf": {"spot-instances-request"},
}


@cache
def rows(action: str) -> list[Row]:
    """Return what AWS's table says of an action."""
    service, name = action.split(":")
    found = [row for row in get_action_data(service, name).get(service, []) if row["action"] == action]
    assert found, f"AWS knows no action {action}"
    return found


def overlap(one: str, other: str) -> bool:
    """Return whether some text matches both patterns of `*` and `?`."""
    if not one or not other:
        return not (one + other).strip("*")
    if one[0] == "*":
        return overlap(one[1:], other) or overlap(one, other[1:])
    if other[0] == "*":
        return overlap(other, one)
    return (one[0] == other[0] or "?" in (one[0], other[0])) and overlap(one[1:], other[1:])


def takes(row: Row, resource: str) -> bool:
    """Return whether a resource of a policy can be one of the kind that a row is about."""
    form = re.sub(r"\$\{\w+\}", "*", row["resource_arn_format"])
    if "*" in (resource, form):
        return resource == "*"
    parts = resource.split(":", 5), form.split(":", 5)
    return all(overlap(*pair) for pair in zip(*parts, strict=True))


def sends(row: Row, key: str) -> bool:
    """Return whether AWS sends a condition key with this action and kind of resource."""
    return key in row["condition_keys"] or re.sub(r"/.*", "/${TagKey}", key) in row["condition_keys"]


def findings(statement: dict[str, Any]) -> Iterator[str]:
    """Yield what of a statement never applies."""
    unlisted = UNLISTED.get(statement["Sid"], set())
    resources = [one for one in statement["Resource"] if one.split(":")[-1].split("/")[0] not in unlisted]
    fitting = {action: [row for row in rows(action) if any(takes(row, one) for one in resources)]
               for action in statement["Action"]}  # fmt: skip
    for action, found in fitting.items():
        if not found:
            yield f"{action} takes none of {resources}"
    for resource in resources:
        if not any(takes(row, resource) for found in fitting.values() for row in found):
            yield f"{resource} is taken by no action of the statement"
    keys = [key for tests in statement.get("Condition", {}).values() for key in tests]
    for key in keys:
        for found in fitting.values():
            for row in found:
                if not sends(row, key):
                    yield f"{row['action']} on {row['resource_arn_format']} comes without {key}"


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_can_apply(name):
    found = {one["Sid"]: list(findings(one)) for one in aws_policy.statements(POLICIES / name)}
    assert {sid: texts for sid, texts in found.items() if texts} == {}


def test_what_never_applies_is_found():
    def found(action: str, resource: str, key: str = "ec2:Region") -> list[str]:
        condition = {"StringEquals": {key: "x"}}
        return list(findings({"Sid": "x", "Action": [action], "Resource": [resource], "Condition": condition}))

    instance = "arn:aws:ec2:*:*:instance/*"
    assert found("ec2:TerminateInstances", instance) == []
    assert found("ec2:TerminateInstances", instance, "ec2:ResourceTag/mine") == []
    (seen,) = found("ec2:TerminateInstances", instance, "ec2:CreateAction")
    assert seen.endswith("comes without ec2:CreateAction")
    takes_none, taken_by_none = found("ec2:TerminateInstances", "arn:aws:ec2:*:*:volume/*")
    assert takes_none == "ec2:TerminateInstances takes none of ['arn:aws:ec2:*:*:volume/*']"
    assert taken_by_none == "arn:aws:ec2:*:*:volume/* is taken by no action of the statement"
    with pytest.raises(AssertionError, match="AWS knows no action ec2:EndInstances"):
        found("ec2:EndInstances", instance)
    with pytest.raises(AssertionError, match="AWS knows no action ec2:terminateInstances"):
        found("ec2:terminateInstances", instance)


@pytest.mark.parametrize(
    ("one", "other", "answer"),
    [("a*", "*b", True), ("a?c", "abc", True), ("abc", "abd", False), ("", "*", True), ("a", "", False),
     ("instance/*", "*/*", True), ("role/x", "role/*", True), ("instance/*", "image/*", False)],
)  # fmt: skip
def test_patterns_overlap(one, other, answer):
    assert overlap(one, other) is overlap(other, one) is answer


def test_what_is_listed_is_still_unlisted_by_aws():
    """One that AWS's table has by now needs no exception."""
    for sid, kinds in UNLISTED.items():
        (statement,) = (one for one in aws_policy.statements(POLICIES / "fleet.json") if one["Sid"] == sid)
        forms = {row["resource_arn_format"].split(":")[-1].split("/")[0] for row in rows(statement["Action"][0])}
        assert not kinds & forms
        assert kinds <= {one.split(":")[-1].split("/")[0] for one in statement["Resource"]}


def test_only_what_is_listed_may_be_done_to_anything():
    wide = {
        (name, statement["Sid"])
        for name in NAMES
        for statement in aws_policy.statements(POLICIES / name)
        if "*" in statement["Resource"]
        and any(row["resource_arn_format"] != "*" for action in statement["Action"] for row in rows(action))
    }
    assert wide == WIDE.keys()


def test_only_what_is_listed_could_raise_somebodys_rights():
    raising = {
        (name, action)
        for name in NAMES
        for action in aws_policy.granted(POLICIES / name)
        if rows(action)[0]["access_level"] == "Permissions management" or action.startswith("iam:")
    }
    assert raising == RAISING.keys()
