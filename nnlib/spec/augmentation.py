"""The key `Augmentation` of a network file: how pictures are changed by chance while a network is trained.

Standard library only, because the manager reads networks too.
"""

from __future__ import annotations

from nnlib.spec.checks import whole
from nnlib.spec.json_section import Section
from nnlib.spec.types import Augmentation

MOST_CROP, MOST_ALPHA = 4096, 100.0
CROP = whole(0, MOST_CROP)


def parse_augmentation(network: Section) -> Augmentation:
    """Return what a network's section says; whether the inputs are pictures is known when there are data."""
    own = network.section("Augmentation", ("Crop", "Flip", "Colour", "Mixup"))
    return Augmentation(
        crop=own.read("Crop", 0, CROP),
        flip=own.boolean("Flip", False),
        colour=own.number("Colour", 0.0, 0, 1),
        mixup=own.number("Mixup", 0.0, 0, MOST_ALPHA),
    )
