"""Numbers that are none are found wherever they stand."""

import numpy as np
import pytest

from nnlib.ops import finite


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 3, 4, 10])
def test_one_number_that_is_not_finite_is_found_in_any_piece(monkeypatch, wrong, place):
    monkeypatch.setattr(finite, "PIECE", 4)
    values = np.zeros((11, 1), np.float32)
    assert finite.all_finite(values)
    values[place] = wrong
    assert not finite.all_finite(values)


def test_no_numbers_are_finite():
    assert finite.all_finite(np.zeros((0, 3)))
