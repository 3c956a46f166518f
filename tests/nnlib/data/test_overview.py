import datetime

import numpy as np
import pytest

from nnlib.data.overview import AsOf, RegionOverview, Suspicions, describe_region, find_warnings, table_row
from nnlib.data.rows import from_rows
from nnlib.util.days import day_of, show_day

USUAL = {
    "days": (100, 199),
    "customers": 500,
    "items": 50,
    "entries": 2500,
    "most": 9,
    "asked": (60, 70),
    "targets": 90,
}
WINDOWS = AsOf(172, 186, 200)


def region(name="Spain", **changes):
    return RegionOverview(name, **({**USUAL, "cold": 0} | changes))


@pytest.mark.parametrize(
    ("changes", "today", "suspicions", "words"),
    [
        ({}, 200, None, None),
        ({}, 199, None, None),
        ({"asked": (60, 30)}, 200, None, None),
        ({"asked": (60, 29)}, 200, None, "fewer than 30 customers to test on: Spain (29)"),
        ({"cold": 45}, 200, None, None),
        ({"cold": 46}, 200, None, "most of what the test asks for is in nobody's history: Spain (51%)"),
        ({"days": (158, 199)}, 200, None, None),
        ({"days": (159, 199)}, 200, None, "longer than the history before them: Spain (13 days)"),
        ({}, 198, None, "the last purchase, of 1970-07-19, lies after today, 1970-07-18"),
        ({}, 200, Suspicions(1000, 49), None),
        ({}, 200, Suspicions(1000, 50), "50 of 1,000 rows (5.0%) have customer, item and day of another row; if"),
        ({}, 200, Suspicions(1000, 0, "customer 'x' of 'Spain'", 0.1), None),
        ({}, 200, Suspicions(1000, 0, "customer 'x' of 'Spain'", 0.11), "customer 'x' of 'Spain' has 11% of all"),
    ],
)
def test_what_is_doubtful_is_said_and_nothing_else(changes, today, suspicions, words):
    found = find_warnings([region(**changes)], WINDOWS, today, suspicions)
    assert len(found) == (words is not None)
    assert words is None or words in found[0]


def test_many_regions_make_one_line():
    few = [region(f"r{n}", customers=n, asked=(0, n)) for n in range(9)]
    [line] = find_warnings([region("large"), *few], None, 0)
    assert line.startswith("fewer than 30 customers to test on: r8 (8), r7 (7), r6 (6), r5 (5), r4 (4), and 4 more;")


def test_a_region_as_cells():
    rows, days = from_rows([[0, 2], [2]], 4), np.array([5, 3, 9], np.int32)
    seen = np.array([True, False, True, False])
    one = describe_region("a\nb", rows, days, (1, 2), np.array([1, 2, 2], np.int32), seen, 0.25)
    row = ("'a\\nb'", "1970-01-04", "1970-01-10", "2", "2", "3", "75.00%", "25.0%", "1", "2", "33.3%")
    assert table_row(one) == row
    empty = describe_region("a", from_rows([[]], 4), None, (0, 0), np.empty(0, np.int32), seen)
    assert table_row(empty)[1:] == ("-", "-", "1", "0", "0", "0.00%", "-", "0", "0", "-")


def test_days_are_shown_as_dates_where_there_are_any():
    assert day_of(datetime.date(2011, 12, 9)) == 15317
    assert show_day(15317) == "2011-12-09"
    assert show_day(10**9) == "day 1000000000"
