"""A shop in seven countries: what a study serves, beside the best simple method, and beside a search of each country.

    python -m scripts.bench.quality.markets --data FOLDER

XMarket's electronics, reviews of customers with five or more, by three protocols: `last` asks for each customer's last
review, as its papers do, `day` for his last day with something new, `time` for what came in the last year. Two defaults
were found by looking at `last`: EASE whose regions weigh more as a first point, and what a blend has to be worth.
Differences have 95 % intervals of paired customers.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import scored_metrics
from regiondag.champions.chance import estimate
from regiondag.node import choice
from regiondag.run.layout import RunFolder
from regiondag.run.region_spec import read_spec
from regiondag.study.model import POOLED
from scripts.bench.common.harness import Row, finish, measure_groups, work_area
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.manager.pools import pool_up
from scripts.bench.quality.runs import SLOTS, SUITE, call, wait_for_run

RESULTS = "markets"
POOL = "bench-markets"
METRIC = "ndcg@10"
MARKETS = ("ca", "de", "fr", "in", "jp", "mx", "uk")
PROTOCOLS = {
    "last": "{column: part}",
    "day": "{by: leave-one-out, min_history: 1}",
    "time": "{test: 365d, validate: 365d}",
}
PEERS = {"simple": "the best simple method", "floor": "recent popularity", "bestsellers": "bestsellers"}
STUDY = """\
data:
  purchases: reviews.csv
  columns: {{region: country, time: date}}
  split: {split}
metric: {metric}
job: {{gpus: 1, cpus: 1, memory: 4GB, disk: 1GB, deadline: 1h}}
"""
LEAST = 10  # test customers of a country that counts

Scores = Mapping[str, NDArray[np.float64]]  # model -> (customers,)


@dataclass(frozen=True)
class Tested:
    """What one run's tests found, a country a time."""

    by_market: Mapping[str, Scores]

    def mean(self, model: str) -> float:
        """Return the mean over countries of their customers' means."""
        return float(np.mean([np.nanmean(scores[model]) for scores in self.by_market.values()]))


def write_table(path: Path, folder: Path) -> None:
    """Write the reviews of all countries as one table; the last two of each customer say so."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["country", "customer", "item", "date", "part"])
        for market in MARKETS:
            for customer, reviews in read_market(folder / f"{market}_5core.txt").items():
                parts = ["train"] * (len(reviews) - 2) + ["valid", "test"]
                writer.writerows(
                    (market, customer, item, date, part) for (date, item), part in zip(reviews, parts, strict=True)
                )


def read_market(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Return each customer's days and items, the earliest first, those of a day as they stand in the file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
    except FileNotFoundError as error:
        raise NotMeasuredError(f"{path} is missing; scripts/bench/README.md says where the sets come from") from error
    found = defaultdict(list)
    for customer, item, _, date in map(str.split, lines):
        found[customer].append((date, item))
    return {customer: sorted(reviews, key=lambda review: review[0]) for customer, reviews in found.items()}


def run_study(area: Path, table: Path, name: str, split: str, more: str = "") -> RunFolder:
    """Run a study of the table to its end."""
    folder = area / name
    folder.mkdir()
    (folder / "reviews.csv").symlink_to(table)
    (folder / "study.yaml").write_text(STUDY.format(split=split, metric=METRIC) + more, encoding="utf-8")
    path = call("generate", "--quiet", str(folder / "study.yaml")).strip().splitlines()[-1]
    call("submit", path, "--pool", POOL)
    return wait_for_run(path, POOL)


def read_together(run: RunFolder) -> Tested:
    """Return what the models for each country, chosen for all together, gave its customers."""
    folder = run.region(POOLED)
    spec = read_spec(folder.spec)
    scores = choice.read_test(folder)[1]
    row = scored_metrics(spec.metric).index(METRIC)
    return Tested({
        slug: {model: values[row, first:last] for model, values in scores.items()}
        for slug, (first, last) in spec.rows["test"].items()
        if np.isfinite(scores[""][row, first:last]).sum() >= LEAST
    })  # fmt: skip


def read_alone(run: RunFolder, markets: Sequence[str]) -> Tested:
    """Return the same of countries that were searched each by itself."""
    found = {}
    for slug in markets:
        folder = run.region(slug)
        row = scored_metrics(read_spec(folder.spec).metric).index(METRIC)
        found[slug] = {model: values[row] for model, values in choice.read_test(folder)[1].items()}
    return Tested(found)


def rows_of(protocol: str, tested: Tested, alone: Tested | None) -> Iterator[Row]:
    """Yield the means beside those of peers, and how many countries are worse than the best simple method."""
    begin = f"{METRIC}, {protocol}, {len(tested.by_market)} countries"
    for peer, name in PEERS.items():
        yield Row(f"{begin} (peer: {name})", tested.mean(""), tested.mean(peer), "", None, higher=True)
    differences = {slug: estimate(one[""] - one["simple"]) for slug, one in tested.by_market.items()}
    worse = sum(one.high < 0 for one in differences.values())
    note = ", ".join(f"{slug} {one.mean:+.4f} [{one.low:+.4f}, {one.high:+.4f}]" for slug, one in differences.items())
    yield Row(f"{protocol}: countries worse than the best simple method beyond chance", worse, None, "", 0, note)
    if alone is None:
        return
    differences = {slug: estimate(one[""] - alone.by_market[slug][""]) for slug, one in tested.by_market.items()}
    note = ", ".join(f"{slug} {one.mean:+.4f} [{one.low:+.4f}, {one.high:+.4f}]" for slug, one in differences.items())
    yield Row(f"{begin} (peer: each searched alone)", tested.mean(""), alone.mean(""), "", None, note, higher=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all protocols, or one."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="where the countries' files lie")
    parser.add_argument("--only", choices=sorted(PROTOCOLS), help="one protocol; nothing is kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.set_defaults(quick=False)
    arguments = parser.parse_args(argv)
    with work_area() as area, pool_up(POOL, SUITE, area, gpus=SLOTS):
        table = area / "reviews.csv"
        write_table(table, arguments.data)

        def group(name: str) -> Iterator[Row]:
            tested = read_together(run_study(area, table, name, PROTOCOLS[name]))
            alone = None
            if name == "last":  # the one by which countries have the most to learn from
                run = run_study(area, table, f"{name}-alone", PROTOCOLS[name], "search: {scope: region}\n")
                alone = read_alone(run, list(tested.by_market))
            yield from rows_of(name, tested, alone)

        rows = measure_groups({name: partial(group, name) for name in PROTOCOLS}, arguments.only)
    return finish(RESULTS, rows, arguments)


if __name__ == "__main__":
    sys.exit(main())
