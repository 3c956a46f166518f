"""Tuners side by side on problems, from the record's runs and kept ones; those that are missing are made first.

    python -m scripts.bench.tuner.compare --methods bayes,tpe --seeds 6 --budget 60 --only-kinds categories
    python -m scripts.bench.tuner.compare --ours trial=../another/checkout --against bayes,tpe

The second compares our method as another checkout's code has it, by the name `trial`. Two such commands may run at the
same time. With --json FILE what was found stays, as the benchmark called like the file. Half of the problems are only
looked at with --held-out, and every look is noted in looks.txt.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path

from scripts.bench.common.harness import WORK, Row, as_text, columns, to_json
from scripts.bench.tuner.methods import OURS, RANDOM, TPE, Method, methods, ours
from scripts.bench.tuner.problems import is_held_out, names, problem
from scripts.bench.tuner.record import RECORD, Record
from scripts.bench.tuner.report import Cells, classes, groups_of, medians, standings, values_of
from scripts.bench.tuner.runs import Key, Run, Runs, fingerprint
from scripts.bench.tuner.stats import FIRST_BUDGET, Ground, compare, ground
from scripts.bench.tuner.tuners.face import BUDGETS, MODES, ROUNDS

KEPT = WORK / "tuner_public"  # the benchmark's, too
LOOKS = Path(__file__).with_name("looks.txt")


def main(argv: Sequence[str] | None = None) -> int:
    """Make what is missing and print the tables."""
    asked = options(argv)
    known = {**methods(), **dict(asked.ours)}
    tuners = list(dict.fromkeys([*asked.methods, *dict(asked.ours), RANDOM]))  # random says what is much on a problem
    if unknown := set(tuners) - set(known):
        raise SystemExit(f"no tuner is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = choose(asked.problems, asked.only_kinds, asked.only_source, held_out=asked.held_out)
    if not chosen:
        raise SystemExit(f"no problem is left; there are {', '.join(names())}")
    if asked.held_out:
        note_look(f"{asked.mode}, {asked.budget} trials, {asked.seeds} seeds: {', '.join(tuners)}")
    keys = [Key(p, t, asked.mode, s, asked.budget) for s in range(asked.seeds) for t in tuners for p in chosen]
    record = None if asked.held_out else open_record()
    runs = runs_of(keys, known, asked.kept, make=not asked.no_runs, record=record)
    values = values_of(runs)
    values = {name: found for name, found in values.items() if RANDOM in found and FIRST_BUDGET in found[RANDOM]}
    if not values:
        raise SystemExit(f"no run is kept of {asked.budget} trials in {asked.mode}; without --no-runs they are made")
    optima = {name: problem(name).optimum for name in values}
    marks = sorted({*(b for b in BUDGETS if b < asked.budget), asked.budget})
    grounds = {f"{asked.mode}, {mark} trials": ground(values, optima, mark, RANDOM) for mark in marks}
    there = [tuner for tuner in tuners if any(tuner in found for found in values.values())]
    against = [peer for peer in asked.against if peer in there]
    show(grounds, sorted(values), there, against, markdown=asked.markdown)
    if asked.json:
        versions = {tuner: known[tuner].version for tuner in there}
        asked.json.write_text(as_text(results(asked.json.stem, grounds, versions, against)), encoding="utf-8")
    return 0


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--methods", type=_words, default=[OURS, TPE], metavar="NAME,..", help=", ".join(methods()))
    parser.add_argument("--ours", type=_ours, action="append", default=[], metavar="NAME=CHECKOUT")
    parser.add_argument("--against", type=_words, default=[TPE], metavar="NAME,..", help="whose regret is the measure")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--budget", type=int, choices=BUDGETS, default=BUDGETS[1], help="trials of a run")
    parser.add_argument("--mode", choices=MODES, default=ROUNDS)
    parser.add_argument("--problems", type=_words, metavar="NAME,..", help="only these of the half that is chosen")
    parser.add_argument("--only-kinds", type=_words, metavar="KIND,..", help="problems that have all of these")
    parser.add_argument("--only-source", metavar="SOURCE")
    parser.add_argument("--held-out", action="store_true", help="the other half of the problems; the look is noted")
    parser.add_argument("--no-runs", action="store_true", help="only what is kept already")
    parser.add_argument("--kept", type=Path, default=KEPT, metavar="FOLDER", help=f"of the runs; else {KEPT}")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found to FILE")
    return parser.parse_args(argv)


def _words(text: str) -> list[str]:
    return text.split(",")


def _ours(text: str) -> tuple[str, Method]:
    name, _, checkout = text.partition("=")
    if not (name and checkout and (Path(checkout) / "workflows/tuning").is_dir()) or name in methods():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=CHECKOUT with a new name and a checkout of the project")
    return name, ours(name, Path(checkout))


def choose(
    only: Collection[str] | None, kinds: Collection[str] | None, source: str | None, *, held_out: bool
) -> list[str]:
    """Return the names of the problems of one half that fit."""
    return [
        name
        for name in names()
        if is_held_out(name) == held_out
        and (only is None or name in only)
        and (kinds is None or set(kinds) <= problem(name).kinds)
        and (source is None or problem(name).source == source)
    ]


def runs_of(
    keys: Sequence[Key], known: dict[str, Method], folder: Path, *, make: bool = True, record: Record | None = None
) -> list[Run]:
    """Return the runs of the record and those that are kept, after those that were missing were made.

    Where none is made a kept run may be longer than the record's.
    """
    found = {key: run for key in keys if record and (run := record.find(key))}
    with Runs(folder, known) as runs:
        if make:
            made = runs.kept.fill([key for key in keys if key not in found])
        else:
            kept = [run for key in keys if (run := runs.kept.find(key))]
            made = [run for run in kept if run.key not in found or max(run.best) > max(found[run.key].best)]
    found |= {run.key: run for run in made}
    return [found[key] for key in keys if key in found]


def open_record() -> Record:
    """Return the repository's record of runs on the problems for development."""
    return Record(RECORD, {name: method.version for name, method in methods().items()}, fingerprint)


def note_look(what: str) -> None:
    """Add a line to the looks at the held-out problems."""
    with LOOKS.open("a", encoding="utf-8") as file:
        file.write(f"{time.strftime('%Y-%m-%d')} {what}\n")


def count_looks() -> int:
    """Return how often the held-out problems were looked at."""
    return len(LOOKS.read_text(encoding="utf-8").splitlines()) if LOOKS.exists() else 0


def show(
    grounds: Mapping[str, Ground],
    names: Sequence[str],
    tuners: Sequence[str],
    against: Sequence[str],
    *,
    markdown: bool,
) -> None:
    """Print the tables of each budget."""
    text = as_markdown if markdown else columns
    for title, found in grounds.items():
        easy = sorted(set(names) - set(found.regrets))
        print(f"\n{title}, {len(found.regrets)} problems, {_count_seeds(found)} seeds", end="")
        print(f"; solved by random search: {', '.join(easy)}" if easy else "", end="\n\n")
        for cells in tables(found, tuners, against).values():
            print(text(cells), end="\n\n")
    print("Median regrets, as parts of random search's after 28 trials\n", text(medians(found, tuners)), sep="\n")


def tables(found: Ground, tuners: Sequence[str], against: Sequence[str]) -> dict[str, Cells]:
    """Return how tuners stand, and by classes of problems beside each peer."""
    groups = groups_of({n: problem(n).kinds for n in found.regrets}, {n: problem(n).source for n in found.regrets})
    beside = {f"classes beside {peer}": classes(found, tuners, peer, groups) for peer in against}
    return {"standings": standings(found, tuners, against, RANDOM), **beside}


def results(
    bench: str, grounds: Mapping[str, Ground], versions: Mapping[str, str], against: Sequence[str]
) -> dict[str, object]:
    """Return in the form of a benchmark's results how each tuner but random search stands beside each peer."""
    rows, by_problem = [], {}
    for (title, found), tuner, peer in product(grounds.items(), versions, against):
        beside = compare(found, tuner, peer) if tuner not in (peer, RANDOM) else None
        if beside:
            name = f"regret as a part of the peer's: {tuner} (peer: {peer}), {title}"
            rows.append(Row(name, beside.ratios[0].value, 1.0, "", note=beside.describe()))
            by_problem[name] = {where: round(ratio, 3) for where, ratio in beside.by_problem.items()}
    return {
        **to_json(bench, rows),
        "tuners": dict(versions),
        "seeds": {title: _count_seeds(found) for title, found in grounds.items()},
        "notes": {row.workload: row.note for row in rows},
        "by_problem": by_problem,
        "tables": {title: tables(found, list(versions), against) for title, found in grounds.items()},
    }


def _count_seeds(found: Ground) -> int:
    return max(len(seeds) for regrets in found.regrets.values() for seeds in regrets.values())


def as_markdown(cells: Cells) -> str:
    """Return cells as a table of Markdown.

    >>> as_markdown([["tuner", "rank"], ["tpe", "2.00"]])
    '| tuner | rank |\\n|---|---|\\n| tpe | 2.00 |'
    """
    head, *lines = (f"| {' | '.join(line)} |" for line in cells)
    return "\n".join([head, "|" + "---|" * len(cells[0]), *lines])


if __name__ == "__main__":
    sys.exit(main())
