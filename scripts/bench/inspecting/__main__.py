"""How good the milliseconds are that `nnlib inspect NETWORK.json --data FILE` estimates, beside measured steps."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from scripts.bench.common.child import Child
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import ONE_THREAD, NotMeasuredError
from scripts.bench.inspecting.ours import Case

BENCH = "inspecting"
ANSWER = 300.0  # seconds

WIDE = Case("wide autoencoder", 27_278, (1024, 1024, 1024), entries=136)
CASES = (
    WIDE,
    dataclasses.replace(WIDE, name="the same, RMSProp", optimizer="rmsprop"),
    dataclasses.replace(WIDE, name="the same, SoftMax", activation="SoftMax"),
    Case("retail", 4_619, (128,), entries=40),
    Case("narrow and wide", 200_000, (64,), entries=64),
    Case("two layers", 20_000, (512, 256), entries=64, batch=1024),
    Case("dense", 784, (512, 512), targets=10, activation="SoftMax"),
)
QUICK = (Case("retail", 4_619, (128,), entries=40, steps=5),)


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    cases: tuple[Case, ...]


class Inspecting(Bench[Sizes]):
    """The rows; `ours` is the estimate, `peer` the measured step, the ratio estimate / measured."""

    def one_thread(self) -> Iterator[Row]:
        """Measured by CPU time, which other programs hardly stretch."""
        return self._rows(1)

    def two_threads(self) -> Iterator[Row]:
        """Measured by wall time: on a machine that does nothing else."""
        return self._rows(2)

    def _rows(self, threads: int) -> Iterator[Row]:
        env = dict.fromkeys(ONE_THREAD, str(threads))
        for case in self.sizes.cases:
            with Child(sys.executable, "inspecting.ours", json.dumps(dataclasses.asdict(case)), env=env) as child:
                found = child.answer(ANSWER)
            name = f"{case.name}: {case.shape}, batch {case.batch}, {threads} thread{'s' * (threads > 1)}"
            if found["measured"] is None:
                raise NotMeasuredError(f"{threads} threads: other programs kept the machine busy")
            yield Row(name, found["estimate"], found["measured"], "ms", higher=True)


if __name__ == "__main__":
    sys.exit(main(BENCH, Inspecting, Sizes(CASES), Sizes(QUICK)))
