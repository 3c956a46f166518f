"""Untyped objects do not cross from one module to another, but for a few."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "workflows"

# What takes or gives a mapping of anything, and why no class stands for it.
UNTYPED = {
    "api/champion.py: Champion.facts": "champion.json, whole: a later version may say more",
    "audit/replay.py: Python.has": "what another Python says that it has, as JSON",
    "bake/boot/slot_check.py: parse_slots": "attributes of slots, as condor_status prints them: of any kind",
    "bake/boot/slot_check.py: check_slot": "the same",
    "bake/upload/journal.py: Uploads.fold": "a line of a journal, which is what is checked there",
    "call.py: arguments_of": "trial.json, whole: a later version may say more",
    "fleet/checks.py: kind_of": "what AWS answers, which boto3 gives without types",
    "node/choice.py: decision_to_raw": "a decision in decisions.json",
    "node/choice.py: doubt_test_of": "the same",
    "node/choice.py: read_decisions": "the same",
    "node/choice.py: write_decisions": "the same",
    "registry/read.py: Champion.facts": "champion.json, whole: a later version may say more",
    "run/journal.py: Journal.fold": "a line of a journal, or what was parsed of it, which is what is checked there",
    "run/journal.py: time_of": "the same",
    "trial.py: load": "trial.json, whole: a later version may say more",
    "study/space.py: parameter_from_json": "a parameter in region.json, which is what is read there",
    "util/aws.py: tags_of": "what AWS answers",
    "util/schema.py: Layer.value": "a part of study.yaml that is still to be checked",
}


def is_untyped(annotation: ast.expr) -> bool:
    subscripts = (node for node in ast.walk(annotation) if isinstance(node, ast.Subscript))
    return any(ast.unparse(node.value) in ("dict", "Mapping") and "Any" in ast.unparse(node) for node in subscripts)


def untyped(body: list[ast.stmt], before: str) -> Iterator[str]:
    """Yield the public functions and fields that take or give a mapping of anything."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from untyped(node.body, f"{before}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            arguments = [one for one in ast.walk(node.args) if isinstance(one, ast.arg)]
            annotations = [one.annotation for one in arguments if one.annotation] + [node.returns] * bool(node.returns)
            if any(map(is_untyped, annotations)):
                yield before + node.name
        elif isinstance(node, ast.AnnAssign) and is_untyped(node.annotation) and before:
            yield before + ast.unparse(node.target)


def test_who_takes_or_gives_untyped_mappings_has_a_reason():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in ROOT.rglob("*.py")
        for name in untyped(ast.parse(path.read_text()).body, "")
    }
    assert found == set(UNTYPED)
