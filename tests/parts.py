"""Parts of a whole test run: run one and note how it went, and print the table of all.

    python tests/parts.py run NAME COMMAND...   its tests are those of the JUnit file that pytest is told to write
    python tests/parts.py skip NAME REASON      note why it is left out
    python tests/parts.py table NAME...         ends with 1 if one of these failed, is missing or ran no test

Standard library only: the table is printed whatever else is broken.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.left_over import run_watched

RESULTS = Path(__file__).parents[1] / ".test-results"
SLOWEST = 10
MISSING = -1  # no exit code of any process
WIDTH = 80


@dataclass(frozen=True)
class Part:
    """How one part of a test run went."""

    name: str
    began: float  # Unix time
    seconds: float
    code: int
    tests: bool  # whether it is to run some
    passed: int = 0
    failed: int = 0
    skipped: tuple[tuple[str, int], ...] = ()  # reason, how many
    slowest: tuple[tuple[float, str], ...] = ()

    @property
    def trouble(self) -> str:
        """What is wrong with it, in a word or two."""
        if self.code == MISSING:
            return "did not run"
        if self.tests and not self.passed + self.failed:
            return "ran no test"
        return f"exit code {self.code}" if self.code else ""


def run(name: str, command: Sequence[str]) -> int:
    """Run a part, note it in the folder of results and return its exit code."""
    RESULTS.mkdir(exist_ok=True)
    junit, began = RESULTS / f"{name}.xml", time.time()
    for stale in (junit, RESULTS / f"{name}.json"):
        stale.unlink(missing_ok=True)
    tests = "pytest" in command
    code = run_watched([*command, f"--junit-xml={junit}"] if tests else command)
    part = Part(name, began, time.time() - began, code, tests)
    if junit.exists():
        part = with_tests(part, junit.read_text(encoding="utf-8"))
    note(part)
    return code


def note(part: Part) -> None:
    """Write down how a part went."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{part.name}.json").write_text(json.dumps(asdict(part), indent=1) + "\n", encoding="utf-8")


def with_tests(part: Part, junit: str) -> Part:
    """Return a part with the tests that pytest's JUnit file tells of."""
    cases = [*ElementTree.fromstring(junit).iter("testcase")]  # noqa: S314 - pytest wrote it a moment ago
    skips = [found.get("message", "") for case in cases for found in case.iter("skipped")]
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    times = sorted(((float(case.get("time", 0)), _title(case)) for case in cases), reverse=True)
    counts = tuple(Counter(skips).most_common())
    given = {**asdict(part), "passed": len(cases) - failed - len(skips), "failed": failed}
    return Part(**given | {"skipped": counts, "slowest": tuple(times[:SLOWEST])})


def read_parts(folder: Path, names: Sequence[str]) -> list[Part]:
    """Return some parts as they were noted; what is missing never ended."""
    paths = [folder / f"{name}.json" for name in names]
    raw = [json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"name": path.stem} for path in paths]
    return [Part(**{"began": 0.0, "seconds": 0.0, "code": MISSING, "tests": True, **each}) for each in raw]


def table(parts: Sequence[Part]) -> list[str]:
    """Return the table of all parts, why tests were skipped, the slowest ones, and how many there were in all."""
    rows = [("part", "tests", "passed", "failed", "skipped", "seconds", "")]
    for part in parts:
        skipped = sum(count for _, count in part.skipped)
        counts = (part.passed + part.failed + skipped, part.passed, part.failed, skipped)
        numbers = map(str, counts) if part.tests else "----"
        rows.append((part.name, *numbers, f"{part.seconds:.0f}", part.trouble))
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in range(1, 6)), row[6]]).rstrip()
        for row in rows
    ]
    reasons = [(part.name, reason, count) for part in parts for reason, count in part.skipped]
    if reasons:
        lines += ["", "skipped:", *(f"  {count:>4} {name}: {reason}"[:WIDTH] for name, reason, count in reasons)]
    slowest = sorted((found for part in parts for found in part.slowest), reverse=True)[:SLOWEST]
    lines += ["", "slowest, in seconds:", *(f"  {seconds:6.1f} {title}" for seconds, title in slowest), ""]
    passed, failed = sum(part.passed for part in parts), sum(part.failed for part in parts)
    return [*lines, f"{passed} passed, {failed} failed, {sum(count for *_, count in reasons)} skipped"]


def _title(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name', '')}"


def main(words: Sequence[str]) -> int:
    """Run one part, or print the table."""
    match words:
        case ["run", name, *command] if command:
            return run(name, command)
        case ["skip", name, reason]:
            note(Part(name, time.time(), 0.0, 0, False, skipped=((reason, 1),)))
            return 0
        case ["table", *names] if names:
            parts = read_parts(RESULTS, names)
            print("\n" + "\n".join(table(parts)))
            return int(any(part.trouble for part in parts))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
