"""The schema that `regiondag schema` prints takes what the reader takes."""

from __future__ import annotations

import json

import yaml
from jsonschema import Draft202012Validator

from regiondag.cli import main
from regiondag.util.resources import resource_dir


def test_the_example_is_legal_and_a_mistake_is_not(capsys):
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    example = yaml.safe_load((resource_dir("examples") / "retail" / "study.yaml").read_text())
    assert list(validator.iter_errors(example)) == []
    [problem] = validator.iter_errors(example | {"job": {"gpus": "many"}})
    assert list(problem.absolute_path) == ["job", "gpus"]


def test_every_key_says_what_it_does(capsys):
    main(["schema"])
    schema = json.loads(capsys.readouterr().out)
    assert all("description" in key for key in schema["properties"].values())
