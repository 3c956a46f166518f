"""Which pictures of a region are learned from, which decide and which test: by class, and by chance from a seed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from nnlib.importing.images.listing import Picture

TRAIN, VALID, TEST = "train", "valid", "test"
FINAL = "final"  # train and valid
PARTS = (TRAIN, VALID, FINAL, TEST)


@dataclass(frozen=True, slots=True)
class Shares:
    """What part of the pictures of every class is held out, and the seed that says which."""

    test: float = 0.2
    valid: float = 0.2
    seed: int = 0


def divide(pictures: Iterable[Picture], shares: Shares) -> list[Picture]:
    """Return the pictures of one region, each with its part, in an order of chance.

    The order is that of the SHA-256 of seed and name, so that it is the same wherever the pictures are listed, and
    new ones leave the order of the others as it is. Where a table says the parts they stay.

    Shares are counted on from class to class, so that they come out for small classes together, too; of each class at
    least one picture is learned from.
    """
    found = sorted(pictures, key=lambda picture: (picture.label, _chance(picture, shares.seed)))
    if not all(picture.part for picture in found):
        found = _divide_classes(found, shares)
    return sorted(found, key=lambda picture: _chance(picture, shares.seed))


def _divide_classes(pictures: Sequence[Picture], shares: Shares) -> list[Picture]:
    found: list[Picture] = []
    share = shares.test + shares.valid
    counted = held_out = tested = 0
    for _, some in groupby(pictures, lambda picture: picture.label):
        own = list(some)
        counted += len(own) if len(own) > 1 else 0
        out = min(round(counted * share) - held_out, math.ceil(len(own) * share), len(own) - 1)
        test = min(max(round(counted * shares.test) - tested, 0), out)
        held_out, tested = held_out + out, tested + test
        parts = [TEST] * test + [VALID] * (out - test) + [TRAIN] * (len(own) - out)
        found += [replace(picture, part=part) for picture, part in zip(own, parts, strict=True)]
    return found


def _chance(picture: Picture, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{picture.name}".encode()).digest()
