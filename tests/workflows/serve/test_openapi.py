"""openapi.json is true to the code: every route, what it takes, and what it answers."""

import json
from dataclasses import asdict

import jsonschema
import pytest

from regiondag.serve.guard import encode
from regiondag.serve.messages import Failure, Item, OneAnswer
from regiondag.serve.openapi import describe_service, schema_of_answer
from regiondag.serve.routes import ROUTES
from regiondag.serve.typed import fields

SPEC = describe_service()


def test_every_route_is_described_and_nothing_else():
    described = {(path, method.upper()) for path, methods in SPEC["paths"].items() for method in methods}
    assert described == {(route.path, route.method) for route in ROUTES}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_parameters_are_the_fields_that_are_read(route):
    operation = SPEC["paths"][route.path][route.method.lower()]
    found = {(one["in"], one["name"]) for one in operation.get("parameters", [])}
    wanted = {("path", one.name) for one in fields(route.in_path)} | {
        ("query", one.name) for one in fields(route.query)
    }
    assert found == wanted
    assert {name for place, name in found if place == "path"} == {
        part[1:-1] for part in route.path.split("/") if "{" in part
    }
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    assert set(body.get("properties", {})) == ({one.name for one in fields(route.body)} if route.body else set())
    assert operation.get("security") == ([] if route.open else None)


def test_messages_are_the_json_of_their_fields():
    item = Item("i1", "Näme", 0.5, ("i2",))
    answer = OneAnswer("shop", "berg", "1", "c1", True, "ease", (item, item))
    assert json.loads(encode(answer)) == json.loads(json.dumps(asdict(answer)))
    with pytest.raises(ValueError, match="JSON"):
        encode(Item("i1", "", float("nan"), ()))


def test_schemas_are_legal_and_all_that_are_meant_are_there():
    for schema in SPEC["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    text = str(SPEC)
    for name in SPEC["components"]["schemas"]:
        assert f"#/components/schemas/{name}'" in text
    assert set(schema_of_answer(Failure)["properties"]) == {"status", "message", "problems"}
