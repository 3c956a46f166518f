"""The keys of `trial.json` and `result.json`, from the dataclasses that are written."""

from __future__ import annotations

import dataclasses
from typing import Any

from docs._generate.comments import comments_of
from docs._generate.markdown import code, escape, table
from nnlib import contract
from nnlib.confusion import Confusion, Example


def render_contract() -> str:
    """Return a section each for `trial.json`, its settings of training, recipes, `result.json` and its confusion."""
    parts = []
    for owner, name in (
        (contract.Trial, "trial.json"),
        (contract.TrainSettings, "train"),
        (contract.Recipe, "recipe"),
        (contract.Result, "result.json"),
        (Confusion, "confusion"),
        (Example, "examples"),
    ):
        parts += [f"## {code(name)}", table(("key", "type", "default", "meaning"), _rows(owner))]
    return "\n\n".join(parts)


def _rows(owner: Any) -> list[tuple[str, str, str, str]]:
    comments = comments_of(owner)
    return [
        (code(field.name), code(field.type), _default(field), escape(comments.get(field.name, "")))
        for field in dataclasses.fields(owner)
    ]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "empty"
    if field.default is dataclasses.MISSING:
        return "required"
    return "empty" if field.default in ("", ()) else code(field.default)
