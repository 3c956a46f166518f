"""`regiondag study`: all trials of a run, as a table, as files for other programs, and as pictures."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from workflows.commands.verbs import add_verb, run_verb
from workflows.errors import UsageError

if TYPE_CHECKING:
    from workflows.names import RunFolder
    from workflows.trialtable import RunTrials

HELP = "show a run's trials, draw them, or export them to Optuna or CSV"

DESCRIPTION = """Everything here is read from the regions' journals, so it works at any time: before, while and after
the run is processed, with or without a pool."""

EPILOG = """examples:
  regiondag study show RUN Germany --sort value
  regiondag study show RUN --failed
  regiondag study plot RUN
  regiondag study export RUN --optuna trials.log && optuna-dashboard trials.log"""

SORTS = ("trial", "value", "seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    show = _add_verb(verbs, "show", _show, "list all trials")
    show.add_argument("region", nargs="?", metavar="REGION", help="of this region alone (its name, or its folder's)")
    show.add_argument("--sort", choices=SORTS, default="trial", help="the best value or the longest first")
    show.add_argument("--failed", action="store_true", help="only trials that failed, with their reasons")
    show.add_argument("--json", action="store_true", help="one JSON object on stdout, with every metric")

    export = _add_verb(verbs, "export", _export, "write all trials for other programs")
    export.add_argument(
        "--optuna",
        metavar="URL|FILE",
        help="an Optuna storage: a database's URL (sqlite:///trials.db), a file that ends in .db, or a journal file "
        "(much faster); one study per region; exporting again adds what is new",
    )
    export.add_argument("--csv", metavar="FILE", help="one line per trial; - is stdout")

    plot = _add_verb(verbs, "plot", _plot, "draw a region's trials into report/regions/")
    plot.add_argument("region", nargs="?", metavar="REGION", help="only this region")


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, verb: object, text: str
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, verb, text)
    parser.add_argument("run_directory", type=Path, metavar="RUN")
    return parser


run = run_verb


def _read(arguments: argparse.Namespace) -> tuple[RunFolder, RunTrials]:
    """Read the journals of the run, or of one region."""
    from workflows.journal import Journal
    from workflows.names import RunFolder
    from workflows.regionspec import read_spec
    from workflows.report import read_manifest
    from workflows.trialtable import RunTrials, find_region, trials_of

    folder = RunFolder(arguments.run_directory.resolve())
    manifest = read_manifest(folder)
    name = getattr(arguments, "region", None)
    slugs = list(manifest["regions"]) if name is None else [find_region(manifest["regions"], name)]
    regions = (folder.region(slug) for slug in slugs)
    read = tuple(trials_of(read_spec(region.spec), Journal(region.journal).read()) for region in regions)
    return folder, RunTrials(manifest["study"], Path(manifest["run"]).name, read)


def _show(arguments: argparse.Namespace) -> int:
    from workflows.terminal import print_long_table
    from workflows.trialtable import headings, sort_rows, summary_line, table, to_json

    _, trials = _read(arguments)
    rows = [row for row in sort_rows(trials.rows, arguments.sort) if row.failed or not arguments.failed]
    if arguments.json:
        print(json.dumps(to_json(trials, rows), ensure_ascii=False))
    elif rows:
        print_long_table(summary_line(trials), headings(rows), table(rows))
    else:
        print(summary_line(trials))
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from nnlib.contract import write_atomically
    from workflows.trialtable import to_csv

    if arguments.optuna is None and arguments.csv is None:
        raise UsageError("nothing to export to; give --optuna URL|FILE, --csv FILE, or both")
    _, trials = _read(arguments)
    if arguments.csv == "-":
        print(to_csv(trials), end="")
    elif arguments.csv is not None:
        write_atomically(Path(arguments.csv), to_csv(trials))
        _tell(f"{len(trials.rows)} trials: {arguments.csv}")
    if arguments.optuna is not None:
        _export_to_optuna(trials, arguments.optuna)
    return 0


def _export_to_optuna(trials: RunTrials, target: str) -> None:
    from workflows.optunaexport import export, storage_name
    from workflows.terminal import progress_bar

    with progress_bar("exporting") as progress:
        done = export(trials, target, progress)
    _tell(
        f"{len(trials.regions)} studies, {done.added} trials new, {done.ended} ended since the last export, "
        f"{done.known} there before: {storage_name(target)}"
    )


def _plot(arguments: argparse.Namespace) -> int:
    from workflows.plots import draw_region
    from workflows.report import write_report
    from workflows.terminal import progress_bar

    folder, trials = _read(arguments)
    drawn = 0
    with progress_bar("drawing") as progress:
        for done, region in enumerate(trials.regions):
            progress(done, len(trials.regions))
            pictures = draw_region(region, folder.pictures(region.spec.slug))
            drawn += len(pictures)
            if not pictures:
                _tell(f"{region.spec.name}: nothing to draw, none of its trials has ended yet")
    write_report(folder)  # which links them
    _tell(f"{drawn} pictures")
    print(folder.report / "summary.md")
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
