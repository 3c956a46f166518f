"""The `regiondag` command: parse, dispatch, turn errors into exit codes.

Command modules import heavy libraries inside `run`, so that `--help` and typing errors answer at once.
Data goes to stdout, everything meant for people's eyes only goes to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from typing import Protocol, cast

from nnlib.util.os_errors import describe
from nnlib.util.process import describe_missing_package, guard_streams, run_flushed
from nnlib.util.terminal import add_loudness, bound_text, loud_as, timed
from regiondag import __version__
from regiondag.commands._completers import COMPLETERS
from regiondag.errors import RegiondagError
from regiondag.util.completion import answer_shell

COMMANDS = (
    "init",
    "run",
    "validate",
    "generate",
    "update",
    "champions",
    "clean",
    "doctor",
    "submit",
    "status",
    "report",
    "recommend",
    "notify",
    "explain",
    "serve",
    "stats",
    "study",
    "trial",
    "trainer",
    "verify",
    "repair",
    "replay",
    "pool",
    "bake",
    "fleet",
    "schema",
    "completion",
)

INTERRUPTED = 130
BUG = 3
MORE_MEMORY = "free some, raise `ulimit -v`, or give it a smaller file"

EPILOG = """exit codes: 0 done, 1 failed for a reason that is printed, or (verify, repair, replay) not as it was, or
(run) a region has no champion, or (trainer test) a study cannot work with the program, 2 wrong arguments or
study.yaml, 3 a bug (with its traceback), 5 no pool, 6 the run would not work on this pool, or this
machine lacks something, 7 a worker image cannot be built or failed its test, 8 AWS refused or cannot
be reached, 130 Ctrl-C"""


class Command(Protocol):
    """What a module of `regiondag.commands` offers."""

    HELP: str
    DESCRIPTION: str
    EPILOG: str  # examples

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; return the exit code."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="regiondag",
        description="Tune, train and test one model per region as an ordinary HTCondor DAG.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"regiondag {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = cast(Command, importlib.import_module(f"regiondag.commands.{name}"))
        subparser = subparsers.add_parser(
            name,
            help=command.HELP,
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run, refuse=subparser.error, subcommand=name)
    for leaf in list_leaves(parser):
        add_loudness(leaf)
    return parser


def list_leaves(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers of all commands and verbs that do something themselves."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        return [parser]
    return [leaf for action in below for child in action.choices.values() for leaf in list_leaves(child)]


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    guard_streams()
    try:
        return run_flushed(lambda: _run(argv))
    except RegiondagError as error:
        return _fail(error.exit_code, str(error))
    except KeyboardInterrupt:
        return _fail(INTERRUPTED, "interrupted")
    except OSError as error:  # a folder that may not be written, a full disk: nobody's bug
        return _fail(RegiondagError.exit_code, describe(error))
    except MemoryError as error:
        return _fail(RegiondagError.exit_code, f"out of memory{f': {error}' if str(error) else ''}; {MORE_MEMORY}")
    except Exception as error:
        if isinstance(error, ImportError) and (what := describe_missing_package(error)):
            return _fail(RegiondagError.exit_code, what)
        traceback.print_exc()
        return _fail(BUG, "this is a bug; please report it with the lines above")


def _run(argv: list[str] | None) -> int:
    parser = build_parser()
    answer_shell(list_leaves(parser), parser, COMPLETERS)
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        arguments.refuse(f"unrecognized arguments: {' '.join(unknown)}")  # with its usage, not the usage of all
    with loud_as(arguments), timed(f"in all: regiondag {arguments.subcommand}"):
        return int(arguments.run(arguments))


def _fail(code: int, text: str) -> int:
    print(f"regiondag: {bound_text(text)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
