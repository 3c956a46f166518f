"""What commands with verbs (`regiondag pool up`) share: how a verb is declared, found and run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from nnlib.spec.checks import Check

N = TypeVar("N", int, float)


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, verb: object, text: str
) -> argparse.ArgumentParser:
    """Declare a verb that the function `verb` runs; `text` says what it does. Return its parser."""
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    parser.set_defaults(verb=verb, refuse=parser.error)
    return parser


def add_run(parser: argparse.ArgumentParser, without: str = "") -> None:
    """Declare the run that a command is about, for `find_run`; `without` says what is done where none is named."""
    text = "a run directory; of a study (its folder or file) the newest"
    parser.add_argument(
        "run_directory",
        type=Path,
        metavar="RUN",
        nargs="?" if without else None,
        help=f"{text}; without it {without}" if without else text,
    )


def read_checked(text: str, check: Check[int]) -> int:
    """Return an option's text as a size or a duration, as argparse wants it read."""
    try:
        return check.of(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: {check.legal}") from None


def number(kind: type[N], low: float = -inf, high: float = inf) -> Callable[[str], N]:
    """Return what reads a number of that kind, within bounds, from an option's text."""
    legal = f"legal: a {'whole number' if kind is int else 'number'}"
    legal += f" from {low:g} to {high:g}" if isfinite(low) else ""

    def read(text: str) -> N:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not legal, {legal}")
        return value

    return read


def run_verb(arguments: argparse.Namespace) -> int:
    """Run the chosen verb."""
    return int(arguments.verb(arguments))


def warn(text: str) -> None:
    """Say on stderr what people need to know however quiet they want it."""
    print(text, file=sys.stderr, flush=True)
