"""What the manager costs: slot time beyond training, and short trials beside a bare DAG of the same jobs."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from nnlib.contract import MODEL_OUTPUTS
from regiondag.pool.pool import Pool
from regiondag.run.layout import ATTEMPT_SUBMIT, START_FOLDER, NodeName, RunFolder
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.manager import pools, studies
from scripts.bench.manager.pools import Times
from scripts.bench.manager.studies import Shape

BENCH = "throughput"
MINUTE = 60.0
# A real training of some hundredths of a second, then sleep: trainings of a minute that leave the cores to the manager.
STRETCH = """\
"$python" "$1" train --trial trial.json --device "$2" || exit
sleep {seconds}
"""


@dataclass(frozen=True)
class Sizes:
    """All sizes."""

    slots: int = 4
    lanes: int = 5  # one more than slots, so that a free slot finds a job
    steps: int = 8
    seconds: float = MINUTE  # of a trial in lanes
    short: int = 2000  # trials of one second


QUICK = Sizes(slots=2, lanes=3, steps=2, seconds=1.0, short=12)


class Throughput(Bench[Sizes]):
    """The rows."""

    def overhead(self) -> Iterator[Row]:
        """Real trainings of a tiny network, each stretched to the same length, in lanes."""
        sizes, trials = self.sizes, self.sizes.lanes * self.sizes.steps
        with self._pool() as pool:
            run = self._run(pool, "stretched", Shape(1, sizes.steps, sizes.lanes), schedule="lanes")
            stretch(run, sizes.seconds)
            jobs = finish(pool, run, trials, 60 + 2 * trials * sizes.seconds)
        trained = {node: sizes.seconds + seconds_of_epochs(run, node) for node in jobs}
        taken = pools.slots_taken(jobs, sizes.slots)  # the first job of each slot has nothing to wait for
        beyond = [jobs[node].ended - free - trained[node] for node, free in taken if free > -math.inf]
        busy = sum(trained.values()) / (sizes.slots * lasted(jobs))
        name = f"{len(jobs)} trials of {sizes.seconds:.0f} s in {sizes.lanes} lanes on {sizes.slots} slots"
        spread = f"min {min(beyond):.2f}, mean {statistics.fmean(beyond):.2f}, max {max(beyond):.2f} s"
        what = f"slot time of a trial beyond its training, median: {name}"
        yield Row(what, statistics.median(beyond), None, "s", 2.0, spread)
        what = f"slots training, from the first start to the last end: {name}"
        yield Row(what, 100 * busy, None, "%", 95.0, higher=True)

    def short(self) -> Iterator[Row]:
        """Trials that sleep for a second, all independent, then the same jobs in a DAG without scripts."""
        sizes = self.sizes
        rates = []
        with self._pool() as pool:
            for side in ("ours", "bare"):
                run = self._run(pool, f"short-{side}", Shape(1, 1, sizes.short), "sobol")
                (run.path / "train.sh").write_text(studies.worker(1.0), encoding="utf-8")
                if side == "bare":
                    strip_scripts(run, sizes.short)
                jobs = finish(pool, run, sizes.short, 60 + 3 * sizes.short)
                rates.append(MINUTE * (len(jobs) - 1) / lasted(jobs))
        name = f"{sizes.short:,} trials of one second on {sizes.slots} slots (peer: a bare DAG of the same jobs)"
        yield Row(name, rates[0], rates[1], "a minute", 0.9, higher=True, goal_is_ratio=True)

    def _pool(self) -> AbstractContextManager[Pool]:
        return pools.pool_up("bench-throughput", "trixie", self.area, self.sizes.slots, cpus=self.sizes.slots)

    def _run(self, pool: Pool, name: str, shape: Shape, method: str = "bayes", schedule: str = "rounds") -> RunFolder:
        study = studies.write_study(self.area / name, name, shape, method, schedule)
        return studies.generate(study, pools.dotted(pool))


def stretch(run: RunFolder, seconds: float) -> None:
    """Let each training sleep when it is done."""
    script = run.path / "train.sh"
    head, found, _ = script.read_text(encoding="utf-8").partition("exec ")
    if not found:
        raise NotMeasuredError("train.sh does not start the training by exec any more")
    script.write_text(head + STRETCH.format(seconds=seconds), encoding="utf-8")


def strip_scripts(run: RunFolder, trials: int) -> None:
    """Leave of the run's graph the same jobs without PRE, POST, final trainings and report; write what PRE would.

    `trials`: those of each region.
    """
    lines = [f"CONFIG {run.path / 'dagman.config'}"]
    folders = sorted(run.path.glob("regions/*"))
    for folder, node in ((folder, NodeName(folder.name, number)) for folder in folders for number in range(trials)):
        lines += [f"JOB {node} {folder}/train.sub", f'VARS {node} trial="{node.folder}"']
        place = folder / "trials" / node.folder
        (place / START_FOLDER).mkdir(parents=True, exist_ok=True)
        for file in MODEL_OUTPUTS.of_trial:  # a job is given what it brings back, empty at first
            (place / START_FOLDER / file).touch()
        (place / ATTEMPT_SUBMIT).touch()
        (place / "trial.json").write_text(json.dumps({"node": str(node)}, indent=1) + "\n", encoding="utf-8")
    run.study_dag.write_text("\n".join(lines) + "\n", encoding="utf-8")


def finish(pool: Pool, run: RunFolder, trials: int, patience: float) -> dict[NodeName, Times]:
    """Run a study to its end and return when its trials ran."""
    nodes = studies.finish(pool, run, trials, patience)
    return {node: times for node, times in nodes.items() if node.number is not None}


def lasted(jobs: Mapping[NodeName, Times]) -> float:
    """Return the seconds from the first start to the last end."""
    return max(job.ended for job in jobs.values()) - min(job.executing for job in jobs.values())


def seconds_of_epochs(run: RunFolder, node: NodeName) -> float:
    """Return how long a trial trained before it slept, as its log has it."""
    lines = (run.region(node.slug).trial(node) / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return float(sum(json.loads(line)["seconds"] for line in lines))


if __name__ == "__main__":
    sys.exit(main(BENCH, Throughput, Sizes(), QUICK))
