"""Tokens: who may ask. Read from a file that others cannot read; compared in constant time; never printed."""

from __future__ import annotations

import hmac
import os
import re
import stat
from hashlib import sha256
from pathlib import Path

from regiondag.errors import UsageError

LEAST, MOST = 16, 512  # characters of a token
MOST_TOKENS = 100
_TOKEN = re.compile(r"[\x21-\x7e]+")
BEARER = b"bearer "


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """Return the digests of a file's tokens, one a line; empty lines and those that begin with `#` are left out.

    UsageError for a file that others may read, and for what is no token; the message never holds one.
    """
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise UsageError(f"{path}: no plain file; legal: a file with one token a line")
        # What root hands to a service, as systemd's LoadCredential, its group may read: the mode shows an access list.
        handed = 0o040 if facts.st_uid == 0 and os.geteuid() != 0 else 0
        if facts.st_mode & 0o077 & ~handed:
            mode = stat.S_IMODE(facts.st_mode)
            raise UsageError(f"{path}: others may use it (mode {mode:04o}), legal: 0600; next: chmod 600 {path}")
        raw = file.read(MOST_TOKENS * (MOST + 2) + 1)
    lines = [(number, line.strip()) for number, line in enumerate(raw.decode("ascii", "replace").splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    for number, line in lines:
        if not LEAST <= len(line) <= MOST or not _TOKEN.fullmatch(line):
            raise UsageError(
                f"{path}:{number}: no token: {len(line)} characters, legal: {LEAST} to {MOST} letters, digits and "
                "signs of ASCII without blanks; next: openssl rand -hex 32"
            )
    if not 1 <= len(lines) <= MOST_TOKENS:
        raise UsageError(f"{path}: {len(lines)} tokens, legal: 1 to {MOST_TOKENS}, one a line")
    return tuple(_digest(line.encode()) for _, line in lines)


def is_allowed(digests: tuple[bytes, ...], header: bytes) -> bool:
    """Say whether the value of an Authorization header is one of the tokens.

    All of them are compared, as digests: the time says nothing about a token, nor about how long it is.
    """
    if header[: len(BEARER)].lower() != BEARER:
        return False
    digest = _digest(header[len(BEARER) :].strip())
    found = False
    for one in digests:
        found |= hmac.compare_digest(one, digest)
    return found


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()
