"""The fleet's verbs with IAM switched on, as far as moto plays it: what the policy does not name is refused.

moto 5.2 looks at actions alone. It takes every resource for `*`, knows no conditions but those of trust, no boundary,
and nothing that a call needs besides itself (CreateFleet needs RunInstances and PassRole); SimulatePrincipalPolicy and
SimulateCustomPolicy it has not. So statements are given to it without resources and conditions: that those are right is
what `aws_policy.allows` simulates in test_policies.py, and what test_policy_grammar.py compares with AWS's tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from moto.core import enable_iam_authentication

from regiondag.cli import main
from regiondag.fleet.demand import GpuRequest
from regiondag.util import aws
from tests.workflows import aws_policy
from tests.workflows.fleet.conftest import REGION, fleet_text, leave_orphans, play_pool

POLICIES = Path(__file__).parents[3] / "ami" / "policies"
TRUST = {"Version": "2012-10-17", "Statement": []}


@pytest.fixture
def become(no_network, cloud, monkeypatch: pytest.MonkeyPatch) -> Callable[[set[str]], None]:
    """Take a role that may do some actions, and switch IAM on until the test ends."""
    iam, sts = aws.client("iam", REGION), aws.client("sts", REGION)
    role = iam.create_role(RoleName="regiondag-manager", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]

    def take(actions: set[str]) -> None:
        allow = {"Effect": "Allow", "Action": sorted(actions), "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        iam.put_role_policy(RoleName="regiondag-manager", PolicyName="fleet", PolicyDocument=document)
        given = sts.assume_role(RoleArn=role["Arn"], RoleSessionName="test")["Credentials"]
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", given["AccessKeyId"])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", given["SecretAccessKey"])
        monkeypatch.setenv("AWS_SESSION_TOKEN", given["SessionToken"])

    return take


@pytest.fixture
def run(cloud, tmp_path, monkeypatch) -> Callable[..., int]:
    play_pool(monkeypatch, lambda: [GpuRequest(1, 1, 1)] * 9)
    path = tmp_path / "fleet.yaml"

    def call(*words: str, **changes: str) -> int:
        path.write_text(fleet_text(cloud, **changes))
        with enable_iam_authentication():
            return main(["fleet", words[0], "--file", str(path), *words[1:]])

    return call


def test_the_whole_life_of_a_fleet_is_allowed(cloud, become, run, monkeypatch):
    leave_orphans(cloud, monkeypatch)
    become(aws_policy.granted(POLICIES / "fleet.json"))
    assert run("clean", "--yes") == 0
    assert run("up") == 0
    assert run("up", idle_minutes="30") == 0
    assert run("scale", idle_minutes="30") == 0
    assert run("status") == 0
    assert run("scale", "--workers", "1") == 0
    assert run("down", "--now") == 0


@pytest.mark.parametrize(
    ("action", "verbs"),
    [
        ("ec2:DescribeInstances", [["status"]]),
        ("ec2:DeleteSnapshot", [["clean", "--yes"]]),
        ("ec2:CreateLaunchTemplate", [["up"]]),
        ("ec2:CreateFleet", [["up"]]),
        ("ec2:CreateTags", [["up"], ["scale", "--workers", "1"]]),
        ("ec2:TerminateInstances", [["up"], ["down", "--now"]]),
    ],
)
def test_without_an_action_the_verb_is_refused_and_says_which(action, verbs, cloud, become, run, capsys, monkeypatch):
    leave_orphans(cloud, monkeypatch)
    become(aws_policy.granted(POLICIES / "fleet.json") - {action})
    assert [run(*words) == 0 for words in verbs] == [True] * (len(verbs) - 1) + [False]
    assert f"is not authorized to perform: {action}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("service", "operation", "arguments", "allowed"),
    [
        ("ssm", "get_parameter", {"Name": "/regiondag/pool-token"}, True),
        ("secretsmanager", "get_secret_value", {"SecretId": "regiondag/pool-token"}, True),
        ("ssm", "put_parameter", {"Name": "/regiondag/pool-token", "Value": "x", "Type": "String"}, False),
        ("ec2", "describe_instances", {}, False),
    ],
)
def test_a_worker_reads_its_token_and_nothing_else(cloud, become, service, operation, arguments, allowed):
    aws.client("ssm", REGION).put_parameter(Name="/regiondag/pool-token", Value="t", Type="SecureString")
    aws.client("secretsmanager", REGION).create_secret(Name="regiondag/pool-token", SecretString="t")
    become(aws_policy.granted(POLICIES / "worker.json"))
    client = aws.client(service, REGION)
    with enable_iam_authentication():
        if allowed:
            getattr(client, operation)(**arguments)
            return
        with pytest.raises(client.exceptions.ClientError, match="is not authorized to perform"):
            getattr(client, operation)(**arguments)
