"""Candidates that know what they are asked are refused, all at once and in words."""

from __future__ import annotations

import datetime

import pytest

from regiondag.champions.fitted_until import check_fitted_until
from regiondag.errors import RegiondagError

DAY = (datetime.date(2011, 11, 12) - datetime.date(1970, 1, 1)).days


def test_a_candidate_may_know_all_days_before_the_window():
    check_fitted_until(DAY, {"a": DAY, "b": DAY - 300})
    check_fitted_until(None, {"a": None, "b": DAY})
    check_fitted_until(DAY, {})


def test_one_that_knows_a_day_of_the_window_is_refused():
    with pytest.raises(RegiondagError) as caught:
        check_fitted_until(DAY, {"incumbent": DAY + 7, "fair": DAY, "silent": None})
    text = str(caught.value)
    assert "begins on 2011-11-12: incumbent was fitted until 2011-11-19; silent does not say" in text
    assert "fair" not in text and "fit its recipe again" in text
