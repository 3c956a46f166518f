"""`regiondag init`: write a study to start from, an example or that of a table of purchases."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.files import appearing
from nnlib.util.terminal import tell
from regiondag.errors import RegiondagError, UsageError
from regiondag.util.resources import resource_dir

if TYPE_CHECKING:
    from nnlib.importing.sniffing.ambiguous import AmbiguousError
    from nnlib.importing.sniffing.look import Look, Wishes
    from regiondag.study.database import Database

HELP = "write a study: an example, or that of your own table"
DESCRIPTION = """Write a study into a new folder: an example, or with --data that of a table of purchases.

The table is a CSV, TSV or Parquet file (.gz, .zst), a folder of such, or one of a database. Its columns, separator,
encoding and dates are guessed where you do not name them, and shown with what the table holds and what will be left
out, before anything is written. Where it can be meant in several ways you are asked, or without a terminal told the
options. Examples:
  retail   purchases of an online shop in 41 countries; a champion for each of them
  images   pictures of ten signs in five cities; a convolutional network for each, begun from that of all cities
and programs of one's own as trials, each for three regions:
  command  awk forecasts sales; a program that knows nothing of regiondag, and prints how far it is off
  sklearn  logistic regression, cross-validated
  r        the same in R, which workers need to have: base R, a program that knows nothing of regiondag
  lightgbm trees, whose trials end early where others are better; the library goes with the jobs
  pytorch  a network that saves itself, goes on elsewhere, and ends early where others are better"""
EPILOG = """examples:
  regiondag init retail example                        # the example, in ./example
  regiondag init images signs                          # pictures, which a script beside the study draws
  regiondag init sklearn leaving                       # a program of 40 lines as a trial
  regiondag init --data sales.csv shop                 # all is guessed, and shown
  regiondag init --data sales.csv --region store --customer client --item sku --time when shop
  regiondag init --data sales.csv --dry-run shop       # look only
  regiondag init --data postgresql://me@db.example.org/shop --table sales --password env:SHOP_PASSWORD shop"""
MADE = {  # what data and libraries come of
    "images": ("python make_pictures.py", "nnlib import pictures --size 32 --test 40% --out data"),
    "lightgbm": ("pip install --no-deps --target lib lightgbm narwhals",),
    "pytorch": (
        "python -m venv env && env/bin/pip install numpy torch      # unless workers have it",
        'sed -i "s#\\[python,#[$PWD/env/bin/python,#" study.yaml',
    ),
}
COLUMNS = ("region", "customer", "item", "time", "description", "quantity")
OF_DATABASE = ("table", "query", "password")
FORMAT = ("separator", "encoding", "dates", "decimal")
ASKED = 3  # times that an answer may be none of those offered
DAY = 86_400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.usage = "regiondag init EXAMPLE DIR\n       regiondag init --data PATH [--region COLUMN] [...] DIR"
    parser.add_argument("example", metavar="EXAMPLE", help="name of the example, such as retail; not with --data")
    parser.add_argument(
        "folder", type=Path, nargs="?", metavar="DIR", help="folder to write; must not exist or be empty"
    )
    table = parser.add_argument_group("a table of your own")
    table.add_argument(
        "--data", metavar="PATH", help="a table, a folder of tables, or the URL of a database, without a password"
    )
    table.add_argument("--table", metavar="NAME", help="of a database: its table of purchases")
    table.add_argument("--query", metavar="SELECT", help="of a database: what finds the purchases there")
    table.add_argument("--password", metavar="PLACE", help="of a database: env:NAME or file:PATH, where it is kept")
    for name in COLUMNS:
        about = f"its column of the {name}" if name != "quantity" else "its column of how many: 0 and below came back"
        table.add_argument(f"--{name}", metavar="COLUMN", help=f"{about} (default: guessed)")
    table.add_argument("--one-region", action="store_true", help="all is one region, whatever columns there are")
    table.add_argument("--separator", metavar="TEXT", help="between fields (default: guessed)")
    table.add_argument("--encoding", metavar="NAME", help="such as utf-8, cp1252, utf-16 (default: guessed)")
    table.add_argument("--dates", metavar="FORM", help="how times are written, as in strptime: %%d/%%m/%%Y")
    table.add_argument("--decimal", choices=(".", ","), help="before the decimals of a quantity (default: guessed)")
    table.add_argument("--count", action="store_true", help="count all rows of a large table, not those of a sample")
    table.add_argument("--dry-run", action="store_true", help="look only, write nothing")
    table.add_argument("--json", action="store_true", help="print what was seen as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Write the study."""
    from regiondag.run.study_folder import check_free

    if arguments.data is not None:
        return _of_table(arguments)
    for name in (*COLUMNS, *FORMAT, *OF_DATABASE, "one_region", "count", "dry_run", "json"):
        if getattr(arguments, name):
            arguments.refuse(f"--{name.replace('_', '-')}: only with --data PATH")
    examples = sorted(path.name for path in resource_dir("examples").iterdir() if path.is_dir())
    if arguments.example not in examples:
        hint = "; for a table of your own: --data PATH" if arguments.folder is None else ""
        raise UsageError(f"there is no example {arguments.example!r}; there is: {', '.join(examples)}{hint}")
    if arguments.folder is None:
        arguments.refuse("the following arguments are required: DIR")
    folder: Path = arguments.folder
    check_free(folder)
    _copy(resource_dir("examples") / arguments.example, folder)
    print(folder / "study.yaml")
    where, first = shlex.quote(str(folder)), ""
    if arguments.example in MADE:
        first, where = "".join(f"  {line}\n" for line in (f"cd {where}", *MADE[arguments.example])), "."
    tell(f"Next:\n{first}  regiondag run {where}{_elsewhere(folder)}     # or step by step, from: regiondag generate")
    return 0


def _elsewhere(folder: Path) -> str:
    """Return the option that `generate` needs where no run can lie beside the study."""
    from regiondag.condor.quoting import QuotingError, path
    from regiondag.condor.submit import find_slash_tmp

    try:
        path(folder.resolve())
    except QuotingError:
        return " --out ~/runs"
    return " --out ~/runs" if find_slash_tmp(folder) else ""


def _copy(example: Path, folder: Path) -> None:
    """Copy so that `folder` appears whole or not at all."""
    with appearing(folder) as part:
        for file in sorted(path for path in example.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            copy = part / file.relative_to(example)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, copy)


# --- a table of one's own ----------------------------------------------------------------------------------


def _of_table(arguments: argparse.Namespace) -> int:
    import time

    from nnlib.errors import DataError
    from nnlib.util.terminal import width_of
    from regiondag.newstudy.describe import describe_look, facts_of
    from regiondag.newstudy.look import find_memory
    from regiondag.newstudy.write import find_path, quote_yaml, write_study
    from regiondag.run.study_folder import check_free

    if arguments.folder is not None:
        arguments.refuse("with --data there is one argument: the folder to write")
    folder = Path(arguments.example)
    check_free(folder)
    database = _database(arguments)
    if database is None:
        quote_yaml(find_path(Path(arguments.data), folder))
    try:
        look = _look_into(database, arguments, folder)
    except DataError as error:
        raise RegiondagError(str(error)) from error
    today = int(time.time() // DAY)
    width = min(width_of(sys.stderr), 80 if not sys.stderr.isatty() else 1000)
    tell(describe_look(look, today, width))
    if arguments.json:
        print(json.dumps(asdict(facts_of(look, today)), ensure_ascii=False))
    if arguments.dry_run:
        return 0
    study = write_study(folder, look, find_memory(), database)
    if not arguments.json:
        print(study)
    tell(f"\nNext:\n  regiondag run {shlex.quote(str(folder))}{_elsewhere(folder)}")
    return 0


def _database(arguments: argparse.Namespace) -> Database | None:
    """Return the database that is named in the place of a file."""
    if "://" not in arguments.data:
        for name in OF_DATABASE:
            if getattr(arguments, name) is not None:
                arguments.refuse(f"--{name}: only with --data URL, that of a database")
        return None
    from regiondag.newstudy.database import name_database

    return name_database(arguments.data, arguments.table, arguments.query, arguments.password, mark="--")


def _look_into(database: Database | None, arguments: argparse.Namespace, folder: Path) -> Look:
    if database is None:
        return _look(arguments, Path(arguments.data), folder)
    from regiondag.newstudy.database import look_at_database

    return look_at_database(database, lambda file: _look(arguments, file, folder))


def _look(arguments: argparse.Namespace, table: Path, folder: Path) -> Look:
    """Look at the table, and ask on a terminal what cannot be told."""
    from nnlib.importing.sniffing.ambiguous import AmbiguousError
    from nnlib.importing.sniffing.look import Wishes
    from regiondag.newstudy.look import look_at_table
    from regiondag.newstudy.write import name_study

    name = name_study(folder)
    columns = {meaning: getattr(arguments, meaning) for meaning in COLUMNS if getattr(arguments, meaning) is not None}
    if arguments.one_region and "region" in columns:
        arguments.refuse("--one-region: not with --region")
    if arguments.one_region:
        columns["region"] = ""
    form = {key: getattr(arguments, key) or "" for key in FORMAT}
    wishes = Wishes(columns, name, **form, whole=arguments.count)
    while True:
        try:
            return look_at_table(table, wishes)
        except AmbiguousError as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()) or arguments.quiet:
                raise
            wishes = _ask(error, wishes)


def _ask(error: AmbiguousError, wishes: Wishes) -> Wishes:
    """Return the wishes with the answer that a person gives."""
    from regiondag.util.text import make_printable

    print(make_printable(error.question), file=sys.stderr)
    for n, (value, means) in enumerate(error.answers, 1):
        print(f"  {n}  {make_printable(value)}   {make_printable(means)}", file=sys.stderr)
    for _ in range(ASKED):
        print(f"Which, 1 to {len(error.answers)}? ", end="", file=sys.stderr, flush=True)
        said = sys.stdin.readline()
        if not said:
            break
        if said.strip().isdecimal() and 1 <= int(said) <= len(error.answers):
            value = error.answers[int(said) - 1][0]
            if error.wish in FORMAT:
                return replace(wishes, **{error.wish: value})  # type: ignore[arg-type]
            return replace(wishes, columns={**wishes.columns, error.wish: value})
    raise error
