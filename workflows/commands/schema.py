"""`regiondag schema`: what study.yaml may hold, for editors."""

from __future__ import annotations

import argparse
import json

HELP = "print the JSON Schema of study.yaml, for editors"
DESCRIPTION = """Print the JSON Schema (draft 2020-12) of study.yaml, made of the tables that it is read by. Editors
with a YAML language server complete keys, explain them and mark what is not legal, where the first line of a study
names the schema, as in those that `regiondag init --data` writes."""
EPILOG = """examples:
  regiondag schema > study.schema.json
  sed -i '1i # yaml-language-server: $schema=study.schema.json' study.yaml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments: none."""


def run(_arguments: argparse.Namespace) -> int:
    """Print the schema."""
    from regiondag.config.keys import describe_study

    print(json.dumps(describe_study(), indent=2))
    return 0
