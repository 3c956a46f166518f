"""Decoded pictures of a region become its data files: a dense data set of bytes, and a class for each.

Pictures are decoded some at a time and wait in a file for each part, as how many there are is known at the end alone:
a broken one may be passed over. So memory holds one block, whatever the number of pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nnlib.data.file import names_of_set, set_attributes, variables_of_set
from nnlib.data.file_history import attributes_of
from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import Data, DataSet
from nnlib.importing.blocks import Bytes
from nnlib.importing.images.listing import Picture
from nnlib.importing.images.parts import FINAL, TRAIN, VALID
from nnlib.importing.images.pictures import PictureError, PictureForm, decode
from nnlib.util import netcdf
from nnlib.util.threads import Each

INPUT, OUTPUT = "input", "output"
BLOCK, ROOM = 256, 1 << 26  # pictures that are decoded together at most, and their bytes if they are several
COPIED = 1 << 24  # bytes that are copied together
DIGEST = 16  # bytes of what tells a picture from others

Broken = Callable[[str, str], None]  # takes the name of a picture and what is wrong with it


@dataclass(slots=True)
class Decoded:
    """The pictures of one part, one after the other in a file of bytes; their names and numbers of classes."""

    path: Path
    names: list[str] = field(default_factory=list)
    classes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class RegionPictures:
    """The parts of a region that have pictures, and how many of those held out are also learned from."""

    parts: dict[str, Decoded]
    copies: int = 0


def decode_region(
    pictures: Sequence[Picture],
    folder: Path,
    scratch: Path,
    classes: Sequence[str],
    form: PictureForm,
    each: Each,
    broken: Broken,
    advance: Callable[[int], None],
) -> RegionPictures:
    """Decode the pictures of a region, which lie in `folder`, into files in `scratch`, in their order.

    `broken` is told each picture that cannot be decoded, and may raise to end it all; else it is passed over.
    """
    number, block = {label: n for n, label in enumerate(classes)}, block_of(form)
    parts = {part: Decoded(scratch / part) for part in dict.fromkeys(picture.part for picture in pictures)}
    seen: dict[bytes, set[str]] = {}

    def attempt(place: int) -> Bytes | PictureError:
        try:
            return decode(folder / pictures[place].name, form)
        except PictureError as error:
            return error

    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {part: stack.enter_context(one.path.open("wb")) for part, one in parts.items()}
        for low in range(0, len(pictures), block):
            places = range(low, min(low + block, len(pictures)))
            for picture, found in zip(pictures[low : low + block], each(attempt, places), strict=True):
                if isinstance(found, PictureError):
                    broken(picture.name, str(found))
                    continue
                files[picture.part].write(found.tobytes())
                parts[picture.part].names.append(picture.name)
                parts[picture.part].classes.append(number[picture.label])
                seen.setdefault(blake2b(found.data, digest_size=DIGEST).digest(), set()).add(picture.part)
            advance(len(places))
    copies = sum(len(where) > 1 for where in seen.values())
    return RegionPictures({part: one for part, one in parts.items() if one.names}, copies)


def block_of(form: PictureForm) -> int:
    """Return how many pictures are decoded together."""
    return max(1, min(BLOCK, ROOM // form.units))


def write_part(path: Path, sources: Iterable[Decoded], region: str, classes: Sequence[str], form: PictureForm) -> None:
    """Write the pictures of some parts, one part after the other, as one data file."""
    found = list(sources)
    names, labels = [name for one in found for name in one.names], [n for one in found for n in one.classes]
    shape = form.width, form.height, form.channels
    sets = (
        DataSet(INPUT, Dense(np.empty((0, form.units), np.uint8)), dimensions=shape),
        DataSet(OUTPUT, Csr(np.arange(len(names) + 1), np.array(labels, np.int32), len(classes)), tuple(classes)),
    )
    attributes: dict[str, netcdf.Attribute] = {"datasets": np.uint32(len(sets))}
    for n, data_set in enumerate(sets):
        attributes |= set_attributes(n, data_set)
    columns = variables_of_set(1, sets[1]) | names_of_set(1, sets[1])
    columns["samples"] = netcdf.Variable("samplesDim", tuple(names))
    plans = {"data0": netcdf.VariableShape({"dataDim0": len(names) * form.units}, np.dtype(np.uint8))}
    for name, column in columns.items():
        kind = None if isinstance(column.values, tuple) else column.values.dtype
        plans[name] = netcdf.VariableShape({column.dimension: len(column.values)}, kind)
    with netcdf.fill(path, attributes | attributes_of(Data(sets, (), region)), plans) as put:
        for name, column in columns.items():
            put(name, 0, column.values)
        place = 0
        for one in found:
            with one.path.open("rb") as file:
                while more := file.read(COPIED):
                    put("data0", place, np.frombuffer(more, np.uint8))
                    place += len(more)


def files_of(pictures: RegionPictures) -> dict[str, list[Decoded]]:
    """Return what each data file holds, by its part; `final` is what is learned from and what decides."""
    files = {part: [one] for part, one in pictures.parts.items()}
    learned = [pictures.parts[part] for part in (TRAIN, VALID) if part in pictures.parts]
    return files | ({FINAL: learned} if learned else {})
