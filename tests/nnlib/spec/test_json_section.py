"""Values of a JSON object, one at a time: what is legal up to its bounds, and what is said of the rest."""

from __future__ import annotations

import numpy as np
import pytest

from nnlib.spec.json_section import MOST, MOST_UNITS, Problems, Section, is_plain, nearest, show


def section(raw: dict, *keys: str, **more) -> Section:
    return Section(raw, "", Problems("f"), keys or tuple(raw), **more)


def told(checked: Section) -> list[str]:
    return checked.problems.found


def test_the_bounds_of_what_a_model_file_holds():
    assert float(np.finfo(np.float32).max) == MOST and np.iinfo(np.int32).max == MOST_UNITS


@pytest.mark.parametrize(
    ("value", "bounds", "good"),
    [
        (0, {"low": 0}, True),
        (-1, {"low": 0}, False),
        (1, {"high": 1}, True),
        (1, {"high": 1, "closed": False}, False),
        (0.999, {"high": 1, "closed": False}, True),
        (1.001, {"high": 1}, False),
        (MOST, {}, True),
        (-MOST, {}, True),
        (MOST * 1.0001, {}, False),
        (float("inf"), {}, False),
        (float("nan"), {}, False),
        (True, {}, False),
        ("1", {}, False),
        (None, {}, False),
    ],
)
def test_numbers(value, bounds, good):
    checked = section({"p": value})
    number = checked.number("p", 0.25, **bounds)
    assert number == (value if good else 0.25)
    assert type(number) is float and bool(told(checked)) is not good


@pytest.mark.parametrize(
    ("bounds", "legal"),
    [
        ({}, "a number"),
        ({"low": 0}, "a number from 0"),
        ({"low": 0, "high": 1}, "a number in [0, 1]"),
        ({"low": 0, "high": 1, "closed": False}, "a number in [0, 1)"),
    ],
)
def test_legal_numbers_are_told(bounds, legal):
    checked = section({"p": "x"})
    checked.number("p", 0, **bounds)
    assert told(checked) == [f'f: p: "x" is not legal, legal: {legal}']


@pytest.mark.parametrize(
    ("value", "most", "found"),
    [
        (1, 1, (1,)),
        (MOST_UNITS, 1, (MOST_UNITS,)),
        (MOST_UNITS + 1, 1, ()),
        (0, 1, ()),
        (True, 1, ()),
        (1.0, 1, ()),
        ([2, 3], 2, (2, 3)),
        ([2, 3, 4], 2, ()),
        ([2, 0], 2, ()),
        ([], 2, ()),
    ],
)
def test_whole_numbers(value, most, found):
    checked = section({"n": value})
    assert checked.wholes("n", most, " or so") == found
    assert bool(told(checked)) is (found == ())
    if not found:
        array = ", an array of 1 to 2 of them" if most == 2 else ""
        assert told(checked)[0].endswith(f"legal: a whole number from 1{array} or so")


def test_what_is_absent_has_its_default():
    checked = section({}, "a")
    assert (checked.number("a", 2), checked.whole("a", 7), checked.wholes("a", 3)) == (2.0, 7, ())
    assert (checked.boolean("a", True), checked.text("a", "x"), checked.texts("a")) == (True, "x", ())
    assert (checked.choice("a", {"x": 1}, 5), checked.sections("a", ["b"]), checked.raw("a")) == (5, (), None)
    assert "b" not in checked.section("a", ["b"]) and "a" not in checked
    assert told(checked) == []


def test_truths_and_texts():
    raw = {
        "yes": True,
        "one": 1,
        "text": "x",
        "bell": "\a",
        "number": 3,
        "names": ["a", "b"],
        "name": "a",
        "twice": ["a", "a"],
    }
    checked = section(raw)
    assert checked.boolean("yes", False) is True and checked.text("text", "y") == "x"
    assert checked.texts("names") == ("a", "b") and checked.texts("name") == ("a",)
    assert told(checked) == []
    assert checked.boolean("one", False) is False and checked.boolean("one", True) is True
    assert (checked.text("bell", "y"), checked.text("number", "y")) == ("y", "y")
    assert (checked.texts("number"), checked.texts("twice")) == ((), ("a",))
    assert len(told(checked)) == 6 and told(checked)[-1] == 'f: twice: "a" is named twice, legal: every name once'


@pytest.mark.parametrize("read", ["text", "choice", "texts", "number"])
def test_a_hyperparameter_without_a_value(read):
    checked = section({"a": "$rate"})
    arguments = {"text": ["x"], "choice": [{"x": 1}, 1], "texts": [], "number": [1.0]}[read]
    getattr(checked, read)("a", *arguments)
    assert told(checked) == ['f: a: "$rate" has no value, give the hyperparameter "rate" one']


def test_choices():
    checked = section({"a": "TANH", "b": "Tahn", "c": "Soft", "d": 3})
    legal = {"Tanh": 1, "Relu": 2}
    assert checked.choice("a", legal, 9) == 1 and told(checked) == []
    assert checked.choice("b", legal, 9) == checked.choice("d", legal, 9) == 9
    assert checked.choice("c", legal, 9, {"SOFT": "it is too soft"}) == 9
    assert told(checked) == [
        'f: b: "Tahn" is not legal, legal: Tanh, Relu, did you mean "Tanh"?',
        "f: d: 3 is not legal, legal: Tanh, Relu",
        'f: c: "Soft" is not legal: it is too soft; legal: Tanh, Relu',
    ]


def test_keys():
    raw = {"Alpha": 1, "ALPHA": 2, "alph": 3, "zzz": 4, "Old": 5, "elsewhere": 6}
    checked = section(
        raw, "alpha", "beta", aliases={"old": "alpha", "none": "gone"}, misplaced={"Elsewhere": "not here"}
    )
    assert checked.raw("alpha") == 1 and checked.at("alpha") == "Alpha" and checked.at("beta") == "beta"
    assert told(checked) == [
        "f: ALPHA: given twice (case does not matter in keys)",
        'f: alph: unknown key, did you mean "alpha"?',
        "f: zzz: unknown key, legal: alpha, beta",
        "f: Old: means the same as Alpha, which is given too, legal: one of them",
        "f: elsewhere: not here, legal: alpha, beta",
    ]


def test_sections():
    checked = section({"one": {"a": 1}, "many": [{"a": 1}, {"b": 2}], "bad": 3, "mixed": [{}, 3]})
    assert checked.section("one", ["a"]).raw("a") == 1
    assert [len(checked.sections(key, ["a", "b"])) for key in ("one", "many")] == [1, 2]
    assert [each.path for each in checked.sections("many", ["a", "b"])] == ["many[0]", "many[1]"]
    assert checked.section("one", ["a"]).at("a") == "one.a"
    assert told(checked) == []
    assert checked.section("bad", ["a"]).raw("a") is None and checked.sections("mixed", ["a"]) == ()
    assert told(checked) == [
        "f: bad: 3 is not legal, legal: an object {...}",
        "f: mixed: [{}, 3] is not legal, legal: an object {...} or an array of them",
    ]


def test_words():
    assert nearest("sigmod", ["Tanh", "Sigmoid"]) == ', did you mean "Sigmoid"?' and nearest("xyz", ["Tanh"]) == ""
    assert show("x" * 58) == '"' + "x" * 58 + '"'  # 60 characters with its quotes
    assert show("x" * 59) == '"' + "x" * 56 + "..." and len(show("x" * 59)) == 60
    assert show("é") == '"é"'
    assert is_plain("a é") and not is_plain("a\n") and not is_plain("\ud800")
