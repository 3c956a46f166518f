"""What plain text on one line must not hold."""

from __future__ import annotations

import unicodedata

BIDIRECTIONAL_CONTROLS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def holds_control_character(value: str) -> bool:
    """Return whether a text could leave its line, steer a terminal, or show as something else than it is."""
    return any(
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in BIDIRECTIONAL_CONTROLS
        for character in value
    )
