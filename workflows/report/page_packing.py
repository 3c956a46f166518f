"""What the parts of the page's data share: figures rounded, every text once."""

from __future__ import annotations

import math

from regiondag.util.text import shorten

DIGITS = 6  # of values and hyperparameters
LONGEST_TEXT = 2000  # characters of any one text: a compiler's whole output for each of 8,000 trials is too much


class Texts:
    """Every text once; columns hold its number."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {"": 0}

    def number(self, text: str) -> int:
        """Return the text's place in `all`."""
        return self.known.setdefault(shorten(text, LONGEST_TEXT), len(self.known))

    @property
    def all(self) -> list[str]:
        """All texts, in the order of their numbers."""
        return list(self.known)


def round_value(value: float | None, digits: int = DIGITS) -> float | None:
    """Return a value with some digits; None for none, and for what JSON cannot hold.

    >>> round_value(0.123456789), round_value(float("nan"))
    (0.123457, None)
    """
    return None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")


def tenths(seconds: float | None) -> float | None:
    """Return seconds to a tenth."""
    return None if seconds is None or not math.isfinite(seconds) else round(seconds, 1)


def hold_name(code: int, subcode: int) -> str:
    """Return how a hold is called: by HTCondor's code and subcode."""
    return f"held (code {code}.{subcode})"
