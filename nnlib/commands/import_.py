"""`nnlib import`: data files from a table of purchases, or from text files in DSSTNE's form."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "make data files from purchases or DSSTNE's text files"
DESCRIPTION = """Make data files.

From a table of purchases: the parts train, valid, final and test of each region, in the folder --out.
With --format dsstne, from a text file or a folder of them, `sample<TAB>feature[,value]:feature[,value]:...` a line:
one data set in the file --out, and index files that give the same samples and features the same numbers next time."""
EPILOG = """examples:
  nnlib import purchases.csv.gz --out data
  nnlib import likes.txt --format dsstne --dataset gl_input --out gl_input.nc \\
      --features features.txt --samples samples.txt --new-features create
  nnlib import likes.txt --format dsstne --dataset gl_output --out gl_output.nc \\
      --features features.txt --samples samples.txt"""
PURCHASES, DSSTNE = "purchases", "dsstne"
COLUMNS = (("region", "region"), ("customer", "customer"), ("item", "item"), ("time", "date"))
USUAL = {"regions": (), "min_items": 10, "new_features": "drop", "type": "indicator"} | {
    f"{name}_column": column for name, column in COLUMNS
}
OF_PURCHASES = (*(f"{name}_column" for name, _ in COLUMNS), "regions", "min_items", "items")
OF_DSSTNE = ("dataset", "features", "samples", "new_features", "type", "pad_width")
NEEDED = ("dataset", "features", "samples")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("table", type=Path, metavar="INPUT", help=".csv or .tsv with a header, or text; also .gz")
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="folder or file for the data")
    parser.add_argument("--format", choices=(PURCHASES, DSSTNE), default=PURCHASES, help=f"default: {PURCHASES}")
    purchases = parser.add_argument_group("purchases")
    for name, default in COLUMNS:
        purchases.add_argument(f"--{name}-column", metavar="NAME", help=f"default: {default}")
    purchases.add_argument("--regions", nargs="+", metavar="REGION", help="only these (default: all)")
    purchases.add_argument("--min-items", type=_min_items, metavar="N", help="drop customers with fewer (default: 10)")
    purchases.add_argument("--items", type=Path, metavar="FILE", help="item,description with a header, for items.csv")
    text = parser.add_argument_group("--format dsstne")
    text.add_argument("--dataset", metavar="NAME", help="name of the data set")
    text.add_argument("--features", type=Path, metavar="FILE", help="index of the features: label<TAB>number a line")
    text.add_argument("--samples", type=Path, metavar="FILE", help="index of the samples; made if it is not there")
    text.add_argument(
        "--new-features",
        choices=("create", "merge", "drop"),
        help="create: start a new index; merge: add them to it; drop: leave them out (default)",
    )
    text.add_argument("--type", choices=("indicator", "analog"), help="analog keeps the values (default: indicator)")
    text.add_argument("--pad-width", action="store_true", default=None, help="round the width up to 128s, as DSSTNE")
    parser.set_defaults(parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Make the files; return the exit code."""
    text = arguments.format == DSSTNE
    _check(arguments, OF_PURCHASES if text else OF_DSSTNE, NEEDED if text else ())
    for name, usual in USUAL.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, usual)
    return _text(arguments) if text else _purchases(arguments)


def _check(arguments: argparse.Namespace, others: tuple[str, ...], needed: tuple[str, ...]) -> None:
    """End with a usage error when an option belongs to the other format, or one is missing."""
    wrong = [_option(name) for name in others if getattr(arguments, name) is not None]
    if wrong:
        arguments.parser.error(f"{', '.join(wrong)}: not with --format {arguments.format}")
    missing = [_option(name) for name in needed if getattr(arguments, name) is None]
    if missing:
        arguments.parser.error(f"--format {arguments.format} needs {', '.join(missing)}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _min_items(text: str) -> int:
    """Return the number; two items are the fewest that make a history and a test."""
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: a whole number from 2; the usual one is 10")
    return int(text)


def _purchases(arguments: argparse.Namespace) -> int:
    from nnlib.importing import regions
    from nnlib.importing.purchases import Columns

    columns = Columns(*(getattr(arguments, f"{name}_column") for name, _ in COLUMNS))
    return regions.import_purchases(
        arguments.table, arguments.out, columns, arguments.regions, arguments.min_items, arguments.items
    )


def _text(arguments: argparse.Namespace) -> int:
    from nnlib.importing.dsstne_text import ANALOG, Indexes, import_text

    indexes = Indexes(arguments.features, arguments.samples, arguments.new_features)
    analog, pad = arguments.type == ANALOG, bool(arguments.pad_width)
    return import_text(arguments.table, arguments.out, arguments.dataset, indexes, analog, pad)
