"""What comes from outside is read whole or refused with every mistake, and the schema says the same."""

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from regiondag.serve.messages import Asked, OfCustomer, WishesInStudy
from regiondag.serve.typed import RefusedError, read_json, read_texts, schema_of, show

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["k", "owned", "because", "only", "never", "customers", "history", "K"])


def problems(kind, raw):
    with pytest.raises(RefusedError) as error:
        read_json(kind, raw)
    return {one.where: (one.seen, one.legal) for one in error.value.problems}


def test_what_is_not_said_has_its_default():
    asked = read_json(Asked, {"customers": ["a"]})
    assert (asked.k, asked.owned, asked.because, asked.only, asked.customers) == (10, None, 0, (), ("a",))


def test_every_mistake_is_told_with_what_is_legal():
    found = problems(Asked, {"k": 0, "owned": 1, "only": [], "nevr": [], "customers": ["a", ""]})
    assert found["k"] == ("0", "a whole number from 1 to 1000")
    assert found["owned"] == ("1", "true or false")
    assert found["only"][0] == "a list of 0"
    assert "did you mean 'never'?" in found["'nevr'"][1]
    assert "1 to 256 characters" in found["customers"][1]


@pytest.mark.parametrize("raw", [None, [], "x", 3])
def test_only_objects_are_messages(raw):
    assert problems(Asked, raw)["body"][1] == "a JSON object"


@pytest.mark.parametrize("value", [True, 1.0, "1", 10**30, -1, None])
def test_a_number_is_a_whole_number_of_json(value):
    assert "k" in problems(Asked, {"k": value})


@pytest.mark.parametrize("value", ["a\0b", "a\nb", "a\n", "\x7f", "\ud800", "", "x" * 257])
def test_names_are_bounded_and_plain(value):
    assert "customers" in problems(Asked, {"customers": [value]})
    with pytest.raises(RefusedError):
        read_texts(OfCustomer, [("region", "a"), ("customer", value)])


def test_a_query_has_texts_and_lists_by_repeating_a_name():
    pairs = [("k", "3"), ("owned", "false"), ("only", "a"), ("only", "b,c"), ("study", "shop")]
    found = read_texts(WishesInStudy, pairs)
    assert (found.k, found.owned, found.only, found.study) == (3, False, ("a", "b,c"), "shop")


@pytest.mark.parametrize("value", ["", "1.0", "+1", "1e2", " 1", "1" * 30, "٣"])
def test_a_number_in_a_query_is_digits(value):
    with pytest.raises(RefusedError, match="k: seen"):
        read_texts(WishesInStudy, [("k", value)])


def test_what_is_said_twice_is_refused():
    with pytest.raises(RefusedError, match=r"k: seen a list of 2, legal: .*, once"):
        read_texts(WishesInStudy, [("k", "1"), ("k", "2")])


def test_what_a_path_lacks_is_told():
    with pytest.raises(RefusedError, match="customer: seen nothing"):
        read_texts(OfCustomer, [("region", "a")])


def texts_in(value):
    if isinstance(value, dict | list):
        return [text for one in (value.values() if isinstance(value, dict) else value) for text in texts_in(one)]
    return [value] if isinstance(value, str) else []


@given(st.dictionaries(NAMES, ANYTHING, max_size=4))
def test_the_schema_takes_what_is_read_and_nothing_else(raw):
    # JSON Schema takes 1.0 for a whole number; here it is none.
    # Python's $ matches before a last line break, JSON Schema's does not.
    assume(not any(text.endswith("\n") for text in texts_in(raw)))
    whole = all(not isinstance(raw.get(name), float) for name in ("k", "because"))
    legal = jsonschema.Draft202012Validator(schema_of(Asked)).is_valid(raw) and whole
    try:
        read_json(Asked, raw)
    except RefusedError as error:
        assert error.problems and not legal
    else:
        assert legal


@given(ANYTHING)
def test_what_was_seen_is_shown_on_a_short_line(value):
    assert len(show(value)) <= 80 and show(value).isprintable()
