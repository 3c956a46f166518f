"""The `nnlib` command: parse, dispatch, turn errors into exit codes.

Heavy libraries are imported inside the commands, so that `--help` and typing errors answer at once.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import keyword
import sys
import traceback
from typing import Protocol, cast

from nnlib import __version__
from nnlib.contract import Exit
from nnlib.errors import MachineError, NnlibError
from nnlib.spec.json_section import SpecError
from nnlib.util.os_errors import describe
from nnlib.util.process import describe_missing_package, guard_streams, run_flushed
from nnlib.util.terminal import add_loudness, bound_text, loud_as, timed

GROUPS = {
    "train networks": ("train", "check-gradients"),
    "use models": ("predict", "recommend", "evaluate", "embed"),
    "data and model files": ("import", "merge", "inspect", "diff", "import-onnx", "export-onnx"),
    "this machine": ("doctor-gpu", "bench-io"),
}
EPILOG = """`nnlib COMMAND --help` has all of a command's options, with examples.

exit codes: 0 done, 1 a bug of nnlib (diff: the files differ, doctor-gpu: kernels do), 2 wrong arguments,
3 training diverged, 4 wrong input, 75 the machine's fault (such as a full disk), 85 a job is to be started again,
130 Ctrl-C, 143 training stopped by SIGTERM or Ctrl-C and saved"""
MACHINES_FAULT = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
INTERRUPTED = 130


class Command(Protocol):
    """What a module of `nnlib.commands` offers."""

    HELP: str
    DESCRIPTION: str
    EPILOG: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; return the exit code."""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    found = {name: _command(name) for names in GROUPS.values() for name in names}
    parser = argparse.ArgumentParser(
        prog="nnlib",
        description=f"Train networks on DSSTNE's network and data files, and use them.\n{_list_commands(found)}",
        epilog=EPILOG,
        usage="nnlib COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"nnlib {__version__}")
    commands = parser.add_subparsers(prog="nnlib", metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    for name, command in found.items():
        subparser = commands.add_parser(
            name,
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(subparser)
        add_loudness(subparser)
        subparser.set_defaults(run=command.run, refuse=subparser.error, subcommand=name)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    guard_streams()
    try:
        return run_flushed(lambda: _run(argv))
    except (NnlibError, SpecError) as error:
        return _fail(getattr(error, "exit_code", NnlibError.exit_code), str(error))
    except OSError as error:
        code = MachineError.exit_code if error.errno in MACHINES_FAULT else NnlibError.exit_code
        return _fail(code, describe(error))
    except MemoryError as error:
        return _fail(MachineError.exit_code, f"out of memory: {error}")
    except ImportError as error:
        return _fail(MachineError.exit_code, describe_missing_package(error) or f"{error}; install it on this machine")
    except KeyboardInterrupt:
        return _fail(INTERRUPTED, "interrupted")
    except Exception:
        traceback.print_exc()
        return _fail(Exit.BUG, "this is a bug of nnlib; please report it with the lines above")


def _run(argv: list[str] | None) -> int:
    arguments, unknown = build_parser().parse_known_args(argv)
    if unknown:
        arguments.refuse(f"unrecognized arguments: {' '.join(unknown)}")  # with its usage, not the usage of all
    with loud_as(arguments), timed(f"in all: nnlib {arguments.subcommand}"):
        return int(arguments.run(arguments))


def _fail(code: int, text: str) -> int:
    print(f"nnlib: {bound_text(text)}", file=sys.stderr)
    return int(code)


def _command(name: str) -> Command:
    module = f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")
    return cast(Command, importlib.import_module(f"nnlib.commands.{module}"))


def _list_commands(found: dict[str, Command]) -> str:
    """Return the commands in their groups, a line each."""
    lines = []
    for title, names in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<17}{found[name].HELP}" for name in names]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
