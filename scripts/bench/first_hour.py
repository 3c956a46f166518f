"""How long it takes from a machine as its installer left it to recommendations with names."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from regiondag.pool.rootfs import image_path
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError
from tests.support.first_hour import Step, make_wheel, walk, write_sales
from tests.support.fresh_machine import HOME, FreshMachine, why_not

BENCH = "first_hour"
GOAL = 600.0  # seconds of waiting, all steps together, the root folder included


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    suites: tuple[str, ...] = ("bookworm", "trixie")
    build: bool = True  # the pool's root folder, as the first user of a machine has to


QUICK = Sizes(suites=("trixie",), build=False)


class FirstHour(Bench[Sizes]):
    """The rows, a group for each machine."""

    def steps(self) -> Iterator[Row]:
        """An ordinary user with sudo, the wheel, and a table of two stores."""
        if reason := why_not():
            raise NotMeasuredError(reason)
        self.seen: dict[str, list[Step]] = {}
        wheel = make_wheel(self.area)
        write_sales(self.area / "sales.csv")
        for suite in self.sizes.suites:
            with FreshMachine(suite, self.area / suite) as machine:
                image = image_path("trixie")
                if not self.sizes.build and image.is_dir():
                    machine.copy_in(image, f"{HOME}/.cache/regiondag/{image.name}")
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
