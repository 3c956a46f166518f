"""`regiondag recommend STUDY`: what each customer may want, with names."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import number
from regiondag.errors import UsageError
from regiondag.util.terminal import Narrow

if TYPE_CHECKING:
    from regiondag.recommend.answers_file import Told
    from regiondag.recommend.region import Served

HELP = "recommend items to one customer, to some, or to all"
DESCRIPTION = """The best items for customers by the champion of their region, with names where a table says them. A
customer is looked up in all regions unless one is named; who is in none gets what is popular lately, which is said.
--all writes Parquet files below STUDY/recommendations, on all cores of this machine or, with --submit, as jobs of the
pool; the same command again writes what is missing. manifest.json comes last: with it, all is there."""
EPILOG = """examples:
  regiondag recommend STUDY --customer 12583
  regiondag recommend STUDY --region Germany --customer 12583 --because
  regiondag recommend STUDY --customers ids.txt --never 22423 --out best.csv
  regiondag recommend STUDY --all --submit --watch"""

REASONS = 2  # items that --because names
NARROW = Narrow(("because", "score"), {"name": 12, "because": 12, "item": 6})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("study", type=Path, metavar="STUDY", help="a study's folder, or its file")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="where runs lie (default: runs/ beside study.yaml)")
    parser.add_argument("--region", metavar="NAME", help="one region (default: wherever the customer is)")
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--customer", action="append", metavar="ID", help="may come several times")
    who.add_argument("--customers", type=Path, metavar="FILE", help="ids, one a line")
    who.add_argument("--all", action="store_true", help="all customers of all regions, or of one")
    _add_wish(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables; with --all: what is there")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write .csv, .json, .jsonl or .parquet instead")
    everybody = parser.add_argument_group("with --all")
    everybody.add_argument("--submit", action="store_true", help="as jobs of the pool instead of here")
    everybody.add_argument("--watch", action="store_true", help="with --submit: wait, and say how far the jobs are")
    everybody.add_argument("--status", action="store_true", help="only say where the newest batch stands")
    everybody.add_argument(
        "--chunk", type=number(int, 1, 10**9), metavar="N", help="customers a file (default: some minutes of work)"
    )
    everybody.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")


def _add_wish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-k", type=number(int, 1, 10_000), default=10, metavar="N", help="items each (default: 10)")
    have = parser.add_mutually_exclusive_group()
    have.add_argument(
        "--exclude", choices=("owned",), help="leave out what a customer has (default: unless repeats count)"
    )
    have.add_argument("--owned", action="store_true", help="what he has may be among them")
    parser.add_argument("--only", nargs="+", metavar="ID|FILE", help="only these items: ids, or a file of them")
    parser.add_argument("--never", nargs="+", metavar="ID|FILE", help="none of these")
    parser.add_argument(
        "--because",
        type=number(int, 1, 100),
        nargs="?",
        const=REASONS,
        default=0,
        metavar="N",
        help=f"say which of his items raised the score most (N of them, default: {REASONS})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Recommend; return the exit code."""
    _check(arguments)
    from regiondag.recommend.ask import Wish, ask_customers, ask_everybody, find_slugs
    from regiondag.recommend.region import Served
    from regiondag.run.study_folder import find_study

    study = find_study(arguments.study, arguments.runs)
    owned = True if arguments.owned else False if arguments.exclude else None
    only = None if arguments.only is None else _read_items(arguments.only)
    wish = Wish(arguments.k, owned, only, _read_items(arguments.never or ()), arguments.because)
    served = Served(study.runs.resolve(), study.name)
    slugs = find_slugs(served, arguments.region)
    if arguments.all and arguments.out is not None:
        return _write(arguments, served, ask_everybody(served, slugs, wish))
    if arguments.all:
        from regiondag.commands._recommend_all import recommend_all

        return recommend_all(arguments, study, served, slugs, wish)
    customers = arguments.customer or _read_ids(arguments.customers)
    told = ask_customers(served, slugs, list(dict.fromkeys(customers)), wish)
    if arguments.out is not None:
        return _write(arguments, served, told)
    if arguments.json:
        from regiondag.recommend.answers_file import facts_of

        answers = [dataclasses.asdict(facts_of(one)) for one in told]
        print(json.dumps({"study": served.study, "k": wish.k, "answers": answers}, ensure_ascii=False))
        return 0
    for one in told:
        _show(one, len(slugs) > 1)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuse options that do not go together, before anything is read."""
    if arguments.out is not None:
        from regiondag.recommend.answers_file import check_ending

        check_ending(arguments.out)
        if arguments.json:
            arguments.refuse("--json and --out say two places; legal: one of them")
        for option in ("submit", "watch", "status", "chunk"):
            if getattr(arguments, option):
                arguments.refuse(f"--{option} is for files of the study's own, legal with --out: none")
    for option in ("submit", "watch", "status", "chunk", "pool"):
        if getattr(arguments, option) and not arguments.all:
            arguments.refuse(f"--{option} is for --all")
    if arguments.watch and not (arguments.submit or arguments.status):
        arguments.refuse("--watch waits for jobs: it is for --submit or --status")
    if arguments.all and arguments.because and arguments.out is None:
        arguments.refuse("--because with --all needs --out FILE: the study's own files have no reasons")


def _write(arguments: argparse.Namespace, served: Served, told: Iterable[Told]) -> int:
    from regiondag.recommend.answers_file import write_answers

    rows = write_answers(arguments.out, told, served.study, arguments.k)
    tell(f"{arguments.out}: {rows:,} rows")
    return 0


def _show(told: Told, several: bool) -> None:
    """Print one customer's table."""
    from regiondag.util.terminal import print_table
    from regiondag.util.text import make_printable

    answer, names = told.answer, told.names
    if not answer.known:
        near = f" Did you mean {' or '.join(map(repr, told.near))}?" if told.near else ""
        where = "any region" if several else told.region
        tell(make_printable(f"no customer {answer.customer!r} in {where}.{near}"))
    reasons = any(one.because for one in answer.items)
    named = any(one.item in names for one in answer.items)
    headings = ["", "item", *(["name"] if named else []), "score", *(["because"] if reasons else [])]
    rows = [
        [
            str(rank),
            make_printable(one.item),
            *([make_printable(names.get(one.item, "-"))] if named else []),
            f"{one.score:.4g}",
            *([make_printable(", ".join(names.get(item, item) for item in one.because) or "-")] if reasons else []),
        ]
        for rank, one in enumerate(answer.items, 1)
    ]
    print(make_printable(f"{told.region}, customer {answer.customer}: by {answer.by}"))
    print_table("", headings, rows, NARROW)
    if not rows:
        tell("nothing is left to recommend: every item is his, or was ruled out")


def _read_items(texts: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return ids as they are, and those in files."""
    found: list[str] = []
    for text in texts:
        found += _read_ids(Path(text)) if Path(text).is_file() else [text]
    return tuple(dict.fromkeys(found))


def _read_ids(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise UsageError(f"{path}: no id in it, legal: one a line")
    return found
