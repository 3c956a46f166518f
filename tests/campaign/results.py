"""What a campaign says of its studies: rows, a table by kind of fault, and what is kept."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.bench.common.harness import RESULTS, Row, columns, table, to_json
from tests.campaign.checks import NOT_ENDED, Checked, Studied, studied_from_json

FAULTS, KINDS = 400, 45  # of a whole campaign, at least
SLOWEST = 10
SERIES = {"trixie": "HTCondor 23.9", "forky": "HTCondor 25.14"}
# Studies of the kept campaign that do not count: what there was, and why. Each was then run again with the same faults.
SET_ASIDE = {
    "faults": (
        "study 16, on HTCondor 23.9, 15 faults: it did not end. A clock that was to jump ahead by 5 minutes jumped "
        "back by 25: an earlier fault had moved it by 30, and jumps were counted from the machine's own clock. "
        "HTCondor's timers stand still until a clock is again where it was",
        "study 21, on HTCondor 25.14, 13 faults: it did not end. A data file was corrupt for 4 s, and the machine kept "
        "it for all jobs of its region; each of them failed, two trials 31 times. Mended: where inputs came corrupt, "
        "the next job now brings its own",
        "study 21 again, 13 faults: it did not end. A job that a person had held and released 3 s later, while "
        "HTCondor 25.14 still sought the machine that it had run on, was held again when that was given up. The "
        "campaign now looks again and releases it, as a person would",
    )
}

# What was behind the longest standstills of the kept campaign, read from what hit those studies and from their logs.
EXPLAINED = {
    "faults": {
        5: "The clock went back a minute, for which HTCondor's timers stand still, and ten more faults followed.",
        35: "Twelve faults, most of them DAGMan's: its node log deleted three times, held, killed, removed, rebooted.",
        30: "Eleven faults in two minutes; a job whose connections and pool were gone had its lease to run out.",
        37: "Twelve faults, most of them DAGMan's: it lost its node log three times, and was submitted again twice.",
        6: "The clock went back a minute just before: no negotiator and no DAGMan did anything until it had caught up.",
        31: "Ten faults, most of them DAGMan's or the schedd's; on 25.14 a DAGMan that failed rests for 10 s.",
        27: "Ten faults in a row; a job that a full disk had put on hold waits a minute for its release.",
        20: "The worker was killed between two removals of the DAG, the manager's disk full: a lease had to run out.",
        1: "The clock went back a minute, and shadow and starter were killed: a new match had to wait for the clock.",
        18: "A power cut, a restarted schedd and a killed procd: a job lost its machine, and had its lease to run out.",
    }
}


@dataclass(frozen=True)
class KindCount:
    """How the studies ended that faults of one kind had hit; a study counts for each kind that hit it."""

    kind: str
    injected: int
    studies: int
    by_itself: int
    resubmitted: int
    not_ended: int
    lost: int
    doubled: int
    torn: int
    other_champions: int


def count_kinds(studies: Sequence[Studied], kinds: Sequence[str]) -> list[KindCount]:
    """Return a line for each kind."""
    counts = []
    for kind in kinds:
        hit = [study for study in studies if any(name == kind for name, _ in study.hit)]
        ended = [study for study in hit if study.ended]
        checked = sum((study.checked for study in hit), Checked())
        injected = sum(name == kind for study in studies for name, _ in study.hit)
        again = sum(study.resubmitted > 0 for study in ended)
        wrong = (checked.lost, checked.doubled, checked.torn, checked.other_champions)
        counts.append(KindCount(kind, injected, len(hit), len(ended) - again, again, len(hit) - len(ended), *wrong))
    return counts


def kind_table(studies: Sequence[Studied], kinds: Sequence[str]) -> str:
    """Return how the studies ended, by the kinds of faults that were injected."""
    counts = [asdict(count) for count in count_kinds(studies, kinds) if count.injected]
    heads = [name.replace("_", " ") for name in KindCount.__dataclass_fields__]
    return columns([heads, *([str(value) for value in count.values()] for count in counts)])


def deviations(studies: Sequence[Studied], seed: int) -> list[str]:
    """Return a paragraph for each study that is not as it should be, with what repeats it."""
    return [
        f"study {study.study} (repeat: --seed {seed} --study {study.study}): "
        + "; ".join([*study.problems, *study.checked.notes])
        + f". Faults: {', '.join(f'{kind} ({without_folders(what)})' for kind, what in study.hit)}"
        for study in studies
        if study.deviates
    ]


def without_folders(what: str) -> str:
    """Return what was hit without the paths of the machine on which it was."""
    return " ".join(word for word in what.split() if not word.startswith("/") and "=" not in word)[:80].strip()


def slowest(studies: Sequence[Studied], explained: Mapping[int, str], count: int = SLOWEST) -> list[dict[str, Any]]:
    """Return the longest times between a fault and the next line of a journal, one of a study, and why."""
    found: list[dict[str, Any]] = [
        {
            "kind": kind,
            "study": study.study,
            "suite": study.suite,
            "seconds": seconds,
            "why": " ".join([*([explained[study.study]] if study.study in explained else []), why]),
        }
        for study in studies
        for kind, seconds, why in sorted(study.recoveries, key=lambda recovery: -recovery[1])[:1]
    ]
    return sorted(found, key=lambda one: -one["seconds"])[:count]


def rows(studies: Sequence[Studied], goals: bool) -> list[Row]:
    """Return the campaign's rows."""
    if not studies:
        return [Row("faults", None, None, "faults", note="no study was run")]
    checked = sum((study.checked for study in studies), Checked())
    hit = [kind for study in studies for kind, _ in study.hit]
    cases, pairs = sum(study.cases for study in studies), sum(study.pairs for study in studies)
    ended = [study for study in studies if study.ended]
    again = sum(study.resubmitted > 0 for study in ended)
    other = sum(any(not text.startswith(NOT_ENDED) for text in study.problems) for study in studies)
    suites = Counter(study.suite for study in studies if study.suite)
    trials, least = "trials and final trainings", (FAULTS, KINDS) if goals else (None, None)
    else_wrong = "studies with something else wrong (processes or jobs left, no report, a command refused)"
    return [
        Row(f"faults injected into {len(studies)} studies", len(hit), None, "faults", least[0], higher=True),
        Row("kinds of faults", len(set(hit)), None, "kinds", least[1], higher=True),
        Row("cases of two faults at once", pairs, None, "cases"),
        Row("cases of one fault or two", cases, None, "cases"),
        *(Row(f"studies on {SERIES[suite]}", count, None, "studies") for suite, count in sorted(suites.items())),
        Row("studies that ended by themselves", len(ended) - again, None, "studies"),
        Row("studies that ended once submitted again", again, None, "studies"),
        Row("studies that did not end", len(studies) - len(ended), None, "studies", 0),
        Row(f"{trials} lost", checked.lost, None, "trials", 0),
        Row(f"{trials} counted twice", checked.doubled, None, "trials", 0),
        Row("torn lines in journals", checked.torn, None, "lines", 0),
        Row("champions other than the undisturbed study's", checked.other_champions, None, "champions", 0),
        Row(else_wrong, other, None, "studies", 0),
    ]


def read_kept(path: Path | None) -> dict[int, Studied]:
    """Return the studies of an interrupted campaign."""
    if path is None or not path.exists():
        return {}
    found = [studied_from_json(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return {study.study: study for study in found}


def note(found: Studied, path: Path | None) -> None:
    """Say how a study ended, and keep it."""
    how = "DEVIATES" if found.deviates else f"as undisturbed{', submitted again' * bool(found.resubmitted)}"
    print(f"study {found.study}: {len(found.hit)} faults, {found.seconds:.0f} s, {how}", file=sys.stderr, flush=True)
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(found)) + "\n")


def finish(
    bench: str,
    studies: Sequence[Studied],
    kinds: Mapping[str, str],
    seed: int,
    whole: bool,
    goals: bool,
    file: Path | None,
) -> int:
    """Print the tables, keep the results of a whole campaign; 1 if a goal is missed."""
    found, told = rows(studies, goals), deviations(studies, seed)
    print(table(found), kind_table(studies, list(kinds)), *told, sep="\n\n")
    result = to_json(bench, found) | {
        "seed": seed,
        "kinds": [{**asdict(count), "what": kinds[count.kind]} for count in count_kinds(studies, list(kinds))],
        "deviations": told,
        "slowest": slowest(studies, EXPLAINED.get(bench, {})),
        "set_aside": SET_ASIDE.get(bench, ()),
        "missed": sorted(kind for study in studies for kind in study.missed),
    }
    for place in (file, RESULTS / f"{bench}.json" if whole else None):
        if place:
            place.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(any(row.met is False or row.ours is None for row in found))
