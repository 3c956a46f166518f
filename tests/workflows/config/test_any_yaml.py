"""A study with any value at any key is read, or refused in words."""

from __future__ import annotations

import copy
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from regiondag.config.keys import describe_study
from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from regiondag.util.yaml_file import load_yaml
from tests.workflows.conftest import NETWORK, STUDY, write_study

KEYS = """
    study regions network metric minimize train search update job limits pooled init neighbour name data from epochs
    batch accumulate stop_after stop_after_examples optimizer learning_rate momentum beta2 l2 l1 schedule warmup
    decay_rate decay_epochs scale_rate base_batch ema clip compat precision seed method
    rounds parallel budget prune share winner acquisition constraints give_up_after space hidden int real choice log
    points step when default gpus min max require_gpus final
    cpus memory memory_max disk deadline checkpoint hold_limit idle_limit retries
    requirements jobs jobs_per_region Layers Name Kind N Source Sparse Activation DataSet WeightInit pDropout << 1
"""
WORDS = """
    grid random sobol skopt bayes lanes median asha warm model pooled champion scratch adam sgd dsstne loss ndcg@5
    p@0 ndcg@ 90s 0h 2GB 0KB 1e3 United*Kingdom Germany data/uk.nc data/*.nc data ** hidden hidden<4 hidden<4<5
    learning_rate>hidden 1/0<hidden hidden**9999<1 TARGET.X>(1 $(a) a"b a\\ network.json study.yaml . é auto $hidden
"""
NUMBERS = st.sampled_from([0, 1, 2, 3, -1, 10**400, 2**53, 2**63, 0.5, 1e308, 5e-324, -0.0, float("inf"), float("nan")])
SCALARS = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.integers()
    | st.floats()
    | st.sampled_from(WORDS.split())
    | st.text(max_size=3)
)
VALUES = st.recursive(
    SCALARS,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), some, max_size=3),
    max_leaves=6,
)
SCHEMA = Draft202012Validator(describe_study())
BASE = yaml.safe_load(STUDY.replace("1e-", "1.0e-"))


def places(value, path=()):
    """Return the paths of all mappings and lists."""
    found = [path]
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list):
            found += places(item, (*path, key))
    return found


@st.composite
def changed(draw, base):
    """Put some values at keys that are there, or could be."""
    whole = copy.deepcopy(base)
    for _ in range(draw(st.integers(1, 3))):
        below = whole
        for key in draw(st.sampled_from(places(whole))):
            below = below[key]
        keys = st.sampled_from(list(below) if isinstance(below, dict) else range(len(below))) if below else st.nothing()
        key = (
            draw(keys | st.sampled_from(KEYS.split()) if isinstance(below, dict) else keys)
            if below or isinstance(below, dict)
            else None
        )
        if key is not None:
            below[key] = draw(VALUES)
    return whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_study(folder)
    return folder


def assert_read_or_refused(folder, study, network):
    (folder / "network.json").write_text(json.dumps(network))
    (folder / "study.yaml").write_text(yaml.safe_dump(study, allow_unicode=True), encoding="utf-8")
    try:
        config = load_config(folder / "study.yaml")
    except ConfigError as error:
        assert all(problem.startswith(f"{folder}/study.yaml:") for problem in error.problems), error.problems
        "\n".join(error.problems).encode()
    else:
        assert config.regions
        SCHEMA.validate(load_yaml(folder / "study.yaml").value)


def test_the_study_itself_is_read(folder):
    assert_read_or_refused(folder, BASE, NETWORK)
    assert len(load_config(folder / "study.yaml").regions) == 2


@settings(max_examples=25)
@given(changed(BASE))
def test_any_value_at_any_key_of_a_study(folder, study):
    assert_read_or_refused(folder, study, NETWORK)


@settings(max_examples=12)
@given(changed(NETWORK))
def test_any_value_at_any_key_of_a_network(folder, network):
    assert_read_or_refused(folder, BASE, network)
