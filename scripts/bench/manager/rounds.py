"""What lies between two rounds of a study, and the same graph without scripts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

from regiondag.pool.pool import Pool
from regiondag.run.layout import RunFolder, parse_node
from regiondag.tuning.propose import INITIAL_MOST, INITIAL_SHARE
from scripts.bench.manager import pools
from scripts.bench.manager.pools import Barrier, Times
from scripts.bench.manager.studies import Shape

SLEEP_SUBMIT = """\
universe = vanilla
executable = /bin/sleep
arguments = 1
transfer_executable = False
should_transfer_files = YES
request_cpus = 1
request_memory = 16MB
request_disk = 10MB
queue
"""


def barriers(pool: Pool, dag: Path, shape: Shape) -> list[Barrier]:
    """Run a DAG until its last round has begun; return what lay before the rounds that a model proposes."""
    log = dag.with_name(f"{dag.name}.nodes.log")
    pools.submit(pool, dag)
    pools.wait_for(lambda: _started(log) >= shape.trials, 40 * shape.rounds, "the last round")
    times = pools.read_events(log)
    pools.add_journals(RunFolder(dag.parent), times)
    return [
        pools.barrier(before, after)
        for index, before, after in rounds_of(times, shape.parallel)
        if fits_model(index, shape)
    ]


def _started(log: Path) -> int:
    """Return how many jobs an event log says have started."""
    return log.read_bytes().count(b"\n001 ") if log.exists() else 0


def rounds_of(times: Mapping[str, Times], parallel: int) -> list[tuple[int, list[Times], list[Times]]]:
    """Return (round, its trials, the next round's trials) of every region; final trainings are left out."""
    found: dict[tuple[str, int], list[Times]] = {}
    for name, node in times.items():
        trial = parse_node(name)
        if trial.number is not None:
            found.setdefault((trial.slug, trial.number // parallel), []).append(node)
    return [
        (index, trials, found[slug, index + 1]) for (slug, index), trials in found.items() if (slug, index + 1) in found
    ]


def fits_model(index: int, shape: Shape) -> bool:
    """Return whether the round after round `index` is proposed by a model rather than at random."""
    random = math.ceil(INITIAL_SHARE * shape.rounds * shape.parallel)
    return (index + 1) * shape.parallel >= min(max(random, 2), INITIAL_MOST)


def plain_dag(folder: Path, shape: Shape) -> Path:
    """Write a DAG of the same graph without scripts, by hand: what HTCondor itself needs between two rounds."""
    folder.mkdir()
    (folder / "sleep.sub").write_text(SLEEP_SUBMIT, encoding="utf-8")
    (folder / "dagman.config").write_text("DAGMAN_USE_JOIN_NODES = False\n", encoding="utf-8")
    lines = [f"CONFIG {folder}/dagman.config"]
    for region in range(shape.regions):
        names = [f"region-{region}_t{number:04d}" for number in range(shape.rounds * shape.parallel)]
        lines += [f"JOB {name} sleep.sub" for name in names]
        layers = [names[first : first + shape.parallel] for first in range(0, len(names), shape.parallel)]
        for parents, children in itertools.pairwise(layers):
            lines.append(f"PARENT {' '.join(parents)} CHILD {' '.join(children)}")
    dag = folder / "study.dag"
    dag.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return dag
