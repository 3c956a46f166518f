"""The description of the service in OpenAPI 3.1, made of the routes and of the dataclasses that read and answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from regiondag import __version__
from regiondag.serve.messages import Asked, Failure
from regiondag.serve.routes import NO_REGION, REFUSED, ROUTES, WRONG_TYPE, Route
from regiondag.serve.typed import Schema, fields, parameters_of, schema_of

PLAIN_TYPES: Mapping[object, str] = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}
JSON = "application/json"


def describe_service() -> Schema:
    """Return the document."""
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    kinds = {kind for route in ROUTES for kind in _kinds_of(route.answer)} | set(_kinds_of(Failure))
    schemas = {kind.__name__: schema_of_answer(kind) for kind in sorted(kinds, key=lambda kind: kind.__name__)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "regiondag serve", "version": __version__, "description": "Recommendations by region."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],  # without one where the service has none
    }


def schema_of_answer(kind: type) -> Schema:
    """Return the JSON Schema of what is answered, a dataclass; other dataclasses in it by their names."""
    hints = get_type_hints(kind)
    return {
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": {one.name: _schema(hints[one.name]) for one in dataclasses.fields(kind)},
        "required": [one.name for one in dataclasses.fields(kind)],
        "additionalProperties": False,
    }


def _schema(hint: Any) -> Schema:
    if hint in PLAIN_TYPES:
        return {"type": PLAIN_TYPES[hint]}
    if dataclasses.is_dataclass(hint):
        return {"$ref": f"#/components/schemas/{hint.__name__}"}  # type: ignore[union-attr]
    inside = get_args(hint)
    if get_origin(hint) in (UnionType, Union):
        return {"type": [PLAIN_TYPES[one] for one in inside]}
    if get_origin(hint) is tuple:
        return {"type": "array", "items": _schema(inside[0])}
    return {"type": "object", "additionalProperties": _schema(inside[1])}


def _kinds_of(kind: Any) -> Iterator[type]:
    """Yield the dataclasses of an answer, those inside it included."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        yield kind
        for hint in get_type_hints(kind).values():
            yield from _kinds_of(hint)
    for inside in get_args(kind):
        yield from _kinds_of(inside)


def _operation(route: Route) -> Schema:
    parameters = [*parameters_of(route.in_path, "path"), *parameters_of(route.query, "query")]
    found: Schema = {"operationId": route.name, "summary": route.about, "responses": _responses(route)}
    if parameters:
        found["parameters"] = parameters
    if route.body:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": _body(route.body)}}}
    if route.open:
        found["security"] = []
    return found


def _body(kind: type) -> Schema:
    schema = schema_of(kind)
    if kind is Asked:
        schema["oneOf"] = [{"required": ["customers"]}, {"required": ["history"]}]
    return schema


def _responses(route: Route) -> Schema:
    if route.answer is None:
        content: Schema = {"text/plain": {"schema": {"type": "string"}}}
    elif route.answer is dict:
        content = {JSON: {"schema": {"type": "object"}}}
    else:
        content = _reference(route.answer)
    refused = dict(REFUSED)
    if fields(route.in_path):
        refused[404] = NO_REGION
    if route.body:
        refused[415] = WRONG_TYPE
    found: Schema = {"200": {"description": route.about, "content": content}}
    for status in sorted(refused):
        found[str(status)] = {"description": refused[status], "content": _reference(Failure)}
    if route.name == "readiness":
        found["503"] = {"description": "no region is served yet", "content": _reference(route.answer, Failure)}
    return found


def _reference(*kinds: Any) -> Schema:
    schemas: Sequence[Schema] = [_schema(kind) for kind in kinds]
    return {JSON: {"schema": schemas[0] if len(schemas) == 1 else {"oneOf": schemas}}}
