"""Fetch the files of a program from their URLs to this machine, where HTCondor's plugins do not."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable
from pathlib import Path

from nnlib.contract import sha256_of
from nnlib.util.packed import DAMAGES
from nnlib.worker.downloads import Download
from nnlib.worker.program_archive import MANIFEST, downloads_from_raw
from regiondag.errors import RegiondagError

KINDS = ("https", "http", "ftp", "file")
PATIENCE = 60  # seconds without a byte


def fetch_all(downloads: Iterable[Download], folder: Path) -> tuple[Path, ...]:
    """Fetch files into a folder, named as HTCondor does; RegiondagError where one is not to be had."""
    folder.mkdir(parents=True, exist_ok=True)
    return tuple(_fetch(one, folder / one.file) for one in downloads)


def downloads_of(archive: Path) -> tuple[Download, ...]:
    """Return what a program's archive says that its jobs get from URLs; none where it cannot be read."""
    try:
        with zipfile.ZipFile(archive) as packed:
            return downloads_from_raw(json.loads(packed.read(MANIFEST)))
    except (*DAMAGES, KeyError, OSError, TypeError):
        return ()  # the job says what is wrong with it


def _fetch(one: Download, path: Path) -> Path:
    kind = one.url.partition(":")[0]
    if kind not in KINDS:
        raise RegiondagError(
            f"{one.url}: only HTCondor's plugins fetch {kind}://, regiondag itself {', '.join(KINDS)}; to try the "
            f"program here, list a copy of {one.name} in trainer.files"
        )
    try:
        # Of KINDS alone, in which redirections lead to web servers only.
        with urllib.request.urlopen(one.url, timeout=PATIENCE) as read, path.open("wb") as write:  # noqa: S310
            shutil.copyfileobj(read, write, 1 << 20)
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise RegiondagError(f"{one.url}: it could not be fetched: {error}") from None
    seen = sha256_of(path)
    if seen != one.sha256:
        raise RegiondagError(
            f"{one.url}: its SHA-256 is {seen}, study.yaml says {one.sha256}; if the new file is right, say its own"
        )
    return path
