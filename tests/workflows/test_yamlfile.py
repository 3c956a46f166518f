import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows import yamlfile
from workflows.errors import ConfigError
from workflows.yamlfile import load_yaml, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        ("-.5", -0.5),
        (".inf", float("inf")),
        ("010", 10),
        ("1_000", "1_000"),
        ("2011-12-09", "2011-12-09"),
        ("12:30", "12:30"),
        ("~", None),
        ("'1'", "1"),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    assert parse_yaml(f"a: {text}", "s.yaml").value == {"a": value}


def test_lines_of_keys_and_items():
    document = parse_yaml("a: 1\nb:\n  - x: 2\n  -\n    y: 3\n", "s.yaml")
    assert document.lines[("a",)] == 1
    assert document.lines[("b", 0, "x")] == 3
    assert document.lines[("b", 1, "y")] == 5


def test_merge_keys_let_regions_share():
    text = "base: &b {x: 1, y: 2}\nr:\n  <<: *b\n  y: 3\n"
    assert parse_yaml(text, "s.yaml").value["r"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\na: 2\n", ["s.yaml:2", "'a'", "second time"]),
        ("a: {b: x =?= y}\n", ["s.yaml:1", "into quotes"]),
        ("a: [1, 2\n", ["s.yaml:2", "not YAML"]),
        ("a: !!python/object:os.system {}\n", ["s.yaml:1"]),
        ("a: !ruby x\n", ["not allowed"]),
        ("a: !!int abc\n", ["s.yaml:1", "no number"]),
        ("a: " + "9" * 5000, ["s.yaml:1", "no number"]),
        ("? [a]\n: b\n", ["s.yaml:1", "plain text"]),
        ("", ["empty"]),
        ("a: &a [*a]\n", ["alias"]),
        ("a: 1\n---\nb: 2\n", ["not YAML"]),
    ],
)
def test_refusals_say_where(text, words):
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "s.yaml")
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_nested_aliases_cannot_eat_the_memory():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match="aliases"):
        parse_yaml("\n".join(lines), "s.yaml")


def test_as_many_values_as_are_allowed(monkeypatch):
    monkeypatch.setattr(yamlfile, "MAX_VALUES", 4)
    assert parse_yaml("a: 1\nb: [2]", "s.yaml").value == {"a": 1, "b": [2]}  # the whole, a number, a list and its item
    with pytest.raises(ConfigError, match="more than 4 values"):
        parse_yaml("a: 1\nb: [2, 3]", "s.yaml")


def test_places_are_counted_from_one():
    with pytest.raises(ConfigError, match=r"s\.yaml:2:5: not YAML"):
        parse_yaml("a: 1\nb: c: 2\n", "s.yaml")
    assert parse_yaml("x", "s.yaml").lines == {(): 1}


def test_missing_file_says_how_to_start(tmp_path):
    with pytest.raises(ConfigError, match="regiondag init"):
        load_yaml(tmp_path / "study.yaml")


@given(st.text())
def test_any_text_parses_or_is_refused(text):
    try:
        parse_yaml(text, "s.yaml")
    except ConfigError as error:
        assert str(error).startswith("s.yaml")
