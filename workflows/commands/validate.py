"""`regiondag validate study.yaml`: find every mistake without writing anything."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "check a study and its data; writes nothing"
DESCRIPTION = (
    "Check study.yaml, the network and every data file. All mistakes are reported at once; nothing is written."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("study", type=Path, metavar="study.yaml")


def run(arguments: argparse.Namespace) -> int:
    """Read the study and its data, and say what it amounts to."""
    from regiondag.config.data_check import check_data
    from regiondag.config.load import load_config

    config = load_config(arguments.study)
    files = check_data(config)
    trials = sum(region.search.trials for region in config.regions)
    print(f"{arguments.study}: {len(config.regions)} regions, {trials} trials, {len(files)} data files: all good")
    return 0
