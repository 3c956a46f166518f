"""How long windows are where nobody says it."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from nnlib.importing import windows
from nnlib.importing.histories import build_history
from nnlib.importing.purchase_lines import Purchase
from nnlib.importing.purchases import gather_purchases
from nnlib.importing.splits import LEAVE_ONE_OUT, Split
from nnlib.importing.windows import settle_windows

LAST = 999


def shop(*groups, last=LAST):
    """Purchases of a new item each: groups of (customers, days of each of them); one more on the last day of all."""
    lines = [Purchase("r", "z", "z", last)]
    for name, (count, days) in enumerate(groups):
        lines += [Purchase("r", f"c{name}-{n}", f"i{k}", day) for n in range(count) for k, day in enumerate(days)]
    return gather_purchases(lines)


def every(step, first=0, last=LAST):
    return range(first, last + 1, step)


@pytest.mark.parametrize(
    ("groups", "days"),
    [
        ([(200, every(20))], 28),  # in each window of 28 days everybody takes something
        ([(199, every(20))], 28),  # longer ones ask nobody else
        ([(199, every(20)), (60, every(56))], 56),  # 60 of 259 are more than a quarter of what is asked
        ([(199, every(20)), (40, every(56))], 28),
        ([(199, every(1, 0, 700))], 224),  # who has gone for long: nobody is asked in 28, 56 or 112 days
        ([(300, every(20, 0, 99))], 224),  # in none
    ],
)
def test_windows_are_long_enough_to_ask_enough_customers(groups, days):
    found = settle_windows(shop(*groups), Split(), 0, LAST)
    assert (found.validate, found.test) == (days, days)


@pytest.mark.parametrize(("length", "days"), [(112, 28), (111, 14), (56, 14), (28, 7), (12, 3), (4, 1), (3, 1), (1, 1)])
def test_at_most_half_of_all_days_are_in_windows(length, days):
    found = settle_windows(shop((10, every(1, 0, length - 1)), last=length - 1), Split(), 0, length - 1)
    assert found.test == days


def test_what_is_given_stays():
    purchases = shop((199, every(1, 0, 700)))
    assert settle_windows(purchases, Split(test=14), 0, LAST) == Split(test=14, validate=14)
    assert settle_windows(purchases, Split(validate=7), 0, LAST) == Split(test=7, validate=7)
    assert settle_windows(purchases, Split(test=14, validate=7), 0, LAST) == Split(test=14, validate=7)
    assert settle_windows(purchases, Split(LEAVE_ONE_OUT), 0, LAST) == Split(LEAVE_ONE_OUT)


def test_history_and_repeats_count():
    one_item = [Purchase("r", f"c{n}", "i", day) for n in range(300) for day in every(20)]
    purchases = gather_purchases([*one_item, Purchase("r", "z", "z", LAST)])
    assert settle_windows(purchases, Split(min_history=1, repeats=True), 0, LAST).test == 28
    assert settle_windows(purchases, Split(min_history=1), 0, LAST).test == 224  # nothing is new to them
    assert settle_windows(purchases, Split(min_history=2, repeats=True), 0, LAST).test == 224


def test_of_many_purchases_some_customers_are_looked_at():
    purchases = shop((400, every(20)), (400, every(56)))
    with patch.object(windows, "MOST", purchases.rows.count // 4):
        assert settle_windows(purchases, Split(), 0, LAST).test == 28


def test_the_import_asks_whom_the_length_was_chosen_for():
    purchases = shop((199, every(20)), (60, every(56)))
    count = windows._Asked(purchases, Split(), LAST)
    history = build_history(purchases, Split())
    assert (history.split.test, history.split.validate) == (56, 56)
    asked = [history.part_data("r", part).sets[0].examples for part in ("valid", "test")]
    assert min(asked) == count.in_both(56) == 259
    assert np.all(np.diff([history.windows.valid, history.windows.test, history.windows.end]) == 56)
