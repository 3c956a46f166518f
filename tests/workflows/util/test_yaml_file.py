import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from regiondag.errors import ConfigError
from regiondag.util import yaml_file
from regiondag.util.yaml_file import load_yaml, parse_yaml


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
        ("b: 1\na: {<<: {[q]: 1}}\n", ["s.yaml:2", "plain text"]),
        ("a: {<<: {q: 1, q: 2}}\n", ["s.yaml:1", "second time"]),
        ("a: {<<: [1]}\n", ["s.yaml:1", "not YAML"]),
        ("a: !!int 1_0\n", ["s.yaml:1", "no number"]),
        ("a: !!float infinity\n", ["s.yaml:1", "no number"]),
        ("a: !!bool maybe\n", ["s.yaml:1", "bool", "not allowed"]),
        ("a: !!null x\n", ["s.yaml:1", "null", "not allowed"]),
        ("a: !!timestamp 2011-12-09\n", ["s.yaml:1", "timestamp", "not allowed"]),
        ("a: !!set {b}\n", ["s.yaml:1", "set", "not allowed"]),
        (r'a: "\U99999999"', ["s.yaml", "a character that there is not"]),
        (r'a: "\U00110000"', ["s.yaml", "a character that there is not"]),
        (r'a: "\ud800"', ["s.yaml:1", "half of a character"]),
        (r'{"\ud800": 1}', ["s.yaml:1", "half of a character"]),
        ("[" * 1000, ["nested too deeply"]),
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


def test_nested_merges_do_not_multiply():
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}], z: {n}}}" for n in range(1, 30)]
    assert parse_yaml("\n".join(lines), "s.yaml").value["a29"] == {"x": 1, "y": 2, "z": 29}


def test_what_has_merged_keys_can_be_named_again():
    text = "base: &b {x: 1, y: 2}\nr: &r {<<: *b, y: 3}\ns: *r\nt: {<<: *r, x: 4}\n"
    value = parse_yaml(text, "s.yaml").value
    assert value["r"] == value["s"] == {"x": 1, "y": 3} and value["t"] == {"x": 4, "y": 3}


def test_halves_of_a_character_as_json_writes_them():
    assert parse_yaml(r'{"\ud83d\ude00": "\ud83d\ude00"}', "s.yaml").value == {"😀": "😀"}


BREAKS = "\x85\u2028\u2029"  # which PyYAML writes as they are and reads as breaks of a line
WORDS = st.sampled_from(
    ["NO", "1_000", "0x1f", "12:30", "2011-12-09", "~", "null", "true", "<<", "=", "1e3", ".inf", "-"]
)
TEXTS = WORDS | st.text(st.characters(exclude_categories=["Cs"], exclude_characters=BREAKS), max_size=6)
NUMBERS = st.integers() | st.integers(-(10**60), 10**60) | st.floats(allow_nan=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS, lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXTS, some, max_size=3), max_leaves=12
)


class Dumper(yaml.SafeDumper):
    """Writes texts without quotes where YAML 1.2 takes them for texts."""

    yaml_implicit_resolvers = yaml_file._Loader.yaml_implicit_resolvers


@settings(max_examples=50)
@given(
    VALUES,
    st.sampled_from([None, '"', "'"]),
    st.sampled_from([None, True, False]),
    st.booleans(),
    st.sampled_from([20, 80, 10**9]),
)
def test_what_is_dumped_in_any_style_is_loaded(value, style, flow, unicode, width):
    """Lists and mappings that are the same object come as anchors and aliases."""
    shown = {"first": value, "second": [value, {"third": value}]}
    text = yaml.dump(
        shown, Dumper=Dumper, default_style=style, default_flow_style=flow, allow_unicode=unicode, width=width
    )
    assert parse_yaml(text, "s.yaml").value == shown


def _written(value, path, indent, out, lines):
    """Write `value` in block style, scalars as JSON, and note the line of each key and item."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, item in pairs:
        start = "-" if isinstance(value, list) else f"{json.dumps(key)}:"
        lines[(*path, key)] = len(out) + 1
        if isinstance(item, dict | list) and item:
            out.append(" " * indent + start)
            if isinstance(value, list):  # an item begins where its first line does
                lines[(*path, key)] += 1
            _written(item, (*path, key), indent + 2, out, lines)
        else:
            out.append(f"{' ' * indent}{start} {json.dumps(item)}")


@settings(max_examples=50)
@given(st.dictionaries(st.text("abü-", max_size=3), VALUES, min_size=1, max_size=4))
def test_each_key_and_item_has_its_line(value):
    out, lines = [], {}
    _written(value, (), 0, out, lines)
    if any(text in "\n".join(out) for text in ("Infinity", "\x7f")):
        return
    document = parse_yaml("\n".join(out), "s.yaml")
    assert document.value == value
    assert {path: document.lines[path] for path in lines} == lines


TAGS = ["int", "float", "str", "map", "seq", "set", "omap", "binary", "timestamp", "merge", "python/name:os.abort"]
TOKENS = st.sampled_from(
    ["a: ", "b: ", "- ", "[", "]", "{", "}", ", ", ": ", "? ", "&x ", "*x", "<<: ", "<<: *x", "\n", "\n  ", "\n- ",
     "|\n  ", ">-\n", "---\n", "...\n", "%YAML 1.1\n", "%TAG ! tag:x\n", "'", '"', "\\", "#", "\t", "!", "NO", "0x10",
     "1e999", "9" * 5000, ".nan", "~", r'"\U99999999"', r'"\ud800"', "\u2028", "\ufeff", *(f"!!{tag} " for tag in TAGS)]
)  # fmt: skip


@given(st.lists(TOKENS | st.text(max_size=2), max_size=14).map("".join))
def test_any_document_of_yamls_own_signs_parses_or_is_refused(text):
    try:
        document = parse_yaml(text, "s.yaml")
    except ConfigError as error:
        assert str(error).startswith("s.yaml")
        return
    json.dumps(document.value, ensure_ascii=False).encode()  # plain values, and whole characters
    assert all(1 <= line <= len(text) + 1 for line in document.lines.values())


def test_as_many_values_as_are_allowed(monkeypatch):
    monkeypatch.setattr(yaml_file, "MAX_VALUES", 4)
    assert parse_yaml("a: 1\nb: [2]", "s.yaml").value == {"a": 1, "b": [2]}  # the whole, a number, a list and its item
    with pytest.raises(ConfigError, match="more than 4 values"):
        parse_yaml("a: 1\nb: [2, 3]", "s.yaml")


def test_places_are_counted_from_one():
    with pytest.raises(ConfigError, match=r"s\.yaml:2:5: not YAML"):
        parse_yaml("a: 1\nb: c: 2\n", "s.yaml")
    assert parse_yaml("x", "s.yaml").lines == {(): 1}


def test_a_folder_says_which_file_or_how_to_start(tmp_path):
    with pytest.raises(ConfigError, match="holds a study; `regiondag init retail DIR` writes"):
        load_yaml(tmp_path)
    (tmp_path / "study.yaml").write_text("search: {}\n")
    with pytest.raises(ConfigError, match=r"holds a study; give the file in it: .*study\.yaml"):
        load_yaml(tmp_path)
    with pytest.raises(ConfigError, match="holds a fleet; write one"):  # a study beside it is no fleet
        load_yaml(tmp_path, "fleet", "write one")


def test_missing_file_says_how_to_start(tmp_path):
    with pytest.raises(ConfigError, match="regiondag init"):
        load_yaml(tmp_path / "study.yaml")


def test_what_cannot_be_read_is_told_with_its_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/study\.yaml: Not a directory"):
        load_yaml(tmp_path / "file" / "study.yaml")


@given(st.text())
def test_any_text_parses_or_is_refused(text):
    try:
        parse_yaml(text, "s.yaml")
    except ConfigError as error:
        assert str(error).startswith("s.yaml")
