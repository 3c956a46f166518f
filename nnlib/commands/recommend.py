"""`nnlib recommend`: the best items of many customers into a Parquet file, as the jobs of `regiondag recommend` do."""

from __future__ import annotations

import argparse
import json
import re
import time
from dataclasses import asdict
from pathlib import Path

from nnlib import __version__
from nnlib.commands._arguments import add_threads, check_out, hold_threads, whole
from nnlib.errors import NnlibError

HELP = "the best items of many customers, into a Parquet file"
DESCRIPTION = """Recommend by a model, a network or one of a recipe, to the customers of a data file, and write one
Parquet file of region, customer, rank, item, score and what answered. Customers of whom the model knows no item get
what is popular. The file appears when all of it is written; no library for Parquet is needed."""
EPILOG = """examples:
  nnlib recommend model.nc data.all.nc -k 10 --out germany.parquet
  nnlib recommend model.nc data.all.nc --customers 0-49999 --out part-0000.parquet --report part-0000.json"""


def customers(text: str) -> tuple[int, int]:
    """Read the first and the last number of a range."""
    found = re.fullmatch(r"([0-9]{1,15})-([0-9]{1,15})", text)
    if not found or int(found[2]) < int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: numbers of customers from 0, such as 0-49999")
    return int(found[1]), int(found[2])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, metavar="MODEL.nc")
    parser.add_argument("data", type=Path, metavar="DATA.nc", help="the customers' histories")
    parser.add_argument("-k", type=whole(1), default=10, metavar="N", help="how many items each (default: 10)")
    parser.add_argument("--customers", type=customers, metavar="FIRST-LAST", help="by their place in the data, from 0")
    parser.add_argument("--floor", type=Path, metavar="FLOOR.nc", help="recent popularity (default: counted from data)")
    parser.add_argument(
        "--exclude",
        choices=("owned", "none"),
        help="what customers have is left out, or not (default: as the model's data say)",
    )
    parser.add_argument("--only", type=Path, metavar="FILE", help="ids of items, one a line: no others")
    parser.add_argument("--never", type=Path, metavar="FILE", help="ids of items, one a line: none of these")
    parser.add_argument("--region", default="", metavar="NAME", help="what the column region says (default: nothing)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.parquet")
    parser.add_argument("--report", type=Path, metavar="FILE.json", help="write how many rows there are, and SHA-256")
    add_threads(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the file; return the exit code."""
    inputs = (arguments.model, arguments.data, arguments.floor, arguments.only, arguments.never)
    check_out(arguments.out, inputs)
    check_out(arguments.report, (*inputs, arguments.out), "--report")
    threads = hold_threads(arguments.threads)
    import numpy as np

    from nnlib.prediction.recommended_file import read_ids, write_recommended
    from nnlib.prediction.recommender import open_recommender
    from nnlib.util.files import write_atomically
    from nnlib.util.terminal import show_count
    from nnlib.util.threads import workers

    started = time.time()
    region = open_recommender(arguments.model, arguments.data, arguments.floor)
    count = len(region.customers)
    first, last = arguments.customers or (0, count - 1)
    if last >= count:
        raise NnlibError(
            f"--customers: {first}-{last} is not legal, legal: 0-{count - 1}, as {arguments.data} has them"
        )
    only, never = (None if path is None else read_ids(path) for path in (arguments.only, arguments.never))
    owned = None if arguments.exclude is None else arguments.exclude == "none"
    limits = region.limit(arguments.k, owned, only, never or ())
    rows = np.arange(first, last + 1)
    with workers(threads) as each, show_count(len(rows), "customers") as watch:
        written = write_recommended(arguments.out, arguments.region, region, rows, limits, each, watch)
    if arguments.report is not None:
        facts = asdict(written) | {"seconds": time.time() - started, "nnlib": __version__}
        write_atomically(arguments.report, json.dumps(facts, indent=1) + "\n")
    return 0
