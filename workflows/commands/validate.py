"""`regiondag validate study.yaml`: find every mistake without writing anything."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "check a study and its data; writes nothing"
DESCRIPTION = (
    "Check study.yaml, the network and every data file. All mistakes are reported at once; nothing is written."
)
EPILOG = """examples:
  regiondag validate study.yaml
  regiondag validate study.yaml --explain"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("study", type=Path, metavar="study.yaml")
    parser.add_argument("--explain", action="store_true", help="say, too, which defaults come from the data")


def run(arguments: argparse.Namespace) -> int:
    """Read the study and its data, and say what it amounts to."""
    from regiondag.config.load_checked import load_checked

    checked = load_checked(arguments.study)
    config, files = checked.config, checked.summaries
    for note in checked.notes:
        print(note, file=sys.stderr)
    if arguments.explain:
        from regiondag.generate.floor import describe_floors
        from regiondag.generate.output_bound import describe_bounds

        for text in filter(None, (describe_bounds(config, files), describe_floors(config, files))):
            print(text, file=sys.stderr)
    trials = sum(region.search.trials for region in config.regions)
    print(f"{arguments.study}: {len(config.regions)} regions, {trials} trials, {len(files)} data files: all good")
    return 0
