"""A tree that somebody else has packed, as tar or zip, links and all: listed, and unpacked below one folder alone.

Standard library only. Files are written first, while no link is there that one could be written through; links come
last, and those that lead out of the folder are not left there.
"""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path, PurePosixPath
from typing import IO

from nnlib.util.packed import BLOCK, DAMAGES, PackedError

LONGEST_LINK = 4096  # bytes of a link's target
_DAMAGES = (*DAMAGES, tarfile.TarError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
ZSTANDARD = b"\x28\xb5\x2f\xfd"  # how such a file begins


class Kind(Enum):
    """What one name of an archive is."""

    FILE = auto()
    FOLDER = auto()
    LINK = auto()  # symbolic
    SAME = auto()  # a second name of a file before it


@dataclass(frozen=True, slots=True)
class Entry:
    """One name of an archive."""

    name: str  # below the folder, without `.` and `..`
    kind: Kind
    size: int  # bytes of a file
    runs: bool  # whether it can be executed
    target: str  # of a link, as it stands there; of a second name the first one
    open: Callable[[], IO[bytes]]  # only while the archive is read as far as this


def list_entries(archive: Path) -> Iterator[Entry]:
    """Yield what is in an archive, in its order; PackedError for what is damaged, or leads out, or is no file."""
    with _explaining(archive):
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                yield from (_of_zip(archive, packed, info) for info in packed.infolist() if _names_one(info.filename))
            return
        with tarfile.open(archive) as tape:
            yield from (_of_tar(archive, tape, one) for one in tape if _names_one(one.name))


def unpack_tree(archive: Path, folder: Path, look: Callable[[], None] = lambda: None) -> dict[str, str]:
    """Unpack an archive into a folder, which is made; return the links that lead out, by name, which are not made.

    `look` is called before each file, and may raise. PackedError as of `list_entries`, OSError where the disk is full.
    """
    root = Path(os.path.realpath(folder))
    root.mkdir(parents=True, exist_ok=True)
    links: dict[str, str] = {}
    with _explaining(archive):
        for entry in list_entries(archive):
            look()
            path = root / entry.name
            with _naming(archive, entry.name):
                if entry.kind is Kind.LINK:
                    links[entry.name] = entry.target
                elif entry.kind is Kind.FOLDER:
                    path.mkdir(parents=True, exist_ok=True)
                else:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _write(entry, path, root)
        return _make_links(archive, root, links)


def _write(entry: Entry, path: Path, root: Path) -> None:
    path.unlink(missing_ok=True)  # of an archive that was added to the last one counts
    if entry.kind is Kind.SAME:
        if not (root / entry.target).is_file():
            raise PackedError(
                f"{entry.name!r:.80} is a second name of {entry.target!r:.80}, which does not come before it"
            )
        os.link(root / entry.target, path)
        return
    with entry.open() as read, path.open("xb") as write:
        shutil.copyfileobj(read, write, BLOCK)
    path.chmod(0o755 if entry.runs else 0o644)


def _make_links(archive: Path, root: Path, links: dict[str, str]) -> dict[str, str]:
    for name, target in links.items():
        path = root / name
        if not _is_inside(path.parent, root):
            raise PackedError(f"{archive.name}: {name!r:.80} is below a link that leads out")
        with _naming(archive, name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
    outside = {name: target for name, target in links.items() if not _is_inside(root / name, root)}
    for name in outside:
        (root / name).unlink()
    return outside


def _is_inside(path: Path, root: Path) -> bool:
    """Return whether a path, followed through all links, is in a folder."""
    return Path(os.path.realpath(path)).is_relative_to(root)


def _names_one(name: str) -> bool:
    return bool(PurePosixPath(name).parts)  # not `./`, the folder itself


def _of_tar(archive: Path, tape: tarfile.TarFile, info: tarfile.TarInfo) -> Entry:
    name, kind = _check_name(archive, info.name), Kind.FILE
    if info.isdir():
        kind = Kind.FOLDER
    elif info.issym():
        kind = Kind.LINK
    elif info.islnk():
        kind = Kind.SAME
    elif not info.isfile():
        raise PackedError(f"{archive.name}: {name!r:.80} is a device or a pipe")
    target = _check_name(archive, info.linkname) if kind is Kind.SAME else info.linkname

    def read() -> IO[bytes]:
        file = tape.extractfile(info)
        assert file is not None, "it is a file"
        return file

    return Entry(name, kind, info.size, bool(info.mode & stat.S_IXUSR), target, read)


def _of_zip(archive: Path, packed: zipfile.ZipFile, info: zipfile.ZipInfo) -> Entry:
    name, mode = _check_name(archive, info.filename), info.external_attr >> 16
    kinds = {0: Kind.FILE, stat.S_IFREG: Kind.FILE, stat.S_IFLNK: Kind.LINK, stat.S_IFDIR: Kind.FOLDER}
    kind = Kind.FOLDER if info.is_dir() else kinds.get(stat.S_IFMT(mode))
    if kind is None:
        raise PackedError(f"{archive.name}: {name!r:.80} is a device or a pipe")
    target = ""
    if kind is Kind.LINK:
        if info.file_size > LONGEST_LINK:
            raise PackedError(f"{archive.name}: {name!r:.80} is a link to a name of {info.file_size:,} bytes")
        target = os.fsdecode(packed.read(info))
    return Entry(name, kind, info.file_size, bool(mode & stat.S_IXUSR), target, lambda: packed.open(info))


def _check_name(archive: Path, name: str) -> str:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise PackedError(f"{archive.name}: {name!r:.80} leads out of the folder")
    return str(path)


@contextmanager
def _naming(archive: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise PackedError(f"{archive.name}: {name!r:.80} is there twice, as different things") from None


@contextmanager
def _explaining(archive: Path) -> Iterator[None]:
    try:
        yield
    except PackedError:
        raise
    except _DAMAGES as error:
        if _begins_with(archive, ZSTANDARD):
            raise PackedError(
                f"{archive.name}: packed by zstd, which this Python cannot read; pack it as .tar.gz"
            ) from None
        raise PackedError(f"{archive.name}: {error or 'damaged'}") from error
    except OSError as error:
        if error.errno:  # a full disk and the like; a stream that is damaged has none
            raise
        raise PackedError(f"{archive.name}: {error}") from error


def _begins_with(archive: Path, start: bytes) -> bool:
    with archive.open("rb") as file:
        return file.read(len(start)) == start
