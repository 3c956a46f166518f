"""`regiondag clean`: remove old runs, and old versions of champions."""

from __future__ import annotations

import argparse
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.commands._verbs import number, warn

if TYPE_CHECKING:
    from regiondag.update.old_runs import CleanPlan

HELP = "remove old runs: shows what would go, --yes does it"
DESCRIPTION = """Show which runs of a study are needed by nobody any more, and what they take; with --yes, remove them.
Never removed are runs in progress, the newest finished run of any region, and those that made what serves; of
champions never what serves, what served before, and what is pinned. Links are never followed."""
EPILOG = """examples:
  regiondag clean shop                          # what would go
  regiondag clean shop --keep 14 --yes
  regiondag clean shop --keep 0 --keep-days 30 --keep-champions 100 --yes"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("study", type=Path, metavar="STUDY", help="its folder, or its study.yaml")
    parser.add_argument("--keep", type=number(int, 0, inf), default=7, metavar="N", help="newest runs (default: 7)")
    parser.add_argument(
        "--keep-days", type=number(float, 0, 1e6), default=0.0, metavar="D", help="also runs younger than so many days"
    )
    parser.add_argument(
        "--keep-champions", type=number(int, 1, inf), default=30, metavar="N", help="versions a region (default: 30)"
    )
    parser.add_argument("--yes", action="store_true", help="remove them; without it nothing is changed")
    parser.add_argument(
        "--out", type=Path, metavar="RUNS", help="where its runs lie (default: runs/ beside study.yaml)"
    )
    parser.add_argument("--pool", metavar="NAME", help="name of the embedded pool (default: default)")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(arguments: argparse.Namespace) -> int:
    """Show what goes, or remove it; the exit code is 1 when something could not be removed."""
    import json
    from dataclasses import asdict, replace

    from nnlib.util.terminal import show_progress
    from regiondag.pool.pool import find_pool
    from regiondag.registry.read import open_registry
    from regiondag.run.study_folder import find_study
    from regiondag.update.clean import clean, plan_clean
    from regiondag.update.old_runs import Rule

    study = find_study(arguments.study, arguments.out)
    study = replace(study, runs=study.runs.resolve())
    registry, pool = open_registry(study.runs, study.name), find_pool(arguments.pool)
    rule = Rule(arguments.keep, arguments.keep_days, arguments.keep_champions)
    plan = plan_clean(study, registry, rule, pool)
    if arguments.yes:
        with show_progress("removing") as progress:
            plan = clean(plan, registry, pool, progress)
    if arguments.json:
        print(json.dumps(asdict(plan), indent=1, ensure_ascii=False))
    else:
        _print(plan)
    failed = [item for item in plan.items if item.error]
    for item in failed:
        warn(f"{item.path}: stays: {item.error}")
    return int(bool(failed))


def _print(plan: CleanPlan) -> None:
    """Print what goes, a row each; people are told how much that is, and why others stay."""
    from nnlib.util.memory import show_bytes
    from regiondag.update.old_runs import RUN
    from regiondag.util.terminal import Narrow, print_long_table

    goes = [item for item in plan.items if item.goes and not item.error]
    if goes:
        title = f"{plan.study}: {'removed' if plan.removed else 'would be removed'}"
        rows = [[item.kind, str(Path(item.path).relative_to(plan.runs)), show_bytes(item.bytes)] for item in goes]
        print_long_table(title, ["what", "path", "size"], rows, Narrow(fold={"path": 20}))
    verb = "freed" if plan.removed else "would be free"
    tell(f"{len(goes)} of {len(plan.items)} runs and versions, {show_bytes(plan.frees)} {verb}")
    for item in plan.items:
        if item.kind == RUN and item.why and not item.why.startswith("one of the newest"):
            tell(f"  {Path(item.path).name} stays: {item.why}")
    if goes and not plan.removed:
        tell("nothing was changed; --yes removes them")
