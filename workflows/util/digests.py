"""SHA-256 of files that stand in many places: each is read once."""

from __future__ import annotations

from pathlib import Path

from nnlib.contract import sha256_of

_KNOWN: dict[tuple[int, ...], str] = {}


def digest_of_shared(path: Path) -> str:
    """Return a file's SHA-256; OSError where it cannot be read. One that regions share, by links, is read once."""
    facts = path.stat()
    file = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
    if file not in _KNOWN:
        _KNOWN[file] = sha256_of(path)
    return _KNOWN[file]
