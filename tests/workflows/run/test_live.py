"""What a running trial said of itself, read as the untrusted text that it is."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib import progress
from regiondag.condor import classads
from regiondag.run.layout import NodeName
from regiondag.run.live import LATEST, LONGEST_TIME, MOST_EPOCHS, Live, parse_live

NODE = NodeName("germany", 7)
SAID = {
    progress.EPOCH: 12,
    progress.EPOCHS: 30,
    progress.LOSS: 0.25,
    progress.VALUE: 0.125,
    progress.CURVE: "0.1,0.125",
    progress.SECONDS_LEFT: 90.5,
    progress.AT: 1_800_000_000,
}


def test_what_a_training_says():
    live = parse_live(NODE, SAID)
    assert live == Live(NODE, 12, 30, 0.25, 0.125, (0.1, 0.125), 90.5, 1_800_000_000)
    assert live.age(1_800_000_012.5) == 12.5
    assert live.age(1_799_999_999) == 0  # the worker's clock is ahead


def test_of_what_has_no_epochs():
    live = parse_live(NODE, {progress.AT: 5, progress.DOING: "fitting ease"})
    assert live == Live(NODE, 0, 0, None, None, (), None, 5.0, "fitting ease")


def test_who_does_not_say_when_has_said_nothing():
    assert parse_live(NODE, {}) is None
    assert parse_live(NODE, {**SAID, progress.AT: "now"}) is None


@pytest.mark.parametrize(
    ("name", "value", "field", "read"),
    [
        (progress.EPOCH, 31, "epoch", 30),
        (progress.EPOCH, -1, "epoch", 0),
        (progress.EPOCH, True, "epoch", 0),
        (progress.EPOCHS, MOST_EPOCHS + 1, "epochs", 0),
        (progress.LOSS, math.inf, "loss", None),
        (progress.LOSS, 10**400, "loss", None),
        (progress.LOSS, "0.5", "loss", None),
        (progress.VALUE, math.nan, "value", None),
        (progress.CURVE, "0.1,nan", "curve", ()),
        (progress.CURVE, "0.1,,0.2", "curve", ()),
        (progress.CURVE, ",".join(["1"] * 101), "curve", ()),
        (progress.CURVE, "1" * 994, "curve", ()),
        (progress.CURVE, ["0.1"], "curve", ()),
        (progress.SECONDS_LEFT, -1, "seconds_left", None),
        (progress.SECONDS_LEFT, LONGEST_TIME + 1, "seconds_left", None),
        (progress.DOING, "\x1b[2J" + "x" * 100, "doing", "?[2J" + "x" * 56),
        (progress.DOING, 5, "doing", ""),
    ],
)
def test_what_is_not_legal_is_passed_over(name, value, field, read):
    live = parse_live(NODE, {**SAID, name: value})
    assert live is not None and getattr(live, field) == read


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.text(alphabet="0123456789.,e-+infa ", max_size=1200),
    st.lists(st.integers(), max_size=3),
)


@given(st.dictionaries(st.sampled_from(progress.ATTRIBUTES), ANYTHING))
def test_whatever_is_said_is_bounded_and_typed(said):
    live = parse_live(NODE, said)
    if live is None:
        return
    json.dumps(asdict(live), allow_nan=False)
    assert 0 <= live.epoch <= live.epochs <= MOST_EPOCHS and 0 <= live.at <= LATEST
    assert len(live.curve) <= progress.MOST_POINTS and all(map(math.isfinite, live.curve))
    assert live.doing.isprintable() and len(live.doing) <= progress.LONGEST_DOING
    assert live.seconds_left is None or 0 <= live.seconds_left <= LONGEST_TIME


NUMBERS = st.floats(-1e300, 1e300)


@given(st.lists(NUMBERS, max_size=400))
def test_a_curve_of_any_length_goes_into_one_attribute(values):
    packed = progress.pack_curve(values)
    assert len(progress.literal(packed)) <= progress.LONGEST
    live = parse_live(NODE, {progress.AT: 1, progress.CURVE: packed})
    assert live is not None and len(live.curve) <= len(values)
    if values:
        assert live.curve[0] == float(f"{values[0]:.4g}") and live.curve[-1] == float(f"{values[-1]:.4g}")


def test_a_long_curve_is_thinned_evenly():
    packed = progress.pack_curve([epoch / 1000 for epoch in range(991)])
    assert [float(word) for word in packed.split(",")] == pytest.approx([step / 100 for step in range(100)], abs=1e-3)


@given(
    st.one_of(
        NUMBERS,
        st.integers(-(2**62), 2**62),
        st.text(alphabet=st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters="\\")),
    )
)
def test_htcondor_reads_a_value_as_it_was_said(value):
    ad = classads.parse_ad(f"Requirements = true\nSaid = {progress.literal(value)}")
    assert ad is not None and ad["Said"] == value and type(ad["Said"]) is type(value)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_undefined(value):
    assert progress.literal(value) == "undefined"
