"""Scrambled Sobol points: SciPy's numbers underneath, and a scrambling that keeps what makes them even."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy.stats import qmc

from regiondag.tuning import sobol
from regiondag.tuning.sobol import BITS, DIMENSIONS, _columns, _scramble, sobol_point


def plain(monkeypatch):
    """Leave the scrambling out."""
    monkeypatch.setattr(sobol, "_dimension", lambda dimension, seed: (_columns(dimension), 0))


def test_without_scrambling_points_are_scipys(monkeypatch):
    plain(monkeypatch)
    expected = qmc.Sobol(DIMENSIONS, scramble=False, bits=BITS).random(256)
    for index in (0, 1, 2, 3, 7, 100, 128, 255):
        assert sobol_point(DIMENSIONS, index, 1) == expected[index].tolist()


def test_far_points_are_scipys_too(monkeypatch):
    plain(monkeypatch)
    engine = qmc.Sobol(6, scramble=False, bits=BITS)
    engine.fast_forward(2**14 + 77)
    assert sobol_point(6, 2**14 + 77, 1) == engine.random(1)[0].tolist()


def test_direction_numbers_follow_bratley_and_fox():
    assert [column * 2 ** (bit + 1) >> BITS for bit, column in enumerate(_columns(0))] == [1] * BITS
    for dimension, entry in enumerate(sobol.DIRECTIONS.split(), 1):
        polynomial, _, initial = entry.partition(":")
        numbers = [int(number) for number in initial.split(",")]
        taps = [int(tap) for tap in f"{int(polynomial):b}"]  # of x^s + a_1 x^(s-1) + ... + 1
        degree = len(taps) - 1
        while len(numbers) < BITS:
            new = numbers[-degree]
            for back in range(1, degree + 1):
                new ^= taps[back] * 2**back * numbers[-back]
            numbers.append(new)
        assert _columns(dimension) == [number << (BITS - 1 - bit) for bit, number in enumerate(numbers)]


def test_every_generator_matrix_is_upper_triangular():
    for dimension in range(DIMENSIONS):
        columns = _columns(dimension)
        assert len(columns) == BITS
        for bit, column in enumerate(columns):
            digit = 1 << (BITS - 1 - bit)
            assert column & digit and column % digit == 0 and column < 1 << BITS  # ones on the diagonal, none below


def test_scrambling_multiplies_by_a_lower_triangular_matrix():
    generator = random.Random(3)
    columns = _columns(4)
    identity = [1 << (BITS - 1 - bit) for bit in range(BITS)]
    matrix = _scramble(identity, random.Random(3))  # its columns
    for bit, column in enumerate(matrix):
        assert column >> (BITS - 1 - bit) == 1  # a digit stays, and takes part in later ones only
    ones = sum(bin(column).count("1") - 1 for column in matrix) / (BITS * (BITS - 1) / 2)
    assert 0.4 < ones < 0.6  # half of them
    for found, column in zip(_scramble(columns, generator), columns, strict=True):
        expected = 0
        for bit in range(BITS):
            if column >> (BITS - 1 - bit) & 1:
                expected ^= matrix[bit]
        assert found == expected


def test_any_digit_may_take_in_any_one_before_it():
    identity = [1 << (BITS - 1 - bit) for bit in range(BITS)]
    matrices = [_scramble(identity, random.Random(seed)) for seed in range(40)]
    for bit in range(BITS):
        for digit in range(bit + 1, BITS):
            taken = sum(matrix[bit] >> (BITS - 1 - digit) & 1 for matrix in matrices)
            assert 4 < taken < 36  # in half of the scramblings


@pytest.mark.parametrize("seed", [1, 2])
def test_any_aligned_block_has_one_point_in_each_part_of_each_axis(seed):
    for begin, count in ((0, 32), (96, 32), (4096, 16), (2**20, 8)):
        points = np.array([sobol_point(7, begin + number, seed) for number in range(count)])
        assert (points >= 0).all() and (points < 1).all()
        for column in points.T:
            assert sorted((column * count).astype(int)) == list(range(count))


def test_two_axes_together_are_even():
    points = np.array([sobol_point(2, index, 9) for index in range(64)])
    for across in (2, 4, 8, 16, 32):
        cells = {(int(x * across), int(y * (64 // across))) for x, y in points}
        assert len(cells) == 64


def test_points_have_thirty_binary_digits():
    values = [value * 2**30 for index in range(64) for value in sobol_point(5, index, 1)]
    assert all(value.is_integer() for value in values) and any(value % 2 for value in values)


def test_a_seed_is_a_scrambling_and_a_shift_of_its_own():
    first, second = (np.array([sobol_point(5, index, seed) for index in range(16)]) for seed in (1, 2))
    assert (first != second).all() and (first == [sobol_point(5, index, 1) for index in range(16)]).all()
    shifts = [sobol_point(1, 0, seed)[0] for seed in range(200)]
    assert np.histogram(shifts, 4, (0, 1))[0].min() > 25 and len(set(shifts)) == 200
    point = sobol_point(5, 3, 1)
    assert len(set(point)) == 5 and sobol_point(3, 3, 1) == point[:3]  # more parameters change no other one


def test_beyond_the_table_numbers_are_random():
    points = np.array([sobol_point(DIMENSIONS + 2, index, 3) for index in range(100)])[:, DIMENSIONS - 1 :]
    assert points.shape == (100, 3) and (points >= 0).all() and (points < 1).all()
    for column in points.T:
        assert np.histogram(column, 4, (0, 1))[0].min() > 10 and len(set(column)) == 100
    assert abs(np.corrcoef(points[:, 1:].T)[0, 1]) < 0.3
    assert sobol_point(DIMENSIONS + 2, 5, 3) == sobol_point(DIMENSIONS + 2, 5, 3)
    assert sobol_point(DIMENSIONS + 2, 5, 4)[-1] != sobol_point(DIMENSIONS + 2, 5, 3)[-1]


def test_the_table_has_polynomials_of_growing_degree_and_as_many_odd_numbers_for_each():
    degrees = [int(entry.partition(":")[0]).bit_length() - 1 for entry in sobol.DIRECTIONS.split()]
    assert len(degrees) + 1 == DIMENSIONS and degrees == sorted(degrees)
    for entry, degree in zip(sobol.DIRECTIONS.split(), degrees, strict=True):
        initial = [int(number) for number in entry.partition(":")[2].split(",")]
        assert len(initial) == degree and all(m % 2 and m < 2 ** (k + 1) for k, m in enumerate(initial))
