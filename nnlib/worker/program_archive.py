"""A program as its archive has it: the command with its placeholders, and the names of all that goes with it.

Standard library only. The manager writes it, and a job reads it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nnlib.contract import Terms
from nnlib.worker.container import Container
from nnlib.worker.downloads import Download

PLACE = "program"  # the folder in which it runs, with its files in it
MANIFEST = "program.json"  # in the archive
FILES, HELPER = "files/", "helper/"  # and before the names of its files there
CHECKPOINT, ARTIFACT = "checkpoint", "artifact"  # folders of its own: what it goes on from, and what it has made
PROGRAM_VERSION = 1
PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Program:
    """A command, and what counts as the machine's fault: exit codes, and texts among the last lines of output."""

    command: tuple[str, ...]
    retry: tuple[int | str, ...] = ()
    downloads: tuple[Download, ...] = ()
    container: Container | None = None  # in which it runs
    terms: Terms = field(default_factory=Terms)
    environment: str = ""  # what its environment is made of, so that another one makes another program


def downloads_from_raw(raw: dict[str, Any]) -> tuple[Download, ...]:
    """Return the files from URLs of a program as the archive has it; KeyError or TypeError where it is none."""
    return tuple(Download(str(one["url"]), str(one["name"]), str(one["sha256"])) for one in raw.get("urls", ()))


def program_to_json(program: Program) -> str:
    """Return a program as the archive has it."""
    raw: dict[str, Any] = {"version": PROGRAM_VERSION, "command": program.command, "retry": program.retry}
    if program.downloads:
        raw["urls"] = [{"url": one.url, "name": one.name, "sha256": one.sha256} for one in program.downloads]
    raw |= {"container": asdict(program.container)} if program.container else {}
    raw |= {"terms": asdict(program.terms)} if program.terms != Terms() else {}
    raw |= {"environment": program.environment} if program.environment else {}
    return json.dumps(raw, indent=1, ensure_ascii=False) + "\n"


def read_program(folder: Path) -> Program:
    """Return the program whose archive was unpacked into `folder`; OSError, ValueError, KeyError or TypeError."""
    raw = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    container = Container(**raw["container"]) if "container" in raw else None
    terms = Terms(**raw.get("terms", {}))
    return Program(tuple(raw["command"]), tuple(raw["retry"]), downloads_from_raw(raw), container, terms)


def fill_in(argument: str, values: Mapping[str, Any]) -> str:
    """Return an argument with its placeholders replaced; KeyError names one that has no value.

    >>> fill_in("--lr={learning_rate}", {"learning_rate": 0.1}), fill_in("{{}}", {})
    ('--lr=0.1', '{}')
    """

    def value_of(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        value = values[found[1]]
        return str(value).lower() if isinstance(value, bool) else str(value)

    return PLACEHOLDER.sub(value_of, argument)


def placeholders_of(argument: str) -> list[str]:
    """Return the names that stand in braces in an argument.

    >>> placeholders_of("{a}-{{b}}-{c}")
    ['a', 'c']
    """
    return [found[1] for found in PLACEHOLDER.finditer(argument) if found[1]]
