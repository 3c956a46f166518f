"""Numbers for texts: what a dict of strings does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.importing.string_ids import StringIds

TEXT = st.text("ab\u00e9", max_size=30) | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def number(known: StringIds, texts: list[str], groups: list[int] | None = None) -> list[int]:
    """Number texts that stand one behind another in bytes, as in a column of a table."""
    raw = [text.encode() for text in texts]
    whole = b"".join(raw) + bytes(8)
    words = np.array([int.from_bytes(whole[place : place + 8], "little") for place in range(len(whole) - 7)], np.uint64)
    lengths = np.array([len(one) for one in raw], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    group = None if groups is None else np.array(groups, np.int32)
    return known.numbers(words, starts, lengths, group).tolist()


@given(st.lists(st.tuples(TEXT, st.integers(0, 2)), min_size=1, max_size=40))
def test_two_texts_have_one_number_where_they_and_their_groups_are_equal(pairs):
    texts, groups = [text for text, _ in pairs], [group for _, group in pairs]
    known = StringIds()
    found = number(known, texts, groups)
    assert len(set(zip(found, pairs, strict=True))) == len(set(found)) == len(set(pairs))
    assert number(known, texts[::-1], groups[::-1]) == found[::-1]  # they are known now
    back, back_groups = known.texts(np.array(found, np.int32))
    assert (back, back_groups.tolist()) == (texts, groups)
    assert min(found) >= 1 and max(found) < known.count


def test_without_groups_all_are_in_the_first():
    known = StringIds()
    assert number(known, ["a", "b", "a"]) == number(known, ["a", "b", "a"], [0, 0, 0])
    assert known.texts(np.array(number(known, ["b"]), np.int32))[1].tolist() == [0]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 24])
def test_every_byte_counts(length):
    known = StringIds()
    texts = ["x" * length, "x" * length + "y", *("x" * n + "z" + "x" * (length - n - 1) for n in range(length))]
    assert len(set(number(known, texts))) == len(texts)


def test_more_texts_than_there_was_room_for():
    known = StringIds()
    texts = [f"{n * 7919 % 20011:07d}-{n}" for n in range(5000)]
    first = number(known, texts[:2000])
    rest = number(known, texts)
    assert rest[:2000] == first and len(set(rest)) == 5000
    assert known.texts(np.array(rest, np.int32))[0] == texts
