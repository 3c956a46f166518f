"""Is this machine ready for a pool of its own?

scripts/preflight has the list of what is needed, for it must say so before there is a Python; it is asked from here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from regiondag.errors import PoolError
from regiondag.util.resources import resource_dir

Part = Literal["pool", "sandbox", "build"]
State = Literal["ok", "note", "BAD"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was checked, how it stands, and what was seen."""

    subject: str
    state: State
    text: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """All findings, the line that brings what is missing, and what else can be done where no line does."""

    findings: tuple[Finding, ...]
    line: str
    options: str
    uses_installed: bool = False  # no pool can be started, and the HTCondor that is installed answers

    @property
    def good(self) -> bool:
        """Whether nothing is missing."""
        return all(finding.state != "BAD" for finding in self.findings)

    def advice(self) -> str:
        """Return what to do where something is missing."""
        line = f"run this once, then the same again:\n  {self.line}" if self.line else ""
        return "\n".join(text for text in (line, self.options) if text)


def check_machine(parts: Sequence[Part]) -> Readiness:
    """Look at this machine: what any pool needs, one of our own, and what building its root folder needs."""
    done = subprocess.run([*_argv(parts), "--tsv"], stdout=subprocess.PIPE, text=True, errors="replace", check=False)
    findings: list[Finding] = []
    lines: dict[str, list[str]] = {"line": [], "hint": [], "installed": []}
    for state, subject, text in (line.split("\t", 2) for line in done.stdout.splitlines()):
        if state in lines:
            lines[state].append(text)
        else:
            findings.append(Finding(subject, cast(State, state), text))
    return Readiness(tuple(findings), " ".join(lines["line"]), "\n".join(lines["hint"]), bool(lines["installed"]))


def require_machine(parts: Sequence[Part]) -> None:
    """Raise PoolError that says all that is missing and what to do; as root bring it first."""
    found = check_machine(parts)
    if not found.good and found.line and os.geteuid() == 0:
        subprocess.run(
            [*_argv(parts), "--install", "--quiet"], stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False
        )
        found = check_machine(parts)
    if not found.good:
        missing = [f"  {finding.subject}: {finding.text}" for finding in found.findings if finding.state == "BAD"]
        raise PoolError("\n".join(["this machine lacks what a pool needs:", *missing, found.advice()]))


def _argv(parts: Sequence[Part]) -> list[str]:
    return ["sh", str(resource_dir("scripts") / "preflight"), "--python", sys.executable, "--for", " ".join(parts)]
