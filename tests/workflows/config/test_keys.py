"""study.yaml's JSON Schema says what its reader does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from regiondag.config.keys import TRAIN, describe_study
from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from regiondag.study.model import TRAIN_SETTINGS
from regiondag.util.resources import resource_dir
from regiondag.util.yaml_file import load_yaml, parse_yaml
from tests.workflows.config.test_sections import RANGES
from tests.workflows.conftest import STUDY, write_region, write_study

SCHEMA: Any = describe_study()
VALIDATOR = Draft202012Validator(SCHEMA)
SPACES = ("{real: [0, 1], zzz: 1}", "{int: [0, 1], zzz: 1}", "{choice: [0, 1], zzz: 1}")
FROM_FILES = re.sub("regions:.*?(?=network)", "regions: {zzz: 1}\n", STUDY, flags=re.DOTALL)
REGION = "{name: Germany, data: data/germany.nc}"
LEAST = STUDY[: STUDY.index("metric:")] + STUDY[STUDY.index("search:") : STUDY.index("job:")]
LEAST = LEAST.replace("  method: bayes\n  rounds: 2\n  parallel: 2\n", "")


def below(*path: str) -> Any:
    """Return the schema of what stands at a path, `[]` for an item of a list and `{}` for any key of a mapping."""
    found = SCHEMA
    for part in path:
        found = {"[]": lambda s: s["anyOf"][0]["items"], "{}": lambda s: s["additionalProperties"]}.get(
            part, lambda s, part=part: s["properties"][part]
        )(found)
    return found


def test_it_is_json_schema():
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def keys_that_are_legal(folder, text: str) -> set[str]:
    """Return the keys that the reader names beside a `zzz` that it does not know."""
    with pytest.raises(ConfigError) as caught:
        load_config(write_study(folder, text))
    [legal] = {p.partition("Legal keys: ")[2] for p in caught.value.problems if "zzz: unknown key" in p}
    return set(legal.split(", "))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (SCHEMA, f"{STUDY}zzz: 1\n"),
        (below("regions", "[]"), STUDY.replace(REGION, "{name: Germany, data: data/germany.nc, zzz: 1}")),
        (SCHEMA["properties"]["regions"]["anyOf"][1], FROM_FILES),
        (below("train"), STUDY.replace("seed: 7", "zzz: 7")),
        (below("search"), STUDY.replace("rounds: 2", "zzz: 2")),
        (below("search"), f"{STUDY}update: {{zzz: 1}}\n"),
        (below("job"), STUDY.replace("cpus: 1", "zzz: 2")),
        (below("limits"), STUDY.replace("jobs: 8", "zzz: 8")),
        (below("pooled"), f"{STUDY}init: pooled\npooled: {{zzz: 1}}\n"),
        *(
            (below("search", "space", "{}")["anyOf"][n], STUDY.replace("  space:", f"  space:\n    batch: {text}"))
            for n, text in enumerate(SPACES, 1)
        ),
    ],
)  # fmt: skip
def test_the_keys_are_those_of_the_reader(tmp_path, schema, text):
    assert set(schema["properties"]) == keys_that_are_legal(tmp_path, text)
    assert schema["additionalProperties"] is False


def test_every_setting_can_be_written():
    assert set(TRAIN) == TRAIN_SETTINGS


def leaves(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, each in schema.get("properties", {}).items():
        yield (*path, key), each
        yield from leaves(each, (*path, key))


def test_every_key_is_described_in_one_sentence():
    for path, each in leaves(SCHEMA):
        text = each["description"]
        assert text[0].isupper() and text.endswith(".") and ". " not in text, path
        assert each["title"], path


def test_a_default_that_is_written_changes_nothing(tmp_path):
    """Those of a grid's points and of hyperparameters stand in no dataclass."""
    least = load_config(write_study(tmp_path, LEAST))
    study: dict[str, Any] = load_yaml(least.file).value
    defaults = [
        (path, each["default"])
        for path, each in leaves(SCHEMA)
        if "default" in each and path[0] not in ("data", "trainer", "track")
    ]
    assert len(defaults) > 30
    for path, default in defaults:
        section = study
        for key in path[:-1]:
            section = section.setdefault(key, {})
        section[path[-1]] = default
    VALIDATOR.validate(study)
    least.file.write_text(yaml.safe_dump(study).replace("1e-", "1.0e-"))
    assert load_config(least.file) == least
    # And each is the one that counts: another value is no default.
    least.file.write_text(yaml.safe_dump({**study, "train": {**study["train"], "epochs": 31}}))
    assert load_config(least.file) != least


def test_the_examples_are_legal_for_both(tmp_path):
    example = resource_dir("examples") / "retail"
    study = write_study(tmp_path, (example / "networks.yaml").read_text())
    (tmp_path / "network.json").write_text((example / "network.json").read_text())
    for region in load_yaml(study).value["regions"]:
        write_region(tmp_path, region["data"].removesuffix(".nc"))
    VALIDATOR.validate(load_yaml(study).value)
    assert len(load_config(study).regions) == 6
    VALIDATOR.validate(load_yaml(write_study(tmp_path, STUDY)).value)


TOO_SMALL = ("1023KB",)  # that it is less than 1MB is beyond a pattern


@pytest.mark.parametrize(("reader", "key", "low", "high", "below_", "beyond"), RANGES)
def test_ranges_are_the_readers(reader, key, low, high, below_, beyond):
    schema = below(reader.__name__.removeprefix("read_"), key)

    def is_legal(value: object) -> bool:
        return Draft202012Validator(schema).is_valid(parse_yaml(f"x: {value}", "s.yaml").value["x"])

    assert is_legal(low) and is_legal(high)
    assert not is_legal(beyond) and (below_ in TOO_SMALL or not is_legal(below_))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("study: tiny", "study: a b"),
        ("study: tiny", f"study: {'x' * 61}"),
        ("metric: ndcg@5", "metric: auc@5"),
        ("metric: ndcg@5", "metric: ndcg@0"),
        ("metric: ndcg@5", "metric: loss"),
        ("metric: ndcg@5", "minimize: ndcg@5"),
        ("metric: ndcg@5", "metric: ndcg@5\nminimize: loss"),
        ("method: bayes", "method: bays"),
        ("method: bayes", "method: bayes\n  budget: 0s"),
        ("method: bayes", "method: bayes\n  constraints: hidden > 3"),
        ("{int: [2, 8], log: true}", "{int: [2], log: true}"),
        ("{int: [2, 8], log: true}", "{int: [2, 8.5], log: true}"),
        ("{int: [2, 8], log: true}", "{int: [2, 8], real: [2, 8]}"),
        ("{int: [2, 8], log: true}", "{choice: []}"),
        ("{int: [2, 8], log: true}", "{int: [2, 8], when: 3}"),
        ("{int: [2, 8], log: true}", "[2, 8]"),
        ("hidden:", "hid den:"),
        ("network: network.json", "network: ''"),
        ("name: Germany", 'name: "a\\nb"'),
        ("name: Germany, ", ""),
        ("limits: {jobs: 8", "update: {space: {hidden: 3}}\nlimits: {jobs: 8"),
        ("job: {cpus: 1, memory: 256MB, disk: 100MB}", "job: 3"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_for_both(tmp_path, old, new):
    assert old in STUDY
    study = write_study(tmp_path, STUDY.replace(old, new))
    assert not VALIDATOR.is_valid(load_yaml(study).value)
    with pytest.raises(ConfigError):
        load_config(study)


@pytest.mark.parametrize("metric", ["P@5", "Precision@10", "mrr@999999"])
def test_metrics_in_any_case_are_legal_for_both(tmp_path, metric):
    study = write_study(tmp_path, STUDY.replace("ndcg@5", metric))
    VALIDATOR.validate(load_yaml(study).value)
    load_config(study)
