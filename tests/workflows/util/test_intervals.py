"""Intervals of means, against SciPy's Student's t, and figures as they are shown."""

from __future__ import annotations

import doctest

import pytest
from scipy.stats import t as student

from regiondag.util import intervals
from regiondag.util.intervals import half_width, show_figure, student_cdf, t95


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 6, 9, 30, 1000])
def test_students_t_is_near_enough(freedom):
    assert t95(freedom) == pytest.approx(student.ppf(0.975, freedom), rel=2e-3)


def test_half_of_an_interval():
    assert half_width(0.0047, 1119) == pytest.approx(0.0047 * 1.9621, rel=1e-4)
    assert half_width(0.1, 2) == pytest.approx(1.2706)
    assert half_width(0.1, 1) is half_width(None, 9) is None


def test_a_figure_stands_with_its_interval_and_its_customers():
    assert show_figure(0.15242, 0.00931, 1248) == "0.152 ± .009 (1,248)"
    assert show_figure(0.1186, 1.5069, 2) == "0.119 (2)"
    assert show_figure(7.25) == "7.250"  # a loss has neither
    assert doctest.testmod(intervals).failed == 0


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 30, 99])
def test_students_distribution_is_scipys(freedom):
    for t in (-3.0, -0.5, 0.0, 0.1, 1.0, 2.5, 40.0):
        assert student_cdf(t, freedom) == pytest.approx(student.cdf(t, freedom), abs=1e-12)
