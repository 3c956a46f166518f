"""`regiondag study`: all trials of a run, as a table, as files for other programs, and as pictures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import add_run, add_verb, run_verb
from regiondag.errors import PoolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from regiondag.run.layout import RunFolder
    from regiondag.trials.query import Places
    from regiondag.trials.rows import RunTrials
    from regiondag.trials.why import Why

HELP = "show a run's trials, draw them, or export the run: Optuna, CSV, RO-Crate, WfFormat"

DESCRIPTION = """Everything here is read from the regions' journals, so it works at any time: before, while and after
the run is processed, with or without a pool. While a pool works on the run, `show` also says where each trial's job is.
To cancel, prioritise or run trials again: regiondag trial."""

WHERE = """only trials for which this holds: hyperparameters, trial, status, value, epochs, seconds, won, job, host and
priority, compared as in search.constraints; such as "learning_rate < 0.01 and status == ok" """

IMPORTANCE = """For each region the share of the trials' differences that a forest explains by each hyperparameter, and
the mean over regions. Of one region also the partial dependence: what the tuner's model takes the metric to be at each
value of the hyperparameters on which it depends most, averaged over the points of its trials, with 95 %."""

EPILOG = """examples:
  regiondag study show RUN Germany --sort value
  regiondag study show RUN --failed
  regiondag study show RUN --where "optimizer == adam and value > 0.1"
  regiondag study show RUN Germany --why 17
  regiondag study importance RUN Germany
  regiondag study plot RUN
  regiondag study export RUN --optuna trials.log && optuna-dashboard trials.log
  regiondag study export RUN --ro-crate crate --license https://spdx.org/licenses/CC-BY-4.0"""

SORTS = ("trial", "value", "seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    show = _add_verb(verbs, "show", _show, "list all trials")
    show.add_argument("region", nargs="?", metavar="REGION", help="of this region alone (its name, or its folder's)")
    show.add_argument("--sort", choices=SORTS, default="trial", help="the best value or the longest first")
    show.add_argument("--failed", action="store_true", help="only trials that failed, with their reasons")
    show.add_argument("--where", metavar="CONDITION", help=WHERE)
    show.add_argument(
        "--why", metavar="TRIAL", help="why this trial: where its values came from, what was expected, what came"
    )
    show.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")
    show.add_argument("--json", action="store_true", help="one JSON object on stdout, with every metric")

    importance = _add_verb(verbs, "importance", _importance, "say which hyperparameters mattered, and how")
    importance.description = IMPORTANCE
    importance.add_argument("region", nargs="?", metavar="REGION", help="of this region alone, with dependence")
    importance.add_argument("--json", action="store_true", help="print a JSON list, an object a region")

    export = _add_verb(verbs, "export", _export, "write all trials for other programs")
    export.add_argument(
        "--optuna",
        metavar="URL|FILE",
        help="an Optuna storage: a database's URL (sqlite:///trials.db), a file that ends in .db, or a journal file "
        "(much faster); one study per region; exporting again adds what is new",
    )
    export.add_argument("--csv", metavar="FILE", help="one line per trial; - is stdout")

    export.add_argument(
        "--ro-crate",
        metavar="FOLDER",
        help="a new folder: an RO-Crate of the run, with what ran when on which data, study.yaml and all champions",
    )
    export.add_argument("--license", metavar="TEXT", help="of that crate: its URL, or what else is to be said")
    export.add_argument("--wfformat", metavar="FILE", help="the run's graph as WfCommons reads it; - is stdout")

    plot = _add_verb(verbs, "plot", _plot, "draw a region's trials into report/regions/")
    plot.add_argument("region", nargs="?", metavar="REGION", help="only this region")


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, verb: object, text: str
) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, verb, text)
    add_run(parser)
    return parser


run = run_verb


def _read(arguments: argparse.Namespace) -> tuple[RunFolder, RunTrials]:
    """Read the journals of the run, or of one region."""
    from regiondag.run.study_folder import find_run
    from regiondag.trials.read import read_trials

    folder = find_run(arguments.run_directory)
    return folder, read_trials(folder, getattr(arguments, "region", None))


def _show(arguments: argparse.Namespace) -> int:
    if arguments.why is not None:
        return _show_why(arguments)
    from regiondag.trials.query import headings_with_places, parse_query, with_places
    from regiondag.trials.table import list_headings, sort_rows, summary_line, to_json, to_rows, when_narrow
    from regiondag.util.terminal import print_long_table

    folder, trials = _read(arguments)
    places = _places(folder, [region.spec.slug for region in trials.regions], arguments.pool)
    rows = [row for row in sort_rows(trials.rows, arguments.sort) if row.failed or not arguments.failed]
    if arguments.where is not None:
        query = parse_query(arguments.where, trials.rows)
        rows = [row for row in rows if query.matches(row, places.get((row.slug, row.trial)))]
    if arguments.json:
        print(to_json(trials, rows, places))
    elif rows and places:
        title, columns = summary_line(trials), headings_with_places(list_headings(rows))
        print_long_table(title, columns, with_places(rows, to_rows(rows), places), when_narrow(rows))
    elif rows:
        print_long_table(summary_line(trials), list_headings(rows), to_rows(rows), when_narrow(rows))
    else:
        print(summary_line(trials))
    return 0


def _show_why(arguments: argparse.Namespace) -> int:
    import dataclasses
    import json

    from nnlib.util.columns import print_folded
    from regiondag.run.study_folder import find_run
    from regiondag.trials.why import say_why, tabulate_why
    from regiondag.util.terminal import print_table

    if arguments.failed or arguments.where is not None or arguments.sort != "trial":
        raise UsageError("--why tells of the trials that it names; --failed, --where and --sort choose from a list")
    found = list(_explain(find_run(arguments.run_directory), arguments.region, arguments.why))
    if arguments.json:
        print(json.dumps([dataclasses.asdict(one) for one in found], ensure_ascii=False))
        return 0
    for why in found:
        for line in say_why(why):
            print_folded(line)
        print_table(f"the values of trial {why.trial}", *tabulate_why(why))
    return 0


def _explain(folder: RunFolder, region: str | None, trials: str) -> Iterator[Why]:
    from regiondag.node.known_then import read_known_then
    from regiondag.run.journal import Journal
    from regiondag.run.lookup import find_region, find_region_or_node, find_trials
    from regiondag.run.manifest import read_manifest
    from regiondag.run.region_spec import read_spec
    from regiondag.trials.why import explain_choice

    regions = read_manifest(folder).regions
    if region is not None:
        slug = find_region(regions, region)
    elif len(regions) == 1:
        [slug] = regions
    else:
        slug, node = find_region_or_node(folder, regions, trials)
        if node is None:
            raise UsageError(f"--why {trials}: a trial is named by its node, such as {slug}_t0007, or REGION before it")
    place = folder.region(slug)
    source = read_spec(place.spec).served_by
    if source:
        raise UsageError(
            f"{regions[slug]} has no trials of its own: its search is that of {regions[source]}; ask there"
        )
    history = Journal(place.journal).read()
    for number in find_trials(regions, slug, [trials]):
        if number is None:
            won = f"; here {history.won[0]}" if history.won else ""
            raise UsageError(f"the final training has the values of the trial that won{won}; ask why that one")
        then = read_known_then(place, number)
        if then is None:
            proposed = ", ".join(map(str, sorted(history.proposals))) or "none yet"
            raise UsageError(f"trial {number} of {regions[slug]} was not proposed; those that were: {proposed}")
        yield explain_choice(then.spec, then.history, then.request, history, number)


def _places(folder: RunFolder, slugs: list[str], pool: str | None) -> Places:
    """Return where jobs are, nothing while no DAG is in progress; says so where that cannot be known."""
    from regiondag.condor.submit import was_submitted
    from regiondag.pool.pool import find_pool
    from regiondag.trials.control import places_of, queue_of

    if not was_submitted(folder, slugs):
        return {}
    try:
        return places_of(queue_of(folder, slugs, find_pool(pool)))
    except PoolError as error:
        tell(f"where jobs are is not known: {error}")
        return {}


def _importance(arguments: argparse.Namespace) -> int:
    import dataclasses
    import json

    from nnlib.util.terminal import show_progress
    from regiondag.trials.what_matters import explain_importance, tabulate_dependence, tabulate_importance
    from regiondag.util.terminal import print_long_table, print_table
    from regiondag.util.text import spell_out

    _, trials = _read(arguments)
    regions = [one for one in trials.regions if one.spec.search.nodes or arguments.region]
    found = []
    with show_progress("looking for what mattered") as progress:
        for done, region in enumerate(regions):
            progress(done, len(regions))
            found.append(explain_importance(region, dependence=len(regions) == 1))
    if arguments.json:
        print(json.dumps([dataclasses.asdict(one) for one in found], ensure_ascii=False))
        return 0
    print_long_table(f"{trials.study}: which hyperparameters mattered", *tabulate_importance(found))
    for one in found:
        for dependence in one.dependence:
            title = f"{one.region}: {one.metric} by {dependence.hyperparameter}, over the points of its trials"
            print_table(spell_out(title), *tabulate_dependence(dependence, one.metric))
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from nnlib.util.files import write_atomically
    from regiondag.trials.table import to_csv

    places = (arguments.optuna, arguments.csv, arguments.ro_crate, arguments.wfformat)
    if places == (None,) * len(places):
        legal = "--optuna URL|FILE, --csv FILE, --ro-crate FOLDER, --wfformat FILE"
        raise UsageError(f"nothing to export to; give one or more of {legal}")
    if arguments.ro_crate is not None or arguments.wfformat is not None:
        _export_provenance(arguments)
    if arguments.optuna is None and arguments.csv is None:
        return 0
    _, trials = _read(arguments)
    if arguments.csv == "-":
        print(to_csv(trials), end="")
    elif arguments.csv is not None:
        write_atomically(Path(arguments.csv), to_csv(trials))
        tell(f"{len(trials.rows)} trials: {arguments.csv}")
    if arguments.optuna is not None:
        _export_to_optuna(trials, arguments.optuna)
    return 0


def _export_provenance(arguments: argparse.Namespace) -> None:
    import json
    import time

    from nnlib.util.files import write_atomically
    from regiondag.run.study_folder import find_run
    from regiondag.trials.provenance import read_provenance
    from regiondag.trials.ro_crate import METADATA, UNSTATED, write_crate
    from regiondag.trials.wfformat import wfformat_of

    folder = find_run(arguments.run_directory)
    known = read_provenance(folder)
    if arguments.wfformat is not None:
        text = json.dumps(wfformat_of(known), indent=1, ensure_ascii=False) + "\n"
        if arguments.wfformat == "-":
            print(text, end="")
        else:
            write_atomically(Path(arguments.wfformat), text)
            tell(f"{len(known.tasks)} tasks: {arguments.wfformat}")
    if arguments.ro_crate is not None:
        crate = Path(arguments.ro_crate)
        count = write_crate(folder, known, crate, time.time(), arguments.license or UNSTATED)
        tell(f"{count} entities: {crate / METADATA}")


def _export_to_optuna(trials: RunTrials, target: str) -> None:
    from nnlib.util.terminal import show_progress
    from regiondag.trials.optuna_export import export, storage_name

    with show_progress("exporting") as progress:
        try:
            done = export(trials, target, progress)
        except OSError as error:  # Optuna's own writing names no file
            error.filename = error.filename or target
            raise
    tell(
        f"{len(trials.regions)} studies, {done.added} trials new, {done.ended} ended since the last export, "
        f"{done.known} there before: {storage_name(target)}"
    )


def _plot(arguments: argparse.Namespace) -> int:
    from nnlib.util.terminal import show_progress
    from regiondag.report.write import write_report
    from regiondag.trials.plots import draw_region

    folder, trials = _read(arguments)
    drawn = 0
    with show_progress("drawing") as progress:
        for done, region in enumerate(trials.regions):
            progress(done, len(trials.regions))
            pictures = draw_region(region, folder.pictures(region.spec.slug))
            drawn += len(pictures)
            if not pictures and region.spec.search.nodes:
                tell(f"{region.spec.name}: nothing to draw, none of its trials has ended yet")
    write_report(folder)  # which links them
    tell(f"{drawn} pictures")
    print(folder.report / "summary.md")
    return 0
