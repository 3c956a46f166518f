"""Data files of regions come into a folder together or not at all; which regions, and by what names."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nnlib.contract import slug_of
from nnlib.data.file import Begun
from nnlib.errors import DataError
from nnlib.spec.json_section import nearest
from nnlib.util.columns import print_folded
from nnlib.util.files import sync
from nnlib.util.terminal import is_quiet

SHOWN = 10  # names of files in a message


def check_out_folder(out: Path) -> None:
    """Raise DataError where something that is no folder has the name of the one to write into."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: not a folder, legal for --out: a folder, or a name that is still free")


def choose_regions(regions: Sequence[str], known: Sequence[str], table: Path) -> Sequence[str]:
    """Return the regions that were asked for, once each, or all that are known."""
    unknown = sorted(set(regions) - set(known))
    if unknown:
        raise DataError(
            f"{table.name}: no region {unknown[0]!r}, there are: {', '.join(known)}{nearest(unknown[0], known)}"
        )
    wanted = tuple(dict.fromkeys(regions)) or known
    check_slugs(wanted)
    return wanted


def check_slugs(regions: Sequence[str]) -> None:
    """Raise DataError when two regions would share their files."""
    taken: dict[str, str] = {}
    for region in regions:
        other = taken.setdefault(slug_of(region), region)
        if other != region:
            raise DataError(f"regions {other!r} and {region!r} are both {slug_of(region)!r} as a file name; rename one")


@dataclass(slots=True)
class Writing:
    """A folder to write into, and what becomes of files that are there already."""

    folder: Path
    begun: Begun | None = None  # what all data files begin with
    stale: list[str] = field(default_factory=list)  # not written this time, and wrong beside what is
    replaced: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@contextmanager
def scratch_beside(out: Path) -> Iterator[Path]:
    """Give a folder beside `out` while the block runs; one that a killed import left is removed."""
    folder = out.resolve().with_name(f".{out.resolve().name}.tables")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        error.filename = str(out)
        raise
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def all_or_nothing(out: Path) -> Iterator[Writing]:
    """Give a folder to write into, whose files come into `out` together at the end.

    A folder that is not there yet appears at once with all of its files; in one that is, each file is replaced
    whole, after all of them were written. Each has been flushed to the disk by whoever wrote it. Unlike `appearing` the
    part has the same name each time, so that the gigabytes that a killed import left are removed.
    """
    target = out.resolve()
    new = not target.exists()
    part = target.with_name(f".{target.name}.part") if new else target / ".import.part"
    shutil.rmtree(part, ignore_errors=True)  # of an import that was killed
    try:
        part.mkdir(parents=True)
    except OSError as error:
        error.filename = str(out)
        raise
    writing = Writing(part)
    try:
        yield writing
        if new:
            part.replace(target)
            sync(target.parent)
            return
        for file in sorted(part.iterdir()):
            if (target / file.name).exists():
                writing.replaced.append(file.name)
            file.replace(target / file.name)
        for name in writing.stale:
            if (target / name).exists():
                (target / name).unlink()
                writing.removed.append(name)
        sync(target)
    except OSError as error:
        if error.filename:
            error.filename = str(out / Path(error.filename).name)
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def tell_replaced(writing: Writing, out: Path) -> None:
    """Say which files of an earlier import are no more."""
    for what, names in (("replaced", writing.replaced), ("removed", writing.removed)):
        if names and not is_quiet():
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            print_folded(f"{what} in {out}: {', '.join(names[:SHOWN])}{more}", sys.stderr)
