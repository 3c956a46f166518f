"""`regiondag explain RUN`."""

from __future__ import annotations

import argparse

HELP = "say why a run, a region or a node is idle, held, slow or failed"
DESCRIPTION = HELP


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""


def run(arguments: argparse.Namespace) -> int:
    """Explain."""
    return 0
