"""`regiondag stats RUN`: what a run took, and what of it came to nothing."""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.columns import SHORTEST, Narrow, print_folded
from regiondag.commands._verbs import add_run
from regiondag.util.text import show_duration

if TYPE_CHECKING:
    from regiondag.accounting.stats import RegionStats, RunStats
    from regiondag.accounting.usage import Taken, Usage

HELP = "hours, waits, evictions and cost of a run; what its jobs really needed"
DESCRIPTION = """Per region and in total, from HTCondor's event logs and the journals: GPU-hours, hours of training,
what was lost to evictions and failures, time in the queue and in transfers, and the cost by a table of prices
(--prices: your own). docs/guides/looking.md says what each column means. Last come the memory and disk to ask for next
time."""
EPILOG = """examples:
  regiondag stats RUN"""

HEADINGS = (
    *("region", "jobs", "tries", "GPU h", "slot h", "training h", "busy", "lost to eviction h", "lost to failures h"),
    *("evictions", "holds", "wait", "wait 90 %", "transfers", "overhead", "cost", "a trial", "gained", "0.01 costs"),
)
# What a terminal has no room for goes in this order: what is mostly nothing, and what others say in other words.
NARROW = Narrow(
    (
        *("0.01 costs", "gained", "overhead", "a trial", "holds", "transfers", "wait 90 %", "evictions", "slot h"),
        *("tries", "lost to failures h", "lost to eviction h", "wait", "busy", "GPU h"),
    ),
    {"region": SHORTEST},
)
TRIAL_HEADINGS = (
    *("node", "tries", "starts", "evictions", "holds", "wait", "slot s", "training s", "transfers s"),
    *("lost to eviction s", "lost to failures s", "cost"),
)
NARROW_TRIALS = Narrow(
    ("holds", "starts", "transfers s", "evictions", "lost to failures s", "lost to eviction s", "tries", "wait"),
    {"node": SHORTEST},
)
CSV_COLUMNS = (
    *("region", "node", "tries", "starts", "evictions", "holds", "waited_s", "slot_s", "gpu_s", "training_s"),
    *("transfers_s", "lost_to_eviction_s", "lost_to_failure_s", "cost"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_run(parser)
    parser.add_argument("--trials", action="store_true", help="one row for each node, too")
    parser.add_argument(
        "--prices", type=Path, metavar="FILE", help="table of prices (default: the one that is built in)"
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write a row for each node to FILE")


def run(arguments: argparse.Namespace) -> int:
    """Read the run and print it."""
    from regiondag.accounting.prices import read_prices
    from regiondag.accounting.stats import read_stats
    from regiondag.run.study_folder import find_run

    stats = read_stats(find_run(arguments.run_directory), read_prices(arguments.prices))
    if arguments.csv:
        _write_csv(stats, arguments.csv)
    if arguments.json:
        print(json.dumps(_to_json(stats), ensure_ascii=False))
    else:
        _show(stats, trials=arguments.trials)
    return 0


def _to_json(stats: RunStats) -> dict[str, object]:
    """Return everything as plain values; nodes by their names, prices without those that nothing ran on."""
    raw = dataclasses.asdict(stats)
    for region, known in zip(raw["regions"], stats.regions, strict=True):
        for trial, taken in zip(region["trials"], known.trials, strict=True):
            trial["node"] = str(taken.node)
    raw["prices"] = {name: raw["prices"][name] for name in ("source", "date", "currency")}
    return raw


def _show(stats: RunStats, *, trials: bool) -> None:
    from regiondag.condor.submit import suggest_submit
    from regiondag.util.terminal import print_long_table, print_table

    if not stats.total.trials:
        print_folded(f"{stats.study}: no job of it was ever in the queue; {suggest_submit(Path(stats.run))}")
        return
    rows = [_row(region.region, region.usage, region) for region in stats.regions if region.usage.trials]
    print_table(stats.study, HEADINGS, [*rows, _row("total", stats.total)], NARROW)
    if trials:
        taken = [one for region in stats.regions for one in region.trials]
        print_long_table("jobs", TRIAL_HEADINGS, [_trial_row(one) for one in taken], NARROW_TRIALS)
    for kind, hours in sorted(stats.machines.items(), key=lambda item: -item[1]):
        print_folded(f"{hours:.2f} h on {kind}")
    _show_prices(stats)
    _show_sizes(stats)


def _show_prices(stats: RunStats) -> None:
    prices = stats.prices
    print_folded(f"Prices in {prices.currency}: {prices.source} ({prices.date}); --prices FILE for your own")
    if stats.unpriced:
        print_folded(f"no price of {', '.join(stats.unpriced)}: what ran there makes the cost unknown", sys.stderr)


def _show_sizes(stats: RunStats) -> None:
    from regiondag.accounting.right_size import find_largest

    gpu = find_largest(region.sizes for region in stats.regions)
    if gpu:
        print(f"GPU memory: at most {gpu:.0f} MB were used")
    if stats.yaml:
        print("What the jobs used with a quarter more; for study.yaml:")
        print("\n".join(f"  {line}" for line in stats.yaml))


def _row(name: str, usage: Usage, region: RegionStats | None = None) -> tuple[str, ...]:
    gained, point = (region.gained, region.cost_per_point) if region else (None, None)
    return (
        name,
        str(usage.trials),
        str(usage.tries),
        *(f"{hours:.3f}" for hours in (usage.gpu_hours, usage.slot_hours, usage.training_hours)),
        _share(usage.busy),
        f"{usage.lost_to_eviction:.3f}",
        f"{usage.lost_to_failure:.3f}",
        str(usage.evictions),
        str(usage.holds),
        _seconds(usage.wait_median),
        _seconds(usage.wait_90),
        _share(usage.transfer_share),
        _seconds(usage.overhead),
        _money(usage.cost),
        _money(usage.cost_per_trial),
        "-" if gained is None else f"{gained:+.4f}",
        _money(point),
    )


def _trial_row(taken: Taken) -> tuple[str, ...]:
    return (
        str(taken.node),
        *(str(count) for count in (taken.tries, taken.starts, taken.evictions, taken.holds)),
        _seconds(sum(taken.waited)),
        f"{taken.slot:.0f}",
        f"{taken.training:.1f}",
        "-" if taken.transfers is None else f"{taken.transfers:.0f}",
        f"{taken.lost_to_eviction:.0f}",
        f"{taken.lost_to_failure:.0f}",
        _money(taken.cost),
    )


def _write_csv(stats: RunStats, path: Path) -> None:
    from nnlib.util.files import replacing

    with replacing(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_COLUMNS)
        for region in stats.regions:
            for one in region.trials:
                counts = (one.tries, one.starts, one.evictions, one.holds, sum(one.waited), one.slot, one.gpu)
                losses = (one.training, one.transfers, one.lost_to_eviction, one.lost_to_failure, one.cost)
                writer.writerow((region.region, str(one.node), *counts, *losses))


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else show_duration(seconds)


def _money(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.2f}" if amount >= 0.1 or not amount else f"{amount:.2g}"
