"""The `nnlib` command: parse, dispatch, turn errors into exit codes.

Heavy libraries are imported inside the commands, so that `--help` and typing errors answer at once.
"""

from __future__ import annotations

import argparse
import errno
import sys
from pathlib import Path

from nnlib import __version__
from nnlib.errors import MachineError, NnlibError

EPILOG = """exit codes: 0 done, 1 a bug of nnlib, 2 wrong arguments, 3 training diverged, 4 wrong input,
75 the machine's fault (such as a full disk), 130 Ctrl-C, 143 training stopped by SIGTERM or Ctrl-C"""
MACHINES_FAULT = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="nnlib",
        description="Train recommendation networks on DSSTNE's network and data files.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"nnlib {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    train = commands.add_parser("train", help="run one training job", allow_abbrev=False)
    train.add_argument("--trial", type=Path, required=True, metavar="FILE", help="trial.json; inputs lie beside it")
    train.set_defaults(run=_train)

    imported = commands.add_parser("import", help="make data files from purchases", allow_abbrev=False)
    imported.add_argument("table", type=Path, metavar="PURCHASES", help=".csv or .tsv with a header, also .gz")
    imported.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the data files")
    for name, default in (("region", "region"), ("customer", "customer"), ("item", "item"), ("time", "date")):
        imported.add_argument(f"--{name}-column", default=default, metavar="NAME", help=f"default: {default}")
    imported.add_argument("--regions", nargs="+", default=(), metavar="REGION", help="only these (default: all)")
    imported.add_argument(
        "--min-items", type=_min_items, default=10, metavar="N", help="drop customers with fewer items"
    )
    imported.add_argument("--items", type=Path, metavar="FILE", help="item,description with a header, for items.csv")
    imported.set_defaults(run=_import)

    inspect = commands.add_parser("inspect", help="say what a data or model file holds", allow_abbrev=False)
    inspect.add_argument("file", type=Path, metavar="FILE")
    inspect.set_defaults(run=_inspect)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except NnlibError as error:
        print(f"nnlib: {error}", file=sys.stderr)
        return int(error.exit_code)
    except OSError as error:
        print(f"nnlib: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        return int(MachineError.exit_code if error.errno in MACHINES_FAULT else NnlibError.exit_code)
    except KeyboardInterrupt:
        print("nnlib: interrupted", file=sys.stderr)
        return 130


def _min_items(text: str) -> int:
    """Return the number; two items are the fewest that make a history and a test."""
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: a whole number from 2; the usual one is 10")
    return int(text)


def _train(arguments: argparse.Namespace) -> int:
    from nnlib import worker

    try:
        return worker.train(arguments.trial)
    except OSError as error:  # not even result.json could be written
        raise MachineError(f"{error.filename or 'a file'}: {error.strerror or error}") from error


def _import(arguments: argparse.Namespace) -> int:
    from nnlib import importer
    from nnlib.purchases import Columns

    names = ("region_column", "customer_column", "item_column", "time_column")
    columns = Columns(*(getattr(arguments, name) for name in names))
    return importer.import_purchases(
        arguments.table, arguments.out, columns, arguments.regions, arguments.min_items, arguments.items
    )


def _inspect(arguments: argparse.Namespace) -> int:
    from nnlib import inspector

    print(inspector.described(arguments.file))
    return 0


if __name__ == "__main__":
    sys.exit(main())
