"""Which HTCondor version first understood what. The renderer asks here before it writes a line.

An older HTCondor ignores commands it does not know with nothing but a warning, so writing them blindly would lose
what they are for.
"""

from __future__ import annotations

Version = tuple[int, int, int]

OLDEST: Version = (23, 9, 0)

FIRST_VERSION: dict[str, Version] = {
    "retry_request_memory": (25, 2, 0),  # ask for more memory after running out of it
    "common_input_catalogs": (25, 13, 2),  # files that the jobs of a DAG share reach each machine once
}


def supports(version: Version, feature: str) -> bool:
    """Return whether HTCondor `version` has `feature`; KeyError for a feature that is not in the table."""
    return version >= FIRST_VERSION[feature]


def show_version(version: Version) -> str:
    """Return a version as HTCondor writes it.

    >>> show_version((25, 14, 1))
    '25.14.1'
    """
    return ".".join(map(str, version))


def parse_version(text: str) -> Version:
    """Read `25.14.1` or `25.14`; ValueError for anything else.

    >>> parse_version("23.9")
    (23, 9, 0)
    """
    parts = text.split(".")
    if not 2 <= len(parts) <= 3 or not all(part.isdecimal() for part in parts):
        raise ValueError(f"{text!r} is not an HTCondor version such as 23.9.6")
    major, minor, *patch = map(int, parts)
    return major, minor, patch[0] if patch else 0
