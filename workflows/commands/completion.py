"""`regiondag completion SHELL`: what a shell has to read to complete commands, runs, regions and trials."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")

HELP = "print what makes bash, zsh or fish complete commands, runs, regions and trials"
DESCRIPTION = """Print a script for a shell to read when it starts. With it the Tab key completes commands and options,
studies and runs, and, once a run is named, its regions and trials."""
EPILOG = """examples:
  echo 'eval "$(regiondag completion bash)"' >> ~/.bashrc
  echo 'eval "$(regiondag completion zsh)"' >> ~/.zshrc          # after compinit
  regiondag completion fish > ~/.config/fish/completions/regiondag.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", choices=SHELLS, help="which shell reads it")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    from regiondag.util.completion import script_for

    print(script_for(arguments.shell))
    return 0
