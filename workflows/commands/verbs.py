"""What commands with verbs (`regiondag pool up`) share: how a verb is declared, found and run."""

from __future__ import annotations

import argparse
import sys


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, verb: object, text: str
) -> argparse.ArgumentParser:
    """Declare a verb that the function `verb` runs; `text` says what it does. Return its parser."""
    parser = verbs.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
    parser.set_defaults(verb=verb)
    return parser


def run_verb(arguments: argparse.Namespace) -> int:
    """Run the chosen verb."""
    return int(arguments.verb(arguments))


def tell(text: str) -> None:
    """Say something to people, at once and on stderr: stdout is for data."""
    print(text, file=sys.stderr, flush=True)
