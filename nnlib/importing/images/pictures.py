"""A picture in a file, decoded into bytes of a wanted size. The one module that imports Pillow.

The middle of the picture is taken, as wide and high as the wanted size says, and scaled with Pillow's bilinear filter,
which averages all pixels that fall together. What is transparent stands on white, 16 bits are rounded to 8, of several
frames the first counts, and profiles of colour are not applied.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.errors import NnlibError
from nnlib.importing.blocks import Bytes
from nnlib.util.process import install_line

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MOST_BYTES = 1 << 28  # of a file
MOST_PIXELS = 1 << 26  # of a picture: a few bytes of a hostile file can stand for many more
MOST_SIDE = 1 << 15
GAP = 2  # a JPEG is decoded, and others are averaged in whole blocks, down to so many times the wanted size
ORIENTATION = 0x0112  # the tag of EXIF that says how the camera was held
ASIDE = (5, 6, 7, 8)  # its values for a picture that lies on its side
OF_16_BITS = 257  # 65535 / 255


class PictureError(Exception):
    """A file is no picture, or none that is read; the message says why."""


@dataclass(frozen=True, slots=True)
class PictureForm:
    """What every picture is made into."""

    width: int = 64
    height: int = 64
    grey: bool = False

    @property
    def channels(self) -> int:
        """One of grey, else red, green, blue."""
        return 1 if self.grey else 3

    @property
    def units(self) -> int:
        """How many numbers a picture has."""
        return self.width * self.height * self.channels


@contextmanager
def pillow() -> Iterator[None]:
    """Have Pillow ready in a block, for all threads; NnlibError where it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise NnlibError(
            f"pictures are read by Pillow, which is missing; to install it: {install_line('images')}"
        ) from error
    Image.init()  # once: threads would do it again beside each other
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd files, which are read as far as they can be
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def decode(path: Path, form: PictureForm) -> Bytes:
    """Return a picture as (channels, height, width); call it within `pillow`.

    Raises PictureError for what is wrong with the file, OSError where the system cannot read it.
    """
    if path.stat().st_size > MOST_BYTES:
        raise PictureError(f"a file of more than {MOST_BYTES >> 20} MiB")
    try:
        return _decode(path, form)
    except (PictureError, MemoryError):
        raise
    except OSError as error:
        if error.errno:
            raise
        raise PictureError(_reason(error)) from error
    except Exception as error:  # whatever a decoder makes of a damaged file
        raise PictureError(_reason(error)) from error


def _decode(path: Path, form: PictureForm) -> Bytes:
    from PIL import Image

    mode = "L" if form.grey else "RGB"
    with Image.open(path, formats=FORMATS) as picture:
        _check_size(picture)
        turned = _orientation(picture)
        wanted = (form.height, form.width) if turned in ASIDE else (form.width, form.height)
        left, top, right, bottom = _crop(picture.size, wanted)
        share = (right - left) / picture.size[0], (bottom - top) / picture.size[1]
        picture.draft(mode, (math.ceil(GAP * wanted[0] / share[0]), math.ceil(GAP * wanted[1] / share[1])))
        plain = _plain(picture, mode)
    box = _crop(plain.size, wanted)  # a JPEG may have become smaller
    small = plain.resize(wanted, Image.Resampling.BILINEAR, box, reducing_gap=float(GAP))
    values = _turn(np.asarray(small).reshape(wanted[1], wanted[0], form.channels), turned)
    return np.ascontiguousarray(values.transpose(2, 0, 1))


def _reason(error: Exception) -> str:
    text = (str(error) or type(error).__name__).splitlines()[0]
    if text.startswith("cannot identify image file"):
        return f"no picture of a known kind, legal: {', '.join(FORMATS)}"
    return text[:120]


def _check_size(picture: Any) -> None:
    width, height = picture.size
    if not 1 <= min(width, height) <= max(width, height) <= MOST_SIDE or width * height > MOST_PIXELS:
        raise PictureError(
            f"{width} x {height} pixels, legal: sides of 1 to {MOST_SIDE:,} and {MOST_PIXELS:,} pixels in all"
        )


def _orientation(picture: Any) -> int:
    """Return 1 to 8, as EXIF has it; 1 where nothing sensible is said."""
    try:
        value = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # torn EXIF in a picture that is whole
        return 1
    return value if value in range(1, 9) else 1


def _crop(size: tuple[int, int], wanted: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return left, top, right, bottom of the largest middle part whose sides are as the wanted ones."""
    width, height = size
    ratio = wanted[0] / wanted[1]
    across, down = max(1.0, min(width, height * ratio)), max(1.0, min(height, width / ratio))
    left, top = (width - across) / 2, (height - down) / 2
    return left, top, left + across, top + down


def _plain(picture: Any, mode: str) -> Any:
    """Return the picture in grey or in red, green, blue, of 8 bits and without anything transparent."""
    from PIL import Image

    if picture.mode == "F":
        raise PictureError("pixels of floating point, legal: 8 or 16 bits")
    if picture.mode.startswith("I"):
        stored = np.asarray(picture)
        if stored.min() < 0 or stored.max() > np.iinfo(np.uint16).max:
            raise PictureError("pixels of 32 bits, legal: 8 or 16 bits")
        values = stored.astype(np.uint32)  # in place from here on: pictures are large, and threads have one each
        values += OF_16_BITS // 2
        values //= OF_16_BITS
        return Image.fromarray(values.astype(np.uint8)).convert(mode)
    if picture.has_transparency_data:
        page = Image.new("RGBA", picture.size, "white")
        page.alpha_composite(picture.convert("RGBA"))
        return page.convert(mode)
    return picture.convert(mode)


def _turn(values: Bytes, orientation: int) -> Bytes:
    """Return (height, width, channels) as it is to be seen, from how a camera that was held so stored it."""
    if orientation in ASIDE:
        values = values.transpose(1, 0, 2)
    # Each value of EXIF says at which side the first row and at which the first column of what is stored stand.
    if orientation in (3, 4, 7, 8):
        values = values[::-1]
    return values[:, ::-1] if orientation in (2, 3, 6, 7) else values
