"""Secrets, which settings name by where they are kept: env:NAME, or file:PATH of one line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

LONGEST_SECRET = 4096  # bytes


class NoSecretError(Exception):
    """It is not where it should be; the message never shows what is there."""


def read_secret(place: str, variables: Mapping[str, str] = os.environ) -> str:
    """Return what is kept in a variable or a file of one line; what is neither is returned as it is."""
    kind, _, name = place.partition(":")
    if kind == "env":
        value = variables.get(name, "")
        if not value:
            raise NoSecretError(f"the variable {name} is not set here")
    elif kind == "file":
        try:
            with Path(name).open("rb") as file:
                value = file.read(LONGEST_SECRET).decode("latin-1").strip()
        except OSError as error:
            raise NoSecretError(f"{name}: {error.strerror or error}") from error
    else:
        return place
    if not value.isprintable() or not value:
        raise NoSecretError(f"{name}: not one line of text")
    return value
