"""`nnlib import`: data files from a table of purchases, from pictures, or from text files in DSSTNE's form."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from nnlib.commands._arguments import add_threads, hold_threads

HELP = "make data files from purchases, pictures or DSSTNE's text files"
DESCRIPTION = """Make data files.

From a table of purchases: the parts train, valid, final, test and all of each region, in the folder --out. A window of
days up to the last one is the test, the window before it is for validation; whoever took something new in a window, and
had enough before, is asked for it, and all that was before is the history.
With --format images, from folders of pictures, REGION/CLASS/PICTURE, or a CSV with the columns region, class, path and
perhaps split: the parts train, valid, final and test of each region, a picture as bytes of the size --size, the same
classes in all regions. A folder of folders of pictures is taken so without being told.
With --format dsstne, from a text file or a folder of them, `sample<TAB>feature[,value]:feature[,value]:...` a line:
one data set in the file --out, and index files that give the same samples and features the same numbers next time."""
EPILOG = """examples:
  nnlib import purchases.csv.gz --out data
  nnlib import purchases.csv.gz --out data --test 7d --validate 7d --min-history 3
  nnlib import images/ --out data --size 96x96
  nnlib import flowers/ --out data --format images --one-region flowers --test 10% --validate 10%
  nnlib import likes.txt --format dsstne --dataset gl_input --out gl_input.nc \\
      --features features.txt --samples samples.txt --new-features create
  nnlib import likes.txt --format dsstne --dataset gl_output --out gl_output.nc \\
      --features features.txt --samples samples.txt"""
PURCHASES, IMAGES, DSSTNE = "purchases", "images", "dsstne"
COLUMNS = (("region", "region"), ("customer", "customer"), ("item", "item"), ("time", "date"))
USUAL = {
    "regions": (),
    "split": "time",
    "min_history": 5,
    "repeats": False,
    "seed": 0,
    "quantity_column": "",
    "description_column": "",
    "amount_column": "",
    "one_region": "",
    "separator": "",
    "encoding": "utf-8",
    "dates": "",
    "decimal": ".",
    "new_features": "drop",
    "type": "indicator",
    "size": (64, 64),
    "grey": False,
    "broken": "refuse",
} | {f"{name}_column": column for name, column in COLUMNS}
FORMAT = ("separator", "encoding", "dates", "decimal")
SHARED = ("test", "validate", "seed", "one_region", "regions")  # of purchases and of pictures
OF_PURCHASES = (
    *(f"{name}_column" for name, _ in COLUMNS),
    "quantity_column",
    "description_column",
    "amount_column",
    *FORMAT,
    "split",
    "min_history",
    "repeats",
    "items",
    "customers",
)
OF_IMAGES = ("size", "grey", "broken", "threads")
KINDS = ("time", "leave-one-out", "random")
ONLY_WITH = {"test": ("time",), "validate": ("time",), "repeats": ("time", "column"), "seed": ("random",)}
OF_DSSTNE = ("dataset", "features", "samples", "new_features", "type", "pad_width")
NEEDED = ("dataset", "features", "samples")
NOT_WITH = {
    PURCHASES: (*OF_IMAGES, *OF_DSSTNE),
    IMAGES: (*OF_PURCHASES, *OF_DSSTNE),
    DSSTNE: (*OF_PURCHASES, *SHARED, *OF_IMAGES),
}
MOST_DAYS = 100_000
MOST_SIDE = 4096  # pixels of the pictures that are made
USUAL_SHARE = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "table", type=Path, metavar="INPUT", help="a table, a folder of tables or of pictures, or DSSTNE's text"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="folder or file for the data")
    parser.add_argument(
        "--format",
        choices=(PURCHASES, IMAGES, DSSTNE),
        help=f"default: {IMAGES} for a folder of folders of pictures, else {PURCHASES}",
    )
    purchases = parser.add_argument_group("purchases")
    for name, default in COLUMNS:
        purchases.add_argument(f"--{name}-column", metavar="NAME", help=f"default: {default}")
    purchases.add_argument("--regions", nargs="+", metavar="REGION", help="only these (default: all)")
    purchases.add_argument("--quantity-column", metavar="NAME", help="keep how many, or how much money (default: not)")
    purchases.add_argument("--description-column", metavar="NAME", help="of what items are called (default: not)")
    purchases.add_argument("--amount-column", metavar="NAME", help="leave out where it is 0 or below: what came back")
    purchases.add_argument("--one-region", metavar="NAME", help="all rows are of this region; no column says it")
    purchases.add_argument("--separator", metavar="TEXT", help="between fields (default: a comma, a tab in .tsv)")
    purchases.add_argument("--encoding", metavar="NAME", help="of a text file, such as cp1252 (default: utf-8)")
    purchases.add_argument("--dates", metavar="FORM", help="how times are written, as in strptime: %%d/%%m/%%Y")
    purchases.add_argument("--decimal", choices=(".", ","), help="before the decimals of a quantity (default: .)")
    purchases.add_argument(
        "--split",
        type=_split,
        metavar="HOW",
        help="time: windows of days (default); leave-one-out: each customer's last day with something new; "
        "column=NAME: a column says train, valid or test; random: by chance, which lets models see the future",
    )
    purchases.add_argument(
        "--test",
        type=_held_out,
        metavar="DAYS",
        help="the last days (default: 28d, longer if few were asked, shorter if there are few days); of pictures a "
        "share of each class (default: 20%%)",
    )
    purchases.add_argument(
        "--validate",
        type=_held_out,
        metavar="DAYS",
        help="the days before these (default: as many); of pictures a share (default: 20%%)",
    )
    purchases.add_argument(
        "--min-history", type=_count, metavar="N", help="ask customers with so many items before (default: 5)"
    )
    purchases.add_argument(
        "--repeats", action="store_true", default=None, help="ask for what customers had before, too, if bought again"
    )
    purchases.add_argument(
        "--seed", type=int, metavar="N", help="of --split random, and of the parts of pictures (default: 0)"
    )
    purchases.add_argument("--items", type=Path, metavar="FILE", help="a table with a column item, for items.csv")
    purchases.add_argument(
        "--customers", type=Path, metavar="FILE", help="a table with columns region, customer, for customers.csv"
    )
    _add_image_arguments(parser.add_argument_group("--format images"))
    _add_text_arguments(parser.add_argument_group("--format dsstne"))
    parser.set_defaults(parser=parser)


def _add_image_arguments(images: argparse._ArgumentGroup) -> None:
    images.add_argument("--size", type=_size, metavar="WxH", help="pixels that every picture gets (default: 64x64)")
    images.add_argument("--grey", action="store_true", default=None, help="one channel of grey (default: three, RGB)")
    images.add_argument(
        "--broken",
        choices=("refuse", "skip"),
        help="what becomes of files that are no pictures, torn, or too large: the first five end the import (refuse, "
        "the default), or they are left out and told",
    )
    add_threads(images)


def _add_text_arguments(text: argparse._ArgumentGroup) -> None:
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


def run(arguments: argparse.Namespace) -> int:
    """Make the files; return the exit code."""
    if arguments.format is None:
        arguments.format = _guess(arguments.table)
    _check(arguments, NOT_WITH[arguments.format], NEEDED if arguments.format == DSSTNE else ())
    if arguments.format == PURCHASES:
        _check_split(arguments, (arguments.split or "time").partition("=")[0])
    _check_windows(arguments)
    for name, usual in USUAL.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, usual)
    return {PURCHASES: _purchases, IMAGES: _images, DSSTNE: _text}[arguments.format](arguments)


def _guess(source: Path) -> str:
    """Return the format that an input has by the looks of it, and say so where that is not the usual one."""
    if not source.is_dir():
        return PURCHASES
    from nnlib.importing.images.listing import looks_like_pictures
    from nnlib.util.terminal import tell

    if not looks_like_pictures(source):
        return PURCHASES
    tell(f"{source}: folders of pictures, taken as --format {IMAGES}")
    return IMAGES


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


def _split(text: str) -> str:
    """Return one of KINDS, or column=NAME."""
    if text not in KINDS and text.removeprefix("column=") in ("", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: {', '.join(KINDS)}, column=NAME")
    return text


def _held_out(text: str) -> int | float:
    """Return how many days `28d` are, as a whole number, or what share `20%` is, below 1."""
    days, percent = re.fullmatch(r"([0-9]{1,9})d", text), re.fullmatch(r"([0-9]{1,2}(?:\.[0-9]+)?)%", text)
    if days and 1 <= int(days[1]) <= MOST_DAYS:
        return int(days[1])
    if percent:
        return float(percent[1]) / 100
    raise argparse.ArgumentTypeError(
        f"{text!r} is not legal, legal: whole days, such as 28d; of pictures a share below 100%, such as 20%"
    )


def _size(text: str) -> tuple[int, int]:
    """Return width and height of `96x64`."""
    found = re.fullmatch(r"([0-9]{1,5})(?:x([0-9]{1,5}))?", text)
    size = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= min(size) <= max(size) <= MOST_SIDE:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not legal, legal: width x height of 1 to {MOST_SIDE} pixels, such as 96x64"
        )
    return size


def _count(text: str) -> int:
    """Return the number; nobody can be asked who has nothing."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: a whole number from 1; the usual one is 5")
    return int(text)


def _check_split(arguments: argparse.Namespace, kind: str) -> None:
    """End with a usage error when an option means nothing for this kind of split."""
    for name, kinds in ONLY_WITH.items():
        if getattr(arguments, name) is not None and kind not in kinds:
            legal = " or ".join("column=NAME" if one == "column" else one for one in kinds)
            arguments.parser.error(f"{_option(name)}: only with --split {legal}")


def _check_windows(arguments: argparse.Namespace) -> None:
    """End with a usage error when days are given for pictures, or shares for purchases; set what is usual."""
    pictures = arguments.format == IMAGES
    for name in ("test", "validate"):
        value = getattr(arguments, name)
        if value is None:
            setattr(arguments, name, USUAL_SHARE if pictures else 0)
        elif isinstance(value, float) != pictures:
            legal = "a share of each class, such as 20%" if pictures else "whole days, such as 28d"
            arguments.parser.error(f"{_option(name)}: not with --format {arguments.format}, legal: {legal}")
    if pictures and arguments.test + arguments.validate >= 1:
        arguments.parser.error("--test and --validate: together below 100%, so that something is learned from")


def _images(arguments: argparse.Namespace) -> int:
    threads = hold_threads(arguments.threads)
    from nnlib.importing.images.parts import Shares
    from nnlib.importing.images.pictures import PictureForm
    from nnlib.importing.images.regions import import_images
    from nnlib.util.threads import workers

    width, height = arguments.size
    form = PictureForm(width, height, arguments.grey)
    shares = Shares(arguments.test, arguments.validate, arguments.seed)
    with workers(threads) as each:
        return import_images(
            arguments.table,
            arguments.out,
            each,
            form,
            shares,
            arguments.regions,
            arguments.one_region,
            arguments.broken,
        )


def _purchases(arguments: argparse.Namespace) -> int:
    import datetime

    from nnlib.importing import regions
    from nnlib.importing.purchase_lines import Columns
    from nnlib.importing.splits import COLUMN, Split
    from nnlib.importing.table_source import TableFormat
    from nnlib.util.days import day_of

    kind, _, column = arguments.split.partition("=")
    timed = kind in ("time", "leave-one-out")
    columns = Columns(
        "" if arguments.one_region else arguments.region_column,
        arguments.customer_column,
        arguments.item_column,
        arguments.time_column,
        column,
        arguments.quantity_column,
        timed,
        arguments.description_column,
        arguments.one_region,
        TableFormat(**{name: getattr(arguments, name) for name in FORMAT}),
        arguments.amount_column,
    )
    split = Split(
        COLUMN if column else kind,
        arguments.test,
        arguments.validate,
        arguments.min_history,
        arguments.repeats,
        arguments.seed,
    )
    today = day_of(datetime.datetime.now(datetime.UTC).date())
    side = regions.SideFiles(arguments.items, arguments.customers)
    return regions.import_purchases(arguments.table, arguments.out, today, columns, split, arguments.regions, side)


def _text(arguments: argparse.Namespace) -> int:
    from nnlib.importing.dsstne_text import ANALOG, Indexes, import_text

    indexes = Indexes(arguments.features, arguments.samples, arguments.new_features)
    analog, pad = arguments.type == ANALOG, bool(arguments.pad_width)
    return import_text(arguments.table, arguments.out, arguments.dataset, indexes, analog, pad)
