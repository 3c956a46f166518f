"""How busy lanes keep the slots beside rounds, where trials take between one and four times as long as the shortest."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import Metric, TrainSettings
from regiondag.generate.plan import RegionPlan
from regiondag.pool.pool import Pool
from regiondag.run.layout import NodeName
from regiondag.study.model import JobRequest, Region, Search
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.manager import pools, studies
from scripts.bench.manager.pools import Times
from scripts.bench.manager.studies import Shape

BENCH = "lanes"
SCHEDULES = ("lanes", "rounds")
LONGEST = 4  # times as long as the shortest trial
PATIENCE = 3  # times as long as the trials take without any gap


@dataclass(frozen=True)
class Study:
    """Regions with `lanes` trials at the same time and `steps` one after the other, on `slots`."""

    regions: int
    lanes: int
    steps: int
    slots: int
    shortest: float  # seconds of a trial

    def __str__(self) -> str:
        regions = "1 region" if self.regions == 1 else f"{self.regions} regions"
        length = f"{self.shortest:.0f} to {LONGEST * self.shortest:.0f} s"
        return f"{regions} x {self.lanes} lanes x {self.steps} trials of {length} on {self.slots} slots"


FULL = (Study(1, 4, 8, 4, 15), Study(1, 6, 6, 4, 15), Study(3, 4, 4, 4, 15))
QUICK = (Study(1, 2, 2, 2, 1),)


def plans(shape: Study, schedule: str) -> list[RegionPlan]:
    """Return the graph of a study of this shape, as `generate` writes it."""
    search = Search("sobol", (), (shape.lanes,) * shape.steps, schedule=schedule)
    return [
        RegionPlan(Region(slug, slug, {}, Path(), Metric(), TrainSettings(), search, JobRequest()))
        for slug in (f"region-{number}" for number in range(shape.regions))
    ]


def run_study(pool: Pool, area: Path, shape: Study, schedule: str) -> dict[NodeName, Times]:
    """Run a study to its end, each node as long in both schedules; return when its nodes ran."""
    nodes = [node for region in plans(shape, "lanes") for node in region.nodes()]
    seconds = {node: shape.shortest * LONGEST ** random.Random(f"{node} 0").random() for node in nodes}  # noqa: S311
    size = Shape(shape.regions, shape.steps, shape.lanes)
    run = studies.generate(studies.write_study(area, schedule, size, schedule=schedule), pools.dotted(pool))
    (run.path / "train.sh").write_text(studies.worker(shape.shortest, seconds), encoding="utf-8")
    patience = PATIENCE * (sum(seconds.values()) / shape.slots + 20 * shape.steps)
    jobs = shape.regions * (shape.lanes * shape.steps + 1)  # the other nodes of lanes do nothing
    return studies.finish(pool, run, jobs, patience)


def busy(nodes: Mapping[NodeName, Times], slots: int) -> float:
    """Return the per cent of the slots' time, up to the last trial's end, in which jobs ran."""
    first = min(found.executing for found in nodes.values())
    last = max(found.ended for node, found in nodes.items() if node.number is not None)
    ran = sum(max(0.0, min(found.ended, last) - found.executing) for found in nodes.values())
    return 100 * ran / (slots * (last - first))


def _delays(shape: Study, nodes: Mapping[NodeName, Times]) -> Iterator[Row]:
    """Return what lies between two trials of a lane; a job could have had the slot that is free for the longest."""
    edges = [edge for region in plans(shape, "lanes") for edge in region.edges()]
    parents: dict[NodeName, list[NodeName]] = {}
    for before, after in edges:
        for node in after:
            parents.setdefault(node, []).extend(before)
    manager = [
        nodes[node].submitted - max(nodes[parent].ended for parent in before)
        for node, before in parents.items()
        if node in nodes and nodes.keys() >= set(before)
    ]
    parts = [pools.barrier([nodes[before[0]]], [nodes[after[0]]])
             for before, after in edges if after[0].number is not None and after[0] in nodes]  # fmt: skip
    note = f"means of the parts: {pools.averaged(parts, statistics.fmean)}"
    name = "end of a trial to its lane's next one in the queue, mean"
    yield Row(name, statistics.fmean(manager), None, "s", note=note)
    taken = pools.slots_taken(nodes, shape.slots)
    start = [nodes[node].executing - max(nodes[node].submitted, free) for node, free in taken]
    yield Row("a job in the queue and a slot free, to the job's start, mean", statistics.fmean(start), None, "s")


class Lanes(Bench[tuple[Study, ...]]):
    """The one group of rows."""

    def pool(self) -> Iterator[Row]:
        """A real study whose jobs sleep, in lanes and in rounds."""
        most = max(shape.slots for shape in self.sizes)
        with pools.pool_up("bench-lanes", "trixie", self.area, most, cpus=most) as pool:
            for index, shape in enumerate(self.sizes):
                folder = self.area / str(index)
                lanes, rounds = (run_study(pool, folder, shape, schedule) for schedule in SCHEDULES)
                name = f"slots busy with lanes (peer: rounds), on the pool: {shape}"
                yield Row(name, busy(lanes, shape.slots), busy(rounds, shape.slots), "%", 95, higher=True)
                if not index:
                    yield from _delays(shape, lanes)


if __name__ == "__main__":
    sys.exit(main(BENCH, Lanes, FULL, QUICK))
