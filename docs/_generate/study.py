"""The keys of study.yaml, from the JSON Schema that is made of what it is read by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from docs._generate.markdown import code, escape, table

HEADINGS = ("key", "legal", "default", "what it does")
TOP = "study"


def render_study_reference(schema: Mapping[str, Any]) -> str:
    """Return one table for each section. Keys have anchors such as `train-epochs`, those of the study `study-train`."""
    return "\n\n".join(_sections(TOP, schema))


def _sections(path: str, schema: Mapping[str, Any], *, one_of_several: bool = False) -> Iterator[str]:
    """Yield the table of a section, or of one of its forms, and those of the sections inside of it."""
    properties, needed = schema.get("properties", {}), schema.get("required", ())
    if properties:
        # Of several forms each has one key that the others have not.
        form = f" with {code(needed[0])}" if one_of_several and len(needed) == 1 else ""
        anchor = path.replace("[]", "").replace("NAME", needed[0] if form else "").replace(".", "-")
        rows = (_row(f"{anchor}-{key}", _below(path, key), each, key in needed) for key, each in properties.items())
        yield f"## {code(path) + form if path != TOP else 'The study'}"
        yield table(HEADINGS, rows)
    for key, each in properties.items():
        below = _below(path, key)
        named = each.get("additionalProperties") or {}  # the hyperparameters of a space
        kinds = named.get("anyOf") or each.get("anyOf") or [each]
        with_keys = [kind for kind in kinds if named or "properties" in kind.get("items", kind)]
        for kind in kinds:
            inside = f"{below}.NAME" if named else f"{below}[]" if "items" in kind else below
            yield from _sections(inside, kind.get("items", kind), one_of_several=len(with_keys) > 1)


def _below(path: str, key: str) -> str:
    return key if path == TOP else f"{path}.{key}"


def _row(anchor: str, path: str, schema: Mapping[str, Any], needed: bool) -> tuple[str, str, str, str]:
    default = "required" if needed else code(_written(schema["default"])) if "default" in schema else ""
    return (
        f'<a id="{anchor}"></a>{code(path.rpartition(".")[2])}',
        _legal(path, schema),
        default,
        escape(schema["description"]),
    )


def _legal(path: str, schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return f"as {code(schema['$ref'].rpartition('/')[2])} of [the study](#the-study)"
    if "properties" in schema:
        return f"[keys of its own](#{path.replace('.', '')})"  # as headings are named in addresses
    if "enum" in schema:
        return ", ".join(map(code, schema["enum"]))
    forms = schema.get("anyOf", ())
    if any("enum" in form for form in forms) and any("properties" in form for form in forms):
        return ", or ".join(_legal(path, form) for form in forms)
    return escape(schema["title"])


def _written(value: bool | float | str) -> str:
    """Return a value as people write it in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else f"{value:g}"
