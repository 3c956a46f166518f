"""A folder as one file: a zip whose bytes depend on names and contents alone. Standard library only."""

from __future__ import annotations

import errno
import shutil
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date a zip can hold
BLOCK = 1 << 20


DAMAGES = (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError, ValueError, OverflowError, struct.error)


class PackedError(ValueError):
    """An archive that is damaged, or not one of ours."""


def list_files(folder: Path) -> dict[str, Path]:
    """Return the regular files of a folder and of those below, by their names in it; links are passed over."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path for path in found}


def pack(files: Mapping[str, Path | bytes], archive: Path, comment: str = "", *, compressed: bool = False) -> None:
    """Write files, or texts, into an archive under the names given; whether they can be run is kept.

    `compressed`: the same contents give the same bytes wherever zlib is of the same version.
    """
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(archive, "w", kind) as packed:
        packed.comment = comment.encode()
        for name in sorted(files):
            source, info = files[name], zipfile.ZipInfo(name, EPOCH)
            info.compress_type = kind
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            if isinstance(source, bytes):
                packed.writestr(info, source)
                continue
            if source.stat().st_mode & stat.S_IXUSR:
                info.external_attr = (stat.S_IFREG | 0o755) << 16
            with source.open("rb") as read, packed.open(info, "w", force_zip64=True) as write:
                shutil.copyfileobj(read, write, BLOCK)


def read_comment(archive: Path) -> str:
    """Return what an archive says of itself; PackedError where it is none."""
    try:
        with zipfile.ZipFile(archive) as packed:
            return packed.comment.decode()
    except DAMAGES as error:
        raise PackedError(f"{archive.name}: {error}") from error


def unpack(archive: Path, folder: Path) -> None:
    """Write all files of an archive below a folder, which is made.

    PackedError where the archive is damaged, or has a name that leads out of the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(archive) as packed:
            for info in packed.infolist():
                path = folder / _check_name(archive, info)
                path.parent.mkdir(parents=True, exist_ok=True)
                with packed.open(info) as read, path.open("wb") as write:
                    shutil.copyfileobj(read, write, BLOCK)
                path.chmod(0o755 if info.external_attr >> 16 & stat.S_IXUSR else 0o644)
    except PackedError:
        raise
    except DAMAGES as error:
        raise PackedError(f"{archive.name}: {error}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # of a place before the archive's beginning; else a full disk and the like
            raise
        raise PackedError(f"{archive.name}: damaged") from error


def differing_files(one: Path, other: Path) -> list[str]:
    """Return the names of files that are not the same in two archives, or in one of them alone."""
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        known = [{info.filename: (info.file_size, info.CRC) for info in each.infolist()} for each in (first, second)]
    return sorted(name for name in known[0].keys() | known[1].keys() if known[0].get(name) != known[1].get(name))


def _check_name(archive: Path, info: zipfile.ZipInfo) -> str:
    path, kind = PurePosixPath(info.filename), stat.S_IFMT(info.external_attr >> 16)
    legal = path.parts and not path.is_absolute() and ".." not in path.parts and "\0" not in info.filename
    if not legal or info.is_dir() or kind not in (0, stat.S_IFREG):
        raise PackedError(f"{archive.name}: {info.filename!r:.80} is no file below it")
    return info.filename
