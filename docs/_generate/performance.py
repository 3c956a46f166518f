"""Tables of measured figures, and those of the README and of the tuner's page, from the benchmarks' results files.

`python -m docs._generate.performance` writes the README's and the tuner's; a test fails where it was forgotten.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from docs._generate import tuner
from docs._generate.markdown import table
from scripts.bench.common.harness import HEADINGS, cells, number

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "scripts" / "bench"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
PAGE = "docs/performance.md"
NOT_SHOWN = {
    "costs_predicted",
    "kernels",
    "level3_predicted",
    "pictures_predicted",
}  # what a compiler says, and what a model does: nothing is measured

Results = Mapping[str, Mapping[str, Any]]  # benchmark -> its results file


def read_results(folder: Path = BENCH / "results") -> dict[str, dict[str, Any]]:
    """Return what full runs of the benchmarks left, by benchmark."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return {results["bench"]: results for results in found}


def benchmarks(folder: Path = BENCH) -> list[str]:
    """Return the names of the benchmarks in a folder: modules that say `BENCH = "name"`."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py")))
    return [found[1] for text in texts if (found := re.search(r'^BENCH = "([\w-]+)"$', text, re.MULTILINE))]


def render_performance(names: Iterable[str], results: Results) -> str:
    """Return a section for each benchmark: its table, when and where it was measured, and with which versions."""
    return "\n\n".join(_section(name, results.get(name), results) for name in sorted({*names, *results} - NOT_SHOWN))


def _list_kinds(name: str, kinds: Iterable[str]) -> str:
    """Return links to the sections of a benchmark that has one for each kind of machine."""
    found = [kind for kind in sorted(kinds) if kind.startswith(f"{name}-")]
    return "On " + ", ".join(f"[{kind.removeprefix(f'{name}-')}](#{kind})" for kind in found) if found else ""


def _section(name: str, results: Mapping[str, Any] | None, kinds: Iterable[str]) -> str:
    if results is None:
        return f"## {name}\n\n{_list_kinds(name, kinds) or _not_measured(name)}"
    rows = ([cell.replace("|", r"\|") for cell in _cells(row)] for row in results["rows"])
    versions = ", ".join(f"{package} {version}" for package, version in results["versions"].items())
    return f"## {name}\n\n{table(HEADINGS, rows)}\n\n{results['date']}, {results['machine']}; {versions}."


def _not_measured(name: str) -> str:
    """Return what a section says without results: on a GPU, what the goals are."""
    if name != "gpu":
        return "not measured"
    from scripts.bench.gpu.training import unmeasured  # imports NumPy, which the README's figures do without

    return f"not measured yet. The goals of training:\n\n{table(HEADINGS, map(cells, unmeasured()))}"


def _cells(row: Mapping[str, Any]) -> list[str]:
    """Return a row as `harness.cells` does, with the ratio of figures that were not rounded yet."""
    ours = "not measured" if row["ours"] is None else number(row["ours"], row["unit"])
    goal = f"ratio {number(row['goal'])}" if row.get("goal_is_ratio") else number(row["goal"], row["unit"])
    met = {None: "-", True: "yes", False: "NO"}[row["met"]]
    return [row["workload"], ours, number(row["peer"], row["unit"]), number(row["ratio"]), goal, met]


def render_figures(results: Results) -> str:
    """Return the README's figures, a line each."""

    def figure(bench: str, workload: str, side: str = "ours") -> str:
        rows = [row for row in results[bench]["rows"] if row["workload"].startswith(workload)]
        row = min(rows, key=lambda row: len(row["workload"]))  # the shortest says what the others are a part of
        return number(row[side], row["unit"])

    regret = "regret as a part of the peer's: Optuna's TPE, rounds, 60 trials"
    million = "generate, 1,000 regions x 100 rounds x 10 = 1,000,000 trials"
    pairs, tiles = "Adam, bf16 on AVX-512 (peer", "Adam, bf16 on AMX (peer"
    zen, amx = "train_bf16-amd-zen5", "train_bf16-intel-amx"
    lists = "ndcg@20, all countries (peer: floor)"
    lines = (
        f"Better lists: NDCG@20 {figure('study', lists)} for customers of 41 countries, recent popularity "
        f"{figure('study', lists, 'peer')} ([study]({PAGE}#study)); Recall@20 "
        f"{figure('quality_gowalla', 'gowalla: Recall@20, blend')} on Gowalla, "
        f"{figure('quality_amazon-cds', 'amazon-cds: Recall@20, blend')} on Amazon-CDs "
        f"([quality_gowalla]({PAGE}#quality_gowalla))",
        f"Nothing is lost: {figure('faults', 'faults injected')} of {figure('faults', 'kinds')} in real studies, "
        f"{figure('faults', 'trials and final trainings lost')} lost, "
        f"{figure('faults', 'trials and final trainings counted twice')} counted twice ([faults]({PAGE}#faults))",
        f"Slots train: {figure('throughput', 'slots training')} of their time with trials of a minute "
        f"([throughput]({PAGE}#throughput))",
        f"Better points: after 60 trials what is missing to the best known point is "
        f"{figure('tuner_held_out', regret)} of what Optuna's TPE misses, on "
        f"{len(results['tuner_held_out']['problems'])} public problems that were looked at once "
        f"([tuner_held_out]({PAGE}#tuner_held_out))",
        f"Large studies: a graph of a million trials in {figure('orchestration', million)}, with "
        f"{figure('orchestration', million + ': peak memory')} of memory ([orchestration]({PAGE}#orchestration))",
        f"Training on one thread of a processor, in bfloat16: a step of a wide autoencoder takes {figure(zen, pairs)} "
        f"on an AMD EPYC (Zen 5), in PyTorch's fastest way {figure(zen, pairs, 'peer')}; on an Intel Xeon with AMX "
        f"{figure(amx, tiles)}, in PyTorch's {figure(amx, tiles, 'peer')} ([train_bf16]({PAGE}#train_bf16))",
    )
    return "\n".join(f"- {line}" for line in lines)


def insert_figures(readme: str, text: str) -> str:
    """Return `readme` with `text` between the markers; ValueError if they are not there once, in this order."""
    head, begin, rest = readme.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in head + tail:
        raise ValueError(f"needs {BEGIN} and {END} once each, in this order")
    return f"{head}{BEGIN}\n{text}\n{END}{tail}"


def main() -> int:
    """Write the figures of the README and of the tuner's page."""
    results = read_results()
    for page, text in (("README.md", render_figures(results)), (tuner.PAGE, tuner.render_tuner(results))):
        file = ROOT / page
        file.write_text(insert_figures(file.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
