"""Plain text on one line: what it must not hold, and durations in it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

BIDIRECTIONAL_CONTROLS = frozenset("\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def holds_control_character(value: str) -> bool:
    """Return whether a text could leave its line, steer a terminal, or show as something else than it is."""
    return any(
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in BIDIRECTIONAL_CONTROLS
        for character in value
    )


def make_printable(text: str, instead: str = "?") -> str:
    """Return a text that others wrote with what does not show, or steers a terminal, replaced.

    >>> make_printable("a" + chr(27) + "[2Jb")
    'a?[2Jb'
    """
    return "".join(character if character.isprintable() else instead for character in text)


def show_duration(seconds: float) -> str:
    """Return a duration for people.

    >>> show_duration(45), show_duration(600), show_duration(9000)
    ('45 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def show_value(value: bool | float | str) -> str:
    """Return a hyperparameter's value for people, a number that is not whole in three digits.

    >>> show_value(15.7321), show_value(12345.0), show_value(0.00012345), show_value(1234), show_value(True)
    ('15.7', '12300', '0.000123', '1234', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{float(f'{value:.3g}'):g}" if isinstance(value, float) else str(value)


def shorten(text: str, longest: int) -> str:
    """Cut long text, and replace the two characters that XML cannot hold although they steer nothing.

    >>> shorten("Germany", 5)
    'Germ…'
    """
    text = text.replace("\ufffe", "?").replace("\uffff", "?")
    return text if len(text) <= longest else text[: longest - 1] + "…"


def bound(text: object, longest: int = 60) -> str:
    """Return what a machine that is not ours said, as a short text that can be printed.

    >>> bound("a" + chr(27) + "[2J" + "b" * 99, 8)
    'a?[2Jbb…'
    """
    return shorten(make_printable(str(text)[: longest + 1]), longest)


def list_some(names: Sequence[str], shown: int = 4) -> str:
    """Return the first few names, and how many more there are.

    >>> list_some(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    text = ", ".join(names[:shown])
    return text if len(names) <= shown else f"{text} and {len(names) - shown} more"


def spell_out(text: str) -> str:
    """Return `text` with what could steer a terminal, or is illegal in XML, spelled out.

    >>> spell_out("a" + chr(27) + "[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(ascii(letter)[1:-1] if holds_control_character(letter) else letter for letter in text)


def escape_markdown(text: str) -> str:
    """Keep free text from breaking out of its cell, or from becoming HTML, a link or a picture.

    >>> escape_markdown("a|b <c>")
    'a\\\\|b &lt;c>'
    """
    for plain, safe in (
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("<", "&lt;"),
        ("\n", " "),
        ("`", "\\`"),
        ("[", "\\["),
        ("]", "\\]"),
    ):
        text = text.replace(plain, safe)
    return text
