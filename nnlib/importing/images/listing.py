"""Which pictures there are, of which region and class: as folders say it, or a table.

Folders are REGION/CLASS/PICTURE, or CLASS/PICTURE where all are of one region; a table is a CSV with the columns
region, class, path and perhaps split. What lies outside the folder, as links may lead there, is refused.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from nnlib.errors import DataError
from nnlib.spec.json_section import is_plain

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
TABLE = (".csv",)
REGION, CLASS, PATH, SPLIT = "region", "class", "path", "split"
HELD_OUT = ("train", "valid", "test")
IN_ONE_REGION = "with --one-region legal: CLASS/PICTURE; without it: REGION/CLASS/PICTURE"


@dataclass(frozen=True, slots=True)
class Picture:
    """A file by its name within the folder, its region and class, and the part that a table gives it."""

    name: str
    region: str
    label: str
    part: str = ""


@dataclass(slots=True)
class Listing:
    """All pictures below a folder, and what else lay there, which is passed over."""

    folder: Path
    pictures: list[Picture] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def add(self, picture: Picture) -> None:
        """Add a picture; DataError when its region or class cannot be written."""
        for what, text in (("region", picture.region), ("class", picture.label), ("name", picture.name)):
            if not text or not is_plain(text):
                raise DataError(
                    f"{str(self.folder / picture.name)!r}: {what} {text!r} is not legal, legal: text without control "
                    "characters, in UTF-8; rename it"
                )
        self.pictures.append(picture)


def looks_like_pictures(source: Path) -> bool:
    """Return whether a folder holds folders of pictures, by the first folder in it and the first in that."""
    if not source.is_dir():
        return False
    inner = next(_folders(source), None)
    while inner is not None:
        if any(_is_picture(entry.name) and entry.is_file() for entry in _entries(inner)):
            return True
        inner = next(_folders(inner), None) if inner.parent == source else None
    return False


def list_pictures(source: Path, one_region: str = "") -> Listing:
    """Return the pictures of a folder or a table, in the order of their names; DataError where they are none."""
    if source.is_dir():
        listing = _list_folder(source, one_region)
    elif source.suffix.lower() in TABLE:
        listing = _list_table(source, one_region)
    else:
        raise DataError(f"{source}: is no folder and no table, legal: a folder of pictures, or a .csv that names them")
    if not listing.pictures:
        layout = "CLASS/PICTURE" if one_region else "REGION/CLASS/PICTURE"
        raise DataError(f"{source}: no pictures, legal: {layout}, with names that end in {', '.join(SUFFIXES)}")
    return listing


def _list_folder(source: Path, one_region: str) -> Listing:
    listing, root = Listing(source), source.resolve()
    for first in _folders(source):
        if one_region:
            _add_class(listing, first, one_region, root, IN_ONE_REGION)
            continue
        for entry in _entries(first):
            path = Path(entry.path)
            if entry.is_dir():
                _check_inside(path, root)
                _add_class(listing, path, first.name, root, "legal: pictures; move them up, or the folder away")
            elif _is_picture(entry.name):
                raise DataError(
                    f"{path}: a picture in a region, legal: REGION/CLASS/PICTURE; if {first.name!r} is a class: "
                    "--one-region NAME"
                )
            else:
                listing.others.append(str(path.relative_to(source)))
    listing.others += [entry.name for entry in _entries(source) if not entry.is_dir()]
    return listing


def _add_class(listing: Listing, folder: Path, region: str, root: Path, legal: str) -> None:
    """Add the pictures of a class; DataError with what is `legal` where it has folders."""
    for entry in _entries(folder):
        path = Path(entry.path)
        name = str(path.relative_to(listing.folder))
        if entry.is_dir():
            raise DataError(f"{path}: a folder in a class, {legal}")
        if not _is_picture(entry.name) or not entry.is_file():
            listing.others.append(name)
            continue
        if entry.is_symlink():
            _check_inside(path, root)
        listing.add(Picture(name, region, folder.name))


def _list_table(table: Path, one_region: str) -> Listing:
    listing, root = Listing(table.parent), table.parent.resolve()
    needed = (CLASS, PATH) if one_region else (REGION, CLASS, PATH)
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file, strict=True)
            columns = rows.fieldnames or []
            missing = [name for name in needed if name not in columns]
            if missing:
                raise DataError(f"{table}:1: no column {missing[0]!r}, there are: {', '.join(columns) or 'none'}")
            for row in rows:
                listing.add(_read_row(row, f"{table}:{rows.line_num}", one_region, SPLIT in columns, listing, root))
    except UnicodeDecodeError as error:
        raise DataError(f"{table}: cannot be read: {error}; legal: UTF-8 text") from error
    except csv.Error as error:
        raise DataError(f"{table}:{rows.line_num}: {error}; legal: CSV with a comma between fields") from error
    listing.pictures.sort(key=lambda picture: picture.name)
    for one, other in zip(listing.pictures, listing.pictures[1:], strict=False):
        if one.name == other.name and one.region == other.region:
            raise DataError(f"{table}: {one.name} comes twice in region {one.region!r}, legal: once; remove one line")
    return listing


def _read_row(row: dict[str, str], place: str, one_region: str, split: bool, listing: Listing, root: Path) -> Picture:
    region, label, name = one_region or row[REGION], row[CLASS], row[PATH]
    for column, value in ((REGION, region), (CLASS, label), (PATH, name)):
        if not value:
            raise DataError(f"{place}: {column} is empty; name it, or remove the line")
    part = row[SPLIT] if split else ""
    if split and part not in HELD_OUT:
        raise DataError(f"{place}: {SPLIT}: {part!r} is not legal, legal: {', '.join(HELD_OUT)}")
    if "\0" in name or PurePath(name).is_absolute():
        raise DataError(f"{place}: {PATH}: {name!r} is not legal, legal: a path from the folder of the table")
    path = listing.folder / name
    _check_inside(path, root, place)
    if not path.is_file():
        raise DataError(f"{place}: there is no file {path}; correct the path, from the folder of the table")
    return Picture(name, region, label, part)


def _check_inside(path: Path, root: Path, place: str = "") -> None:
    """Raise DataError where a path or a link leads out of the folder that was named."""
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:  # the latter before Python 3.13
        raise DataError(f"{place or path}: {path} is a link to itself; legal: a file, or a link to one") from error
    if not target.is_relative_to(root):
        raise DataError(f"{place or path}: leads to {target}, outside of {root}; legal: files within it; copy it there")


def _entries(folder: Path) -> Sequence[os.DirEntry[str]]:
    """Return what is in a folder by name, without what is hidden."""
    with os.scandir(folder) as found:
        return sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _folders(folder: Path) -> Iterator[Path]:
    for entry in _entries(folder):
        if entry.is_dir():
            _check_inside(Path(entry.path), folder.resolve())
            yield Path(entry.path)


def _is_picture(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)
