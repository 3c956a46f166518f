"""Student's intervals of means, without NumPy, and how a figure is shown with its own."""

from __future__ import annotations

import math
from statistics import NormalDist

Z95 = NormalDist().inv_cdf(0.975)
FEW = 5  # customers
FEW_T95 = (12.706, 4.303, 3.182, 2.776)  # Student's t at 97.5 % with 1, 2, 3, 4 degrees of freedom


def t95(freedom: int) -> float:
    """Return the 97.5 % point of Student's t, to within .2 %.

    Cornish and Fisher's expansion (Abramowitz and Stegun 1964, 26.7.5), a table where it is poor.

    >>> round(t95(9), 3)
    2.262
    """
    if freedom <= len(FEW_T95):
        return FEW_T95[freedom - 1]
    z = Z95
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def student_cdf(t: float, freedom: int) -> float:
    """Return how probable it is that Student's t is below `t` (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4).

    >>> round(student_cdf(2.776445, 4), 6), round(student_cdf(-12.7062, 1), 6), student_cdf(0.0, 7)
    (0.975, 0.025, 0.5)
    """
    angle = math.atan(t / math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term, total = (cosine, cosine if freedom > 1 else 0.0) if odd else (1.0, 1.0)
    for k in range(1 + odd, freedom - 2, 2):
        term *= cosine**2 * k / (k + 1)
        total += term
    part = math.sin(angle) * total
    return (1 + (2 / math.pi * (angle + part) if odd else part)) / 2


def half_width(stderr: float | None, count: int) -> float | None:
    """Return half of the 95 % interval of a mean of `count` values, by its standard error; None where there is none.

    >>> round(half_width(0.1, 10), 4), half_width(None, 1)
    (0.2262, None)
    """
    return None if stderr is None or count < 2 else t95(count - 1) * stderr


def show_figure(value: float | None, half: float | None = None, customers: int = 0) -> str:
    """Return a mean with half of its interval and of how many customers it is.

    Of fewer than five Student's interval is often wider than all that a metric can be, so their number alone stands
    there.

    >>> show_figure(0.1473, 0.01234, 1119), show_figure(0.2, None, 1), show_figure(None)
    ('0.147 ± .012 (1,119)', '0.200 (1)', '-')
    >>> show_figure(0.119, 1.516, 2), show_figure(0.119, 0.2, 5)
    ('0.119 (2)', '0.119 ± .200 (5)')
    """
    if value is None:
        return "-"
    interval = "" if half is None or 0 < customers < FEW else f" ± {f'{half:.3f}'.removeprefix('0')}"
    return f"{value:.3f}{interval}" + f" ({customers:,})" * (customers > 0)
