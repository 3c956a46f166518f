"""How old is what people see of running trials, where HTCondor's intervals are those of our images; what it costs."""

from __future__ import annotations

import re
import shlex
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from regiondag.condor.access_point import INTERVALS
from regiondag.monitor.live import read_live
from regiondag.pool.pool import Pool
from regiondag.run.layout import RunFolder
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.manager import pools, studies
from scripts.bench.manager.studies import Shape

BENCH = "live"
BATCH = 0.25  # seconds that each batch sleeps; two are an epoch
# What the job runs in the place of `python CODE train`: the same, with slow batches, and its messages timed.
SLOWLY = f"""\
import sys, time
sys.path.insert(0, sys.argv[1])
from nnlib.worker import chirp
say = chirp.set_attributes
def timed(values):
    began = time.perf_counter()
    taken = say(values)
    print("said in", time.perf_counter() - began, file=sys.stderr)
    return taken
chirp.set_attributes = timed
from nnlib import cli
from nnlib.cpu.engine import CpuEngine
run = CpuEngine.run
CpuEngine.run = lambda *words: (time.sleep({BATCH}), run(*words))[1]
sys.exit(cli.main(sys.argv[2:]))
"""


@dataclass(frozen=True)
class Sizes:
    """All sizes."""

    slots: int = 8
    interval: int = 10  # of HTCondor's, both
    epochs: int = 400
    seconds: float = 150.0  # of looking, twice a second
    settle: float = 30.0  # seconds before that, in which the first words arrive


QUICK = Sizes(slots=2, interval=2, epochs=60, seconds=10.0, settle=0.0)


class LiveBench(Bench[Sizes]):
    """The rows."""

    def ages(self) -> Iterator[Row]:
        """Look again and again at trainings that run all the while."""
        sizes = self.sizes
        config = "".join(f"{name} = {sizes.interval}\n" for name in INTERVALS)
        with pools.pool_up("bench-live", "trixie", self.area, sizes.slots, cpus=sizes.slots, more=config) as pool:
            run = self._run(pool)
            pools.submit(pool, run.study_dag)
            pools.wait_for(lambda: len(read_live(pool, run)) == sizes.slots, 120, "a word of each training", every=1)
            time.sleep(sizes.settle)
            ages, asked = look(pool, run, sizes)
            pool.run(
                ["condor_vacate_job", "-all"], cwd=run.path, capture_output=True
            )  # they bring back what they wrote
            said = self._wait_for_messages(run)
            pool.run(["condor_rm", "-all"], cwd=run.path, capture_output=True)
        name = f"{sizes.slots} trainings at a time, intervals of {sizes.interval} s"
        spread = f"mean {statistics.fmean(ages):.1f}, most {max(ages):.1f} s, {len(ages):,} looks at a training"
        yield Row(
            f"age of what is seen of a running trial, median: {name}", statistics.median(ages), None, "s", 12, spread
        )
        yield Row(f"the same, nine in ten: {name}", statistics.quantiles(ages, n=10)[-1], None, "s", 20)
        yield Row(
            "a look at all running trials: one query and DAGMan's log, median",
            1e3 * statistics.median(asked),
            None,
            "ms",
        )
        yield Row(
            "a message of a training, median",
            1e3 * statistics.median(said),
            None,
            "ms",
            10,
            f"most {1e3 * max(said):.0f} ms",
        )

    def _run(self, pool: Pool) -> RunFolder:
        study = studies.write_study(self.area / "live", "live", Shape(1, 1, self.sizes.slots), "sobol")
        text = study.read_text(encoding="utf-8").replace("epochs: 2", f"epochs: {self.sizes.epochs}, stop_after: 0")
        study.write_text(text, encoding="utf-8")
        run = studies.generate(study, pools.dotted(pool))
        script = run.path / "train.sh"
        head, found, rest = script.read_text(encoding="utf-8").partition('exec "$python" "$1"')
        if not found:
            raise NotMeasuredError("train.sh does not start the training by exec any more")
        script.write_text(f'{head}exec "$python" -c {shlex.quote(SLOWLY)} "$1"{rest}', encoding="utf-8")
        return run

    def _wait_for_messages(self, run: RunFolder) -> list[float]:
        """Return how long the trainings' messages took, once their files have come back."""
        found: list[float] = []

        def there() -> bool:
            texts = [path.read_text(encoding="utf-8") for path in run.path.glob("regions/*/trials/*/job.err")]
            found[:] = [float(word) for text in texts for word in re.findall(r"^said in (\S+)", text, re.MULTILINE)]
            return bool(found)

        pools.wait_for(there, 60, "what the trainings wrote", every=1)
        return found


def look(pool: Pool, run: RunFolder, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Return the ages of all that is seen, and how long each look took."""
    ages, asked, end = [], [], time.monotonic() + sizes.seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        found = read_live(pool, run)
        asked.append(time.perf_counter() - began)
        ages += [live.age(time.time()) for live in found.values()]
        time.sleep(0.5)
    if len(ages) < 0.9 * sizes.slots * len(asked):
        raise NotMeasuredError("trainings ended before the last look")
    return ages, asked


if __name__ == "__main__":
    sys.exit(main(BENCH, LiveBench, Sizes(), QUICK))
