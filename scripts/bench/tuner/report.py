"""What the comparisons say, as cells of tables: pure, from a `Ground` of one mode and budget."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

from scripts.bench.common.harness import number
from scripts.bench.tuner.runs import Run
from scripts.bench.tuner.stats import Comparison, Ground, Values, compare, gather, mean_ranks, worse_than

Cells = list[list[str]]  # the first line has the headings


def values_of(runs: Iterable[Run]) -> dict[str, Values]:
    """Return the true values of runs of one mode: by problem, tuner, budget and seed."""
    return gather((run.key.problem, run.key.method, run.key.seed, run.best) for run in runs)


def standings(found: Ground, tuners: Sequence[str], peers: Sequence[str], random: str) -> Cells:
    """Return a line for each tuner, best rank first: ranks, how it stands beside some peers, where random is better."""
    ranks = mean_ranks(found, tuners)
    lines: Cells = [["tuner", "rank of medians", "of runs"]]
    for peer in peers:
        lines[0] += [f"regret / {peer}'s", "90 %", "floor .01", "won:lost", "claim"]
    lines[0].append(f"surely worse than {random} on")
    for tuner in sorted(tuners, key=lambda tuner: ranks.get(tuner, (0.0, 0.0))):
        line = [tuner, *(f"{rank:.2f}" for rank in ranks.get(tuner, ()))]
        for peer in peers:
            line += _beside(compare(found, tuner, peer) if tuner != peer else None)
        lines.append([*line, ", ".join(worse_than(found, tuner, random)) or "-"])
    return lines


def _beside(found: Comparison | None) -> list[str]:
    if found is None:
        return ["-"] * 5
    fine, coarse = found.ratios
    interval = f"{fine.low:.2f} to {fine.high:.2f}"
    return [f"{fine.value:.2f}", interval, f"{coarse.value:.2f}", f"{found.wins}:{found.losses}", found.claim]


def classes(found: Ground, tuners: Sequence[str], peer: str, groups: Mapping[str, Collection[str]]) -> Cells:
    """Return each tuner's regret as a part of a peer's on some groups of problems, and on the problem worst for it."""
    there = {name: set(problems) & set(found.regrets) for name, problems in groups.items()}
    there = {name: problems for name, problems in there.items() if problems}
    lines = [["tuner", *(f"{name} ({len(problems)})" for name, problems in there.items()), f"worst beside {peer}"]]
    for tuner in tuners:
        whole = compare(found, tuner, peer) if tuner != peer else None
        if whole:
            parts = (compare(found.only(problems), tuner, peer) for problems in there.values())
            name, ratio = whole.worst
            lines.append([tuner, *map(_cell, parts), f"{name} {ratio:.2f}"])
    return lines


def _cell(found: Comparison | None) -> str:
    if found is None:
        return "-"
    fine, coarse = found.ratios
    if found.claim == "none":
        return f"{fine.value:.2f}, {coarse.value:.2f}: none"
    return f"{fine.value:.2f} [{fine.low:.2f}, {fine.high:.2f}]"


def medians(found: Ground, tuners: Sequence[str]) -> Cells:
    """Return each tuner's median regret on each problem, as a part of random search's after 28."""
    lines = [["problem", *tuners]]
    for name, regrets in found.regrets.items():
        parts = (statistics.median(regrets[t].values()) / found.scales[name] if t in regrets else None for t in tuners)
        lines.append([name, *map(number, parts)])
    return lines


def groups_of(kinds: Mapping[str, Collection[str]], sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the problems of each kind, those without categories, then those of each source."""
    found: dict[str, list[str]] = {}
    for name in ("numbers", "categories", "conditions", "noise", "failures", "constraints"):
        found[name] = [problem for problem, of in kinds.items() if name in of]
    found["no categories"] = [problem for problem, of in kinds.items() if "categories" not in of]
    for problem, source in sources.items():
        found.setdefault(f"from {source}", []).append(problem)
    return found
