"""The tuner's figures on its page, from the results files of its benchmark.

`python -m docs._generate.performance` writes them with the README's; a test fails where it was forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import fill
from typing import Any

from docs._generate.markdown import table

PAGE = "docs/concepts/tuner.md"
PUBLIC, HELD_OUT, VARIANTS = "tuner_public", "tuner_held_out", "tuner_variants"
MARKS = (28, 60)
REGRET = "regret as a part of the peer's: "
TPE = "Optuna's TPE"

TRIED = {  # tuners of the file of variants
    "quarter": "losses linear below the lower quartile instead of the median",
    "parzen": "one proposal in four by the ratio of two Parzen densities",
    "lengths": "expected length scales by the hyperparameters that a point has",
    "arcs": "numbers with a condition on an arc around where they are absent",
}

_RANK = re.compile(r"mean rank of (?:all|the) (\d+) tuners.*")
_NOTE = re.compile(r"(\d+) pairs.* 90 % of the ratio: ([\d.]+) to ([\d.]+); with floors ten times as high (.+?); claim")
_CLASS = re.compile(r"([\d.]+) \[([\d.]+), ([\d.]+)\]")

Results = Mapping[str, Mapping[str, Any]]  # benchmark -> its results file


def render_tuner(results: Results) -> str:
    """Return the tables of what our tuner misses beside TPE and beside all others, and its rank."""
    found, held_out = results[PUBLIC], results[HELD_OUT]
    known = [_count(held_out, "rounds, 28"), _count(found, "rounds, 28")]
    lines = [
        (f"{known[0]} held out ([{HELD_OUT}](../performance.md#{HELD_OUT}))", _beside_tpe(held_out, "rounds")),
        (f"{known[1]} for development ([{PUBLIC}](../performance.md#{PUBLIC}))", _beside_tpe(found, "rounds")),
        *_classes(found),
        (f"all {known[1]}, in lanes, {_seeds(found, 'lanes, 28')} seeds", _beside_tpe(found, "lanes")),
    ]
    after = [f"after {mark}{' trials' * (mark == MARKS[0])}" for mark in MARKS]
    coarse = " and ".join(_coarse(found, mark) for mark in MARKS)
    ours, next_best, tuners, runs = zip(*(_rank(found, mark) for mark in MARKS), strict=True)
    paragraphs = (
        table(("problems", *after), ((name, *cells) for name, cells in lines)),
        f"After 120 trials ({_seeds(found, 'rounds, 120')} seeds) it is {_ratio(found, TPE, 'rounds, 120 trials')}. "
        "Here differences count from a thousandth of what random search misses after 28 trials, which exaggerates "
        f"where losses move in steps; from a hundredth on the {known[1]} have {coarse}.",
        "Beside the others, in rounds, on all of the problems for development; the slow ones ran less often:",
        table(("beside", "seeds", "pairs", *after), _peers(found, known[1])),
        f"Of all {tuners[0]} tuners, by the {runs[0] // known[1]} seeds that all of them ran, its mean rank is "
        f"{ours[0]} after 28 trials and {ours[1]} after 60, the best of the others' {next_best[0]} and {next_best[1]}.",
        "What was tried instead, as parts of what it misses now, with the second floor a hundredth "
        f"([{VARIANTS}](../performance.md#{VARIANTS})):",
        table(("variant", "problems", "pairs", *after, *(f"floor .01, {mark}" for mark in MARKS)), _variants(results)),
    )
    return "\n\n".join(text if text.startswith("|") else fill(text, 120) for text in paragraphs)


def _beside_tpe(results: Mapping[str, Any], mode: str) -> list[str]:
    return [_ratio(results, TPE, f"{mode}, {mark} trials") for mark in MARKS]


def _ratio(results: Mapping[str, Any], peer: str, where: str) -> str:
    workload = f"{REGRET}{peer}, {where}"
    [value] = [row["ours"] for row in results["rows"] if row["workload"] == workload]
    _, low, high, _ = _note(results, workload)
    return f"{_part(value)} ({_part(low)} to {_part(high)})"


def _coarse(results: Mapping[str, Any], mark: int) -> str:
    return _larger(results, f"{REGRET}{TPE}, rounds, {mark} trials")


def _larger(results: Mapping[str, Any], workload: str) -> str:
    *_, coarse = _note(results, workload)
    return re.sub(r"[\d.]+", lambda figure: _part(figure[0]), coarse)


def _note(results: Mapping[str, Any], workload: str) -> tuple[str, ...]:
    note = _NOTE.match(results["notes"][workload])
    if note is None:
        raise ValueError(f"{workload}: its note has no interval: {results['notes'][workload]}")
    return note.groups()


def _classes(results: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return lines for the kinds of problems that are harder than others, or are the tuner's weak side."""
    headings, ours = zip(*(_class_line(results, mark) for mark in MARKS), strict=True)
    said = {
        "categories": "of these {} with categories",
        "conditions": "of these {} with conditions",
        "failures": "of these {} where some trials fail",
        "from sklearn": "of these {} trainings of scikit-learn with spaces of our own",
    }
    lines = []
    for kind, text in said.items():
        at = next(number for number, heading in enumerate(headings[0]) if heading.startswith(f"{kind} ("))
        cells = [_CLASS.sub(lambda f: f"{_part(f[1])} ({_part(f[2])} to {_part(f[3])})", line[at]) for line in ours]
        lines.append((text.format(headings[0][at].rpartition("(")[2].rstrip(")")), cells))
    return lines


def _class_line(results: Mapping[str, Any], mark: int) -> tuple[list[str], list[str]]:
    headings, *lines = results["tables"][f"rounds, {mark}"]["classes beside tpe"]
    return headings, next(line for line in lines if line[0] == "bayes")


def _peers(results: Mapping[str, Any], problems: int) -> list[list[str]]:
    """Return a line for each peer but TPE and random search, the strongest at the last mark first."""
    end = f", rounds, {MARKS[-1]} trials"
    rows = [row for row in results["rows"] if row["workload"].startswith(REGRET) and row["workload"].endswith(end)]
    lines = []
    for row in sorted(rows, key=lambda row: -row["ours"]):
        peer = row["workload"].removeprefix(REGRET).removesuffix(end)
        pairs = int(_note(results, row["workload"])[0])
        if peer not in ("random", TPE):
            ratios = [_ratio(results, peer, f"rounds, {mark} trials") for mark in MARKS]
            lines.append([peer, f"{pairs / problems:g}", f"{pairs:,}", *ratios])
    return lines


def _variants(results: Results) -> list[list[str]]:
    """Return a line for each variant, with the smaller floor and with the larger one."""
    found, lines = results[VARIANTS], []
    for name, title in TRIED.items():
        where = [f"{name} (peer: bayes), rounds, {mark} trials" for mark in MARKS]
        pairs, *_ = _note(found, REGRET + where[0])
        problems = len(found["by_problem"][REGRET + where[0]])
        fine = [_ratio(found, f"{name} (peer: bayes)", f"rounds, {mark} trials") for mark in MARKS]
        lines.append([title, str(problems), pairs, *fine, *(_larger(found, REGRET + one) for one in where)])
    return lines


def _rank(results: Mapping[str, Any], mark: int) -> tuple[str, str, int, int]:
    """Return our mean rank among all tuners and the best of the others, how many there are, and of how many runs."""
    rows = [(row, _RANK.fullmatch(row["workload"])) for row in results["rows"]]
    ranks = [(row, found) for row, found in rows if found and row["workload"].endswith(f": rounds, {mark} trials")]
    row, found = ranks[-1]  # of all; only where all ran as often there is no other
    runs = int(results["notes"][row["workload"]].split()[0])
    return f"{row['ours']:.1f}", f"{row['peer']:.1f}", int(found[1]), runs


def _count(results: Mapping[str, Any], where: str) -> int:
    """Return on how many problems tuners are compared: of those that random search solves nothing is told."""
    note = results["notes"][f"{REGRET}{TPE}, {where} trials"]
    return int(note.split()[0]) // _seeds(results, where)


def _seeds(results: Mapping[str, Any], where: str) -> int:
    return int(min(results["seeds"][where]["bayes"]))


def _part(value: float | str) -> str:
    """Return a ratio in two digits, without the 0 before the point.

    >>> _part(0.227), _part("1.02")
    ('.23', '1.02')
    """
    return f"{float(value):.2f}".removeprefix("0")
