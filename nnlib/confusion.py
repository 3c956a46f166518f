"""Which classes of pictures a network took for which others, with a few of the pictures: a part of `result.json`.

Standard library only, as `contract`. What is out of bounds is never an object: workers write it, and pages show it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

MOST_CLASSES = 20  # of which all pairs are told; of more classes
MOST_PAIRS = 20  # ... only these, the most frequent, with their classes
MOST_EXAMPLES = 12
MOST_SIDE = 48  # pixels
MOST_NAME = 256  # characters
MOST_PICTURES = 2**53  # as far as a browser counts


@dataclass(frozen=True, slots=True)
class Example:
    """A picture of the test part, made small, and what it was taken for."""

    actual: int  # its class, a number into `classes`
    predicted: int  # the class that the network named
    probability: float  # that the network gave this class
    width: int  # pixels, 1 to 48
    height: int  # likewise
    channels: int  # 1: grey; 3: red, green and blue
    pixels: str  # bytes in Base64: row by row from the top, the channels of a pixel together

    def __post_init__(self) -> None:
        """Raise ValueError for what is out of bounds; those of classes are the confusion's."""
        _check("width, height", 1, MOST_SIDE, self.width, self.height)
        _check("channels", 1, 3, self.channels)
        size = self.width * self.height * self.channels
        if self.channels == 2 or len(base64.b64decode(self.pixels, validate=True)) != size:
            raise ValueError(f"pixels: seen {self.pixels!r:.40}, legal: {size} bytes of 1 or 3 channels, in Base64")
        if type(self.probability) not in (int, float) or not 0 <= self.probability <= 1:  # NaN is not
            raise ValueError(f"probability: seen {self.probability!r:.40}, legal: 0 to 1")


@dataclass(frozen=True, slots=True)
class Confusion:
    """What pictures of the test part were taken for; each is of one class."""

    of: int  # classes there are; of more than 20 only those of `pairs` are told
    classes: tuple[str, ...]  # their names
    pictures: tuple[int, ...]  # how many there are of each class
    pairs: tuple[tuple[int, int, int], ...]  # a class, which it was taken for, how often; the most frequent first
    examples: tuple[Example, ...] = ()  # mistakes first

    def __post_init__(self) -> None:
        """Raise ValueError for what is out of bounds."""
        count = len(self.classes)
        _check("number of classes", 0, 2 * MOST_PAIRS, count)
        _check("number of pairs", 0, MOST_CLASSES * (MOST_CLASSES - 1), len(self.pairs))
        _check("number of examples", 0, MOST_EXAMPLES, len(self.examples))
        _check("of", count, MOST_PICTURES, self.of)
        for name in self.classes:
            if type(name) is not str or len(name) > MOST_NAME:
                raise ValueError(f"classes: seen {name!r:.40}, legal: texts of {MOST_NAME} characters at most")
            name.encode()  # UnicodeEncodeError, a ValueError, for half of a character
        _check("pictures", 0, MOST_PICTURES, *self.pictures)
        right = dict(zip(range(count), self.pictures, strict=True))
        for actual, predicted, often in self.pairs:
            _check("pairs", 0, count - 1, actual, predicted)
            _check("pairs: pictures", 1, right[actual], often)
            right[actual] -= often
        for one in self.examples:
            _check("examples: actual, predicted", 0, count - 1, one.actual, one.predicted)


def confusion_of(raw: Any) -> Confusion:
    """Return what was read from JSON; ValueError for what is out of bounds, or none."""
    try:
        pairs = tuple((actual, predicted, often) for actual, predicted, often in raw["pairs"])
        examples = tuple(Example(**one) for one in raw["examples"])
        return Confusion(raw["of"], tuple(raw["classes"]), tuple(raw["pictures"]), pairs, examples)
    except (KeyError, TypeError) as error:
        raise ValueError(f"confusion: {error}") from error


def _check(name: str, least: int, most: int, *values: object) -> None:
    for value in values:
        if type(value) is not int or not least <= value <= most:  # a bool is none
            raise ValueError(f"{name}: seen {value!r:.40}, legal: a whole number from {least} to {most}")
