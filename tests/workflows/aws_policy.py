"""What an IAM policy allows, compared with what was called."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any


def statements(path: Path) -> list[dict[str, Any]]:
    """Read a policy document: every statement allows something to somebody named elsewhere, by name."""
    document = json.loads(path.read_text(encoding="utf-8"))
    assert set(document) == {"Version", "Statement"}
    assert document["Version"] == "2012-10-17"
    for statement in document["Statement"]:
        assert set(statement) - {"Condition"} == {"Sid", "Effect", "Action", "Resource"}, statement
        assert statement["Effect"] == "Allow"
        for key in ("Action", "Resource"):
            statement[key] = [statement[key]] if isinstance(statement[key], str) else statement[key]
    names = [statement["Sid"] for statement in document["Statement"]]
    assert len(set(names)) == len(names)
    return list(document["Statement"])


def granted(path: Path) -> set[str]:
    """Return the actions that a policy allows; none may stand for more than one."""
    actions = {action for statement in statements(path) for action in statement["Action"]}
    assert all(re.fullmatch(r"[a-z0-9]+:[A-Z][A-Za-z]+", action) for action in actions), actions
    return actions


def check_policy(path: Path, called: Iterable[str], implied: Iterable[str] = ()) -> None:
    """Assert that a policy allows what was called, such as `ec2:RunInstances`, and nothing else.

    `implied` are actions that no call is named after, but that calls need: tagging what is being made, for instance.
    """
    needed, allowed = {*called, *implied}, granted(path)
    assert needed <= allowed, f"{path.name} does not allow {sorted(needed - allowed)}"
    assert allowed <= needed, f"{path.name} allows what is never called: {sorted(allowed - needed)}"


def check_wide_resources(path: Path, reading: Iterable[str] = ("Describe", "List", "Get")) -> None:
    """Assert that actions that change something are allowed on named kinds of resources only."""
    for statement in statements(path):
        if "*" in statement["Resource"]:
            verbs = tuple(reading)
            assert all(action.split(":")[1].startswith(verbs) for action in statement["Action"]), statement["Sid"]


Context = Mapping[str, str | tuple[str, ...]]


def allows(path: Path, action: str, resource: str, context: Context | None = None) -> bool:
    """Simulate a call as IAM does: `context` holds what AWS knows of it, such as `aws:RequestTag/regiondag:fleet`."""
    return any(
        action in statement["Action"]
        and any(fnmatchcase(resource, pattern) for pattern in statement["Resource"])
        and all(_holds(operator, tests, context or {}) for operator, tests in statement.get("Condition", {}).items())
        for statement in statements(path)
    )


def _holds(operator: str, tests: Mapping[str, Any], context: Context) -> bool:
    if operator == "Null":
        return all((key not in context) == (wanted == "true") for key, wanted in tests.items())
    legal = {key: (wanted,) if isinstance(wanted, str) else tuple(wanted) for key, wanted in tests.items()}
    if operator == "StringEquals":
        return all(context.get(key) in wanted for key, wanted in legal.items())
    assert operator == "ForAllValues:StringEquals", operator
    return all(set(context.get(key, ())) <= set(wanted) for key, wanted in legal.items())
