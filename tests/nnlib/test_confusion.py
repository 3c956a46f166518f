"""What pictures were taken for, as workers write it: read back, and refused where it is out of bounds."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.confusion import Confusion, Example, confusion_of

PIXELS = base64.b64encode(bytes(range(12))).decode()
GREY = Example(0, 1, 0.75, 3, 4, 1, PIXELS)
COLOURED = Example(1, 1, 1, 2, 2, 3, PIXELS)
FOUND = Confusion(2, ("ring", "</script>"), (3, 5), ((0, 1, 2), (1, 0, 5)), (GREY, COLOURED))


def changed(**values):
    return asdict(FOUND) | values


def shown(**values):
    """The first picture, with other values."""
    return changed(examples=[asdict(GREY) | values])


def test_it_is_read_as_it_was_written():
    assert confusion_of(json.loads(json.dumps(asdict(FOUND)))) == FOUND
    none = Confusion(1000, (), (), ())  # of many classes, none of which was taken for another
    assert confusion_of(json.loads(json.dumps(asdict(none)))) == none


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (None, "confusion: "),
        ([], "confusion: "),
        ({}, "confusion: 'pairs'"),
        (changed(of=1), "of: seen 1, legal: a whole number from 2"),
        (changed(of=2.0), "of: seen 2.0"),
        (changed(of=float("nan")), "of: seen nan"),
        (changed(classes=["a"]), "pairs|pictures|longer|shorter"),
        (changed(classes=["a", 3]), "classes: seen 3, legal: texts of 256 characters"),
        (changed(classes=["a", "b" * 257]), "classes: seen"),
        (changed(classes=["a", "\ud800"]), "surrogates not allowed"),
        (changed(classes=["a"] * 41, of=41), "number of classes: seen 41"),
        (changed(classes=3), "confusion: "),
        (changed(pictures=[3, -1]), "pictures: seen -1"),
        (changed(pictures=[3, True]), "pictures: seen True"),
        (changed(pictures=[3, 10**300]), "pictures: seen 1000"),
        (changed(pictures=[3, 5, 1]), "longer"),
        (changed(pairs=[[0, 1]]), "values to unpack"),
        (changed(pairs=[[0, 2, 1]]), "pairs: seen 2, legal: a whole number from 0 to 1"),
        (changed(pairs=[[-1, 1, 1]]), "pairs: seen -1"),
        (changed(pairs=[[0, "1", 1]]), "pairs: seen '1'"),
        (changed(pairs=[[0, 1, 0]]), "pairs: pictures: seen 0, legal: a whole number from 1 to 3"),
        (changed(pairs=[[0, 1, 2], [0, 1, 2]]), "pairs: pictures: seen 2, legal: a whole number from 1 to 1"),
        (changed(pairs=[[0, 1, 1]] * 381), "number of pairs: seen 381"),
        (changed(examples=[asdict(GREY)] * 13), "number of examples: seen 13"),
        (changed(examples=[{}]), "missing"),
        (changed(examples=[asdict(GREY) | {"path": "/etc/passwd"}]), "path"),
        (shown(actual=2), "examples: actual, predicted: seen 2"),
        (shown(predicted=None), "examples: actual, predicted: seen None"),
        (shown(probability=1.5), "probability: seen 1.5, legal: 0 to 1"),
        (shown(probability=float("nan")), "probability: seen nan"),
        (shown(probability="1"), "probability: seen '1'"),
        (shown(width=0), "width, height: seen 0, legal: a whole number from 1 to 48"),
        (shown(width=4, height=49), "width, height: seen 49"),
        (shown(width=2, height=3, channels=2), "12 bytes of 1 or 3 channels"),
        (shown(channels=4), "channels: seen 4"),
        (shown(height=3), "pixels: seen .*, legal: 9 bytes"),
        (shown(pixels="data:text/html,x"), "Base64|Only|Invalid|Excess"),
        (shown(pixels="<img>" + PIXELS[5:]), "Base64|Only|Invalid|Excess"),
        (shown(pixels="é" * 16), "ASCII"),
        (shown(pixels=None), "confusion: "),
    ],
)
def test_what_is_out_of_bounds_is_refused(raw, words):
    with pytest.raises(ValueError, match=words):
        confusion_of(raw)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(asdict(FOUND), VALUES)))
def test_whatever_stands_there_is_read_or_refused(values):
    try:
        found = confusion_of(changed(**values))
    except ValueError:
        return
    assert confusion_of(json.loads(json.dumps(asdict(found)))) == found
