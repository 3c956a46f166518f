"""`job.submit`: what is legal, what an inner layer overrides, and that HTCondor reads what was written."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import classad2
import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from regiondag.condor import client, quoting
from regiondag.config.sections import read_final, read_job
from regiondag.config.submit_section import SUBMIT, read_submit
from regiondag.study.submit_commands import ATTRIBUTE, NAME
from regiondag.util.schema import Layer, Problems, Section
from regiondag.util.yaml_file import Document
from tests.workflows.condor.test_quoting import TEXTS
from tests.workflows.config.test_sections import read, section


def submit(text: str) -> tuple[Any, list[str]]:
    job, told = read(read_job, text)
    return job.submit, told


def test_all_kinds_of_values():
    text = """\
submit:
  "+ProjectName": Bird 1
  accounting_group: physics.it
  my.WantGlideIn: true
  "+Ratio": 0.5
  priority: -3
  "+Sites": {expression: 'ifThenElse(MY.Slow ?: false, "a", undefined)'}
"""
    assert submit(text) == (
        {
            "MY.ProjectName": "Bird 1",
            "accounting_group": "physics.it",
            "MY.WantGlideIn": True,
            "MY.Ratio": 0.5,
            "priority": -3,
            "MY.Sites": {"expression": 'ifThenElse(MY.Slow ?: false, "a", undefined)'},
        },
        [],
    )
    assert submit("submit: {}") == submit("{}") == ({}, [])


def test_inner_layers_override_whatever_the_spelling():
    of_study = '{submit: {"+ProjectName": a, accounting_group: g, "+X": 1}}'
    both = section('{submit: {"my.projectname": b}}', of_study)
    assert read_job(both).submit == {"MY.projectname": "b", "accounting_group": "g", "MY.X": 1}
    final = section('job: {submit: {"+ProjectName": a, nice_user: true}}\nfinal: {submit: {"+PROJECTNAME": b}}\n')
    found = read_final(final)
    assert found is not None and found.submit == {"MY.PROJECTNAME": "b", "nice_user": True}
    assert not both.problems.texts() and not final.problems.texts()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a b: 1", "seen the name 'a b', legal: a submit command such as"),
        ("'a\\nqueue': 1", "seen the name"),
        ("JOB.a: 1", "seen the name"),
        ("'': 1", "seen the name ''"),
        ("3: 1", "seen the name '3'"),
        ("Request_CPUs: 1", "submit.Request_CPUs: cannot be given here: job.cpus says how many"),
        ("'+requirements': x", "cannot be given here: job.requirements says what a machine must be"),
        ("'+a': 'x$(y)'", "HTCondor reads $ as the beginning of a macro"),
        ("a: $$(y)", "HTCondor reads $"),
        ("'+a': {expression: $(y)}", "HTCondor reads $"),
        ("a: 'x\\ '", "after a backslash at its end HTCondor would read on"),
        ("'+a': {expression: 'x\\'}", "after a backslash"),
        ('"+a": "x\\nqueue 9"', "it holds a line break"),
        ('"+a": {expression: "x\\nqueue 9"}', "it holds a line break"),
        ("'+a': '\"x\"'", "write it without quotes of its own"),
        ("'+a': ''", "legal: text on one line, a number or true/false, or {expression: ...}"),
        ("a: {expression: x}", "legal: text on one line, a number or true/false"),
        ("'+a': {expression: x, more: y}", "legal: "),
        ("'+a': [1]", "legal: "),
        ("a:", "seen None"),
        ("a: .nan", "seen nan"),
        ("a: 9223372036854775808", "the largest whole number is 9223372036854775807"),
    ],
)  # fmt: skip
def test_mistakes(text, why):
    found, told = submit(f"submit:\n  {text}\n")
    assert found == {} and len(told) == 1 and why in told[0] and told[0].startswith("s.yaml:3: x.submit.")


def test_a_name_stands_once():
    found, told = submit("submit: {'+a': 1, MY.A: 2, b: 3, B: 4, '+b': 5}")
    assert found == {"MY.b": 5} and len(told) == 4 and "stands twice" in told[0]
    assert submit("submit: 3")[1] == ["s.yaml:2: x.submit: seen 3, legal: a mapping of keys to values"]


NAMES = st.from_regex(r"(\+|MY\.|my\.)?[A-Za-z_]{1,8}", fullmatch=True)
SCALARS = st.booleans() | st.integers() | st.floats() | TEXTS
VALUES = SCALARS | st.fixed_dictionaries({"expression": TEXTS}) | st.lists(SCALARS, max_size=1) | st.none()


def as_read(mapping: dict[Any, Any]) -> tuple[Any, list[str]]:
    problems = Problems(Document("s.yaml", {}, {}))
    return read_submit(Section(problems, [Layer(mapping, ("job", "submit"))])), problems.texts()


@given(st.dictionaries(NAMES, VALUES, max_size=3))
@example({"+A": "\\", "b": "$(DOLLAR)", "+c": {"expression": "a\\ "}})
def test_what_is_legal_becomes_its_own_line_and_nothing_else(mapping):
    found, told = as_read(mapping)
    assert (found == {}) or len(told) < len(mapping)
    for name, value in found.items():
        line = quoting.submit_command(name, value)
        assert re.fullmatch(rf"{NAME} = [^$\n\r]+", line) and not line.rstrip().endswith("\\")
    if not told:
        assert Draft202012Validator(SUBMIT).is_valid(mapping)
        assert as_read(json.loads(json.dumps(found)))[0] == found  # as region.json keeps it
        if all(isinstance(value, str | bool | int) for value in mapping.values()):
            assert len(yaml.safe_load(yaml.safe_dump(mapping))) == len(found)


@given(SCALARS)
def test_attributes_are_what_htcondor_reads(value):
    found, told = as_read({"+Label": value, "next": 1})
    assume(not told)
    text = "\n".join(quoting.submit_command(name, seen) for name, seen in found.items())
    description = client.bindings(None).Submit(f"{text}\n")
    ad = classad2.parseOne(f"Label = {description.expand('MY.Label')}", classad2.ParserType.Old)
    assert ad["Label"] == value and type(ad["Label"]) is type(value) and description["next"] == "1"


@given(TEXTS)
def test_commands_are_what_htcondor_reads(text):
    found, told = as_read({"accounting_group": text, "next": 1})
    assume(not told)
    lines = "\n".join(quoting.submit_command(name, value) for name, value in found.items())
    description = client.bindings(None).Submit(f"{lines}\n")
    assert description.expand("accounting_group") == text.strip(" ") and description["next"] == "1"


@given(st.text() | st.binary() | TEXTS, SCALARS | st.dictionaries(st.text(), TEXTS, max_size=2))
def test_quoting_alone_is_as_safe(name, value):
    """Whatever reaches it, by whatever way, is one command with one name, or is refused."""
    for given_name in (name, "MY.Foo", "foo"):
        with suppress(quoting.QuotingError, TypeError):
            line = quoting.submit_command(given_name, value)
            left, _, right = line.partition(" = ")
            assert left == given_name and re.fullmatch(NAME, left) and len(line.splitlines()) == 1
            assert "$" not in right.replace("$(DOLLAR)", "") and not right.rstrip().endswith("\\")
            assert left != "MY.Foo" or not isinstance(value, str) or right.startswith('"')


def test_the_schema_knows_what_names_look_like():
    for good in ({"+ProjectName": "x"}, {"my.X": 1, "MY.Y": {"expression": "a"}}, {"a_b1": True}):
        assert Draft202012Validator(SUBMIT).is_valid(good)
    for bad in ({"a b": 1}, {"+": 1}, {"a": [1]}, {"+a": {"expr": "x"}}, {"+a": {}}, {"a": None}, {"JOB.a": 1}):
        assert not Draft202012Validator(SUBMIT).is_valid(bad)
    assert ATTRIBUTE == "MY."
