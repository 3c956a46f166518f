"""Checks of single values: bounds, words and JSON Schema say the same."""

from __future__ import annotations

import math

import pytest
from jsonschema import Draft202012Validator

from nnlib.spec.checks import BOOLEAN, Check, Section, real, whole


@pytest.mark.parametrize(
    ("check", "legal", "good", "bad"),
    [
        (whole(1), "a whole number from 1", [1, 10**30], [0, True, "1", None, 1.5]),
        (whole(0, 9), "a whole number from 0 to 9", [0, 9], [-1, 10, False]),
        (real(0, 1), "a number from 0 to 1", [0, 1, 0.5], [-1e-9, 1.1, True, "0", None, [0]]),
        (real(0, 1, "a number in [0, 1)", closed=False), "a number in [0, 1)", [0, 0.999], [1, 1.0, -1]),
        (real(0, legal="a finite number from 0"), "a finite number from 0", [0, 1e308], [-1]),
        (BOOLEAN, "true or false", [True, False], [0, 1, "true", None]),
    ],
)
def test_a_check_its_words_and_its_schema(check, legal, good, bad):
    assert check.legal == legal
    schema = Draft202012Validator(check.schema)
    for value in good:
        assert check.of(value) == value and schema.is_valid(value)
    for value in bad:
        assert not schema.is_valid(value)
        with pytest.raises(ValueError, match=r"^$"):
            check.of(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400])
def test_numbers_are_finite_and_fit_a_float(value):
    for check in (real(0), real(0, 1), real(-1e300, 1e300)):
        with pytest.raises(ValueError):
            check.of(value)
    assert type(real(0).of(3)) is float


class Plain(Section):
    def __init__(self, **values: object) -> None:
        self.values, self.told = values, []

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def raw(self, key: str) -> object:
        return self.values.get(key)

    def refuse(self, key: str, legal: str, detail: str = "") -> None:
        self.told.append((key, legal, detail))


def test_what_is_wrong_is_noted_and_has_its_default():
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("it is odd")
        return value * 10

    section, check = Plain(a=2, b=3, none=None), Check(even, "an even number")
    assert [section.read(key, -1, check) for key in ("a", "b", "absent")] == [20, -1, -1]
    assert section.read("none", -1, whole(0)) == -1  # given, and no number
    assert section.told == [("b", "an even number", "it is odd"), ("none", "a whole number from 0", "")]
