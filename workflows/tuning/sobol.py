"""Scrambled Sobol points, by the standard library alone: SciPy's need 1.2 s to import, which every first PRE would pay.

Direction numbers are those of Joe and Kuo (new-joe-kuo-6.21201, the ones SciPy uses); the scrambling is Matousek's
random linear map with a digital shift.
"""

from __future__ import annotations

import random
from functools import cache

BITS = 30
# Of the second dimension and those after it: the primitive polynomial's bits, and the initial direction numbers.
DIRECTIONS = """
    3:1 7:1,3 11:1,3,1 13:1,1,1 19:1,1,3,3 25:1,3,5,13 37:1,1,5,5,17 41:1,1,5,5,5 47:1,1,7,11,19 55:1,1,5,1,1
    59:1,1,1,3,11 61:1,3,5,5,31 67:1,3,3,9,7,49 91:1,1,1,15,21,21 97:1,3,1,13,27,49 103:1,1,1,15,7,5
    109:1,3,1,15,13,25 115:1,1,5,5,19,61 131:1,3,7,11,23,15,103 137:1,3,7,13,13,15,69 143:1,1,3,13,7,35,63
    145:1,3,5,9,1,25,53 157:1,3,1,13,9,35,107 167:1,3,1,5,27,61,31 171:1,1,5,11,19,41,61 185:1,3,5,3,3,13,69
    191:1,1,7,13,1,19,1 193:1,3,7,5,13,19,59 203:1,1,3,9,25,29,41 211:1,3,5,13,23,1,55 213:1,3,7,3,13,59,17
    229:1,3,1,3,5,53,69 239:1,1,5,5,23,33,13 241:1,1,7,7,1,61,123 247:1,1,7,9,13,61,49 253:1,3,3,5,3,55,33
    285:1,3,1,15,31,13,49,245 299:1,3,5,15,31,59,63,97 301:1,3,1,11,11,11,77,249
"""
DIMENSIONS = 1 + len(DIRECTIONS.split())


def sobol_point(dimensions: int, index: int, seed: int) -> list[float]:
    """Return point `index` of the scrambled sequence in [0, 1)^dimensions that belongs to `seed`.

    Dimensions beyond the table are filled with random numbers.
    """
    gray = index ^ (index >> 1)
    point = []
    for dimension in range(dimensions):
        if dimension >= DIMENSIONS:
            point.append(random.Random(f"{seed} {dimension} {index}").random())  # noqa: S311
            continue
        columns, digits = _dimension(dimension, seed)
        for bit, column in enumerate(columns):
            if gray >> bit & 1:
                digits ^= column
        point.append(digits / 2**BITS)
    return point


@cache  # thousands of points are asked for at once
def _dimension(dimension: int, seed: int) -> tuple[list[int], int]:
    """Return the scrambled generator matrix of one dimension, and its digital shift."""
    generator = random.Random(f"{seed} {dimension}")  # noqa: S311 (not for secrets)
    return _scramble(_columns(dimension), generator), generator.getrandbits(BITS)


def _columns(dimension: int) -> list[int]:
    """Return the generator matrix of one dimension: its columns as numbers of BITS bits."""
    if dimension == 0:
        return [1 << (BITS - 1 - bit) for bit in range(BITS)]
    polynomial, initial = DIRECTIONS.split()[dimension - 1].split(":")
    taps = int(polynomial)
    degree = taps.bit_length() - 1
    columns = [int(number) << (BITS - 1 - bit) for bit, number in enumerate(initial.split(","))]
    for bit in range(degree, BITS):
        column = columns[bit - degree] ^ (columns[bit - degree] >> degree)
        for k in range(1, degree):
            if taps >> (degree - k) & 1:
                column ^= columns[bit - k]
        columns.append(column)
    return columns


def _scramble(columns: list[int], generator: random.Random) -> list[int]:
    """Multiply the matrix by a random lower triangular one: each digit takes in some of those before it."""
    rows = [generator.getrandbits(BITS) >> (BITS - digit) << 1 | 1 for digit in range(BITS)]
    return [
        sum(
            (bin(row << (BITS - 1 - digit) & column).count("1") & 1) << (BITS - 1 - digit)
            for digit, row in enumerate(rows)
        )
        for column in columns
    ]
