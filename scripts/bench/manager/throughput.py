"""What the manager costs: slot time beyond training, and short trials beside a bare DAG of the same jobs."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import CHECKPOINT_FILE, LOG_FILE, RESULT_FILE
from regiondag.pool.pool import Pool
from regiondag.run.layout import ATTEMPT_SUBMIT, START_FOLDER, NodeName, RunFolder
from scripts.bench.common.harness import Row, main
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.manager import pools, stand_ins

BENCH = "throughput"
MINUTE = 60.0
BROUGHT_BACK = (RESULT_FILE, LOG_FILE, CHECKPOINT_FILE)  # a job is given what it brings back, empty at first
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


@dataclass(frozen=True)
class Ran:
    """One trial's job: Unix times of its start and end on its slot, and the seconds in which it trained."""

    began: float
    ended: float
    trained: float


class Throughput:
    """The rows, in groups that can be measured alone."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        self.area = area
        self.sizes = sizes
        self.groups = {"overhead": self.overhead, "short": self.short}

    def overhead(self) -> Iterator[Row]:
        """Real trainings of a tiny network, each stretched to the same length, in lanes."""
        sizes, trials = self.sizes, self.sizes.lanes * self.sizes.steps
        with self._pool() as pool:
            shape = (1, sizes.steps, sizes.lanes)
            run = stand_ins.generate(pool, self._folder("lanes"), "stretched", shape, schedule="lanes")
            stretch(run, sizes.seconds)
            jobs = ran(run, stand_ins.finish(pool, run, trials, 60 + 2 * trials * sizes.seconds), sizes.seconds)
        beyond = seconds_beyond_training(jobs, sizes.slots)
        lasted = max(job.ended for job in jobs) - min(job.began for job in jobs)
        busy = sum(job.trained for job in jobs) / (sizes.slots * lasted)
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
                run = stand_ins.generate(pool, self._folder(f"short-{side}"), "short", (1, 1, sizes.short), "sobol")
                (run.path / "train.sh").write_text(stand_ins.worker(1.0), encoding="utf-8")
                if side == "bare":
                    strip_scripts(run, sizes.short)
                found = stand_ins.finish(pool, run, sizes.short, 60 + 3 * sizes.short)
                jobs = ran(run, found, 1.0)
                rates.append(MINUTE * (len(jobs) - 1) / (max(j.ended for j in jobs) - min(j.began for j in jobs)))
        name = f"{sizes.short:,} trials of one second on {sizes.slots} slots (peer: a bare DAG of the same jobs)"
        yield Row(name, rates[0], rates[1], "a minute", 0.9, higher=True, goal_is_ratio=True)

    def _pool(self) -> AbstractContextManager[Pool]:
        return pools.pool_up("bench-throughput", "trixie", self.area, self.sizes.slots, cpus=self.sizes.slots)

    def _folder(self, name: str) -> Path:
        folder = self.area / name
        folder.mkdir()
        return folder


def stretch(run: RunFolder, seconds: float) -> None:
    """Let each training sleep when it is done."""
    script = run.path / "train.sh"
    head, found, _ = script.read_text(encoding="utf-8").partition("exec ")
    if not found:
        raise NotMeasuredError("train.sh does not start the training by exec any more")
    script.write_text(head + STRETCH.format(seconds=seconds), encoding="utf-8")


def strip_scripts(run: RunFolder, trials: int) -> None:
    """Leave of the run's graph the same jobs without PRE, POST, final training and report; write what PRE would."""
    folder = next(run.path.glob("regions/*"))
    lines = [f"CONFIG {run.path / 'dagman.config'}"]
    for node in (NodeName(folder.name, number) for number in range(trials)):
        lines += [f"JOB {node} {folder}/train.sub", f'VARS {node} trial="{node.folder}"']
        place = folder / "trials" / node.folder
        (place / START_FOLDER).mkdir(parents=True, exist_ok=True)
        for file in BROUGHT_BACK:
            (place / START_FOLDER / file).touch()
        (place / ATTEMPT_SUBMIT).touch()
        (place / "trial.json").write_text(json.dumps({"node": str(node)}, indent=1) + "\n", encoding="utf-8")
    run.study_dag.write_text("\n".join(lines) + "\n", encoding="utf-8")


def ran(run: RunFolder, times: Mapping[NodeName, pools.Times], slept: float) -> list[Ran]:
    """Return the trials' jobs, each of which slept as long after the epochs that its log has."""
    jobs = []
    for node, found in times.items():
        if node.number is not None:
            log = run.region(node.slug).trial(node) / "log.jsonl"
            lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
            epochs = sum(json.loads(line)["seconds"] for line in lines)
            jobs.append(Ran(found.executing, found.ended, slept + epochs))
    return jobs


def seconds_beyond_training(jobs: Sequence[Ran], slots: int) -> list[float]:
    """Return how long a slot was taken by each trial, or waited for it, without training.

    The slot of a job is the one that has been free for the longest; the first job of each slot has nothing to wait for.
    """
    free = [-math.inf] * slots
    beyond = []
    for job in sorted(jobs, key=lambda job: job.began):
        slot = min(range(slots), key=free.__getitem__)
        if free[slot] > -math.inf:
            beyond.append(job.ended - free[slot] - job.trained)
        free[slot] = job.ended
    return beyond


if __name__ == "__main__":
    sys.exit(main(BENCH, lambda area, quick: Throughput(area, QUICK if quick else Sizes()).groups))
