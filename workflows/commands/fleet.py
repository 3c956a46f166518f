"""`regiondag fleet`: EC2 workers for an HTCondor pool."""

from __future__ import annotations

import argparse

HELP = "start, grow, shrink and look at GPU workers on EC2"

DESCRIPTION = "GPU workers on EC2 that join an HTCondor pool."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen verb."""
    raise NotImplementedError
