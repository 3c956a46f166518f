"""How long it takes from a machine as its installer left it to recommendations with names."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import REPOSITORY, NotMeasuredError
from tests.support.first_hour import Step, make_wheel, walk, write_sales
from tests.support.fresh_machine import HOME, FreshMachine, why_not

BENCH = "first_hour"
LOOK_GOAL = 1.0
GOAL = 600.0  # seconds of waiting, all steps together, the root folder included


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    suites: tuple[str, ...] = ("bookworm", "trixie")


QUICK = Sizes(suites=())


class FirstHour(Bench[Sizes]):
    """The rows, a group for each machine."""

    def look(self) -> Iterator[Row]:
        """What is missing is said at once, and before anything is built."""
        if reason := why_not():
            raise NotMeasuredError(reason)
        with FreshMachine("bookworm", self.area / "look") as machine:
            machine.copy_in(REPOSITORY / "scripts", f"{HOME}/scripts")
            begun = time.perf_counter()
            machine.run("scripts/preflight")
            yield Row("all that is missing is said after", time.perf_counter() - begun, None, "s", goal=LOOK_GOAL)

    def steps(self) -> Iterator[Row]:
        """An ordinary user with sudo, the wheel, and a table of two stores."""
        if reason := why_not():
            raise NotMeasuredError(reason)
        if not self.sizes.suites:
            raise NotMeasuredError("the steps take minutes; --quick leaves them out")
        self.seen: dict[str, list[Step]] = {}
        wheel = make_wheel(self.area)
        write_sales(self.area / "sales.csv")
        for suite in self.sizes.suites:
            with FreshMachine(suite, self.area / suite) as machine:
                steps = walk(machine, wheel, self.area / "sales.csv", lambda text: print(text, file=sys.stderr))
            self.seen[suite] = steps
            for step in steps:
                yield Row(f"{suite}: {step.name}", step.seconds, None, "s")
            yield Row(f"{suite}: all of it", sum(step.seconds for step in steps), None, "s", goal=GOAL)

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return the commands, and what the last one printed."""
        seen = getattr(self, "seen", {})
        return {
            "steps": {suite: [{**asdict(step), "output": ""} for step in steps] for suite, steps in seen.items()},
            "recommended": {suite: steps[-1].output.splitlines() for suite, steps in seen.items()},
        }


if __name__ == "__main__":
    sys.exit(main(BENCH, FirstHour, Sizes(), QUICK))
