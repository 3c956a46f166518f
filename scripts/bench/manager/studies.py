"""Studies to be measured: made up, generated, in progress, and on a real pool with jobs that only sleep."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

from nnlib.contract import Result, Status, result_to_json
from regiondag.pool.pool import Pool
from regiondag.run.layout import NodeName, RunFolder, parse_node
from scripts.bench.common.processes import NotMeasuredError, measure
from scripts.bench.manager import pools
from scripts.bench.manager.pools import Times
from tests.support import made_up_study

# Sleeps as long as its trial is to take, and says that it went well; its value is a function of the node's name.
WORKER = """\
#!/bin/sh
node=$(sed -n 's/^ *"node": "\\(.*\\)".*/\\1/p' trial.json)
case $node in
{cases}
*) seconds={seconds} ;;
esac
value=0.$(printf %s "$node" | cksum | cut -c1-6)
sleep "$seconds"
echo model >model.nc
base64 -d >scores.npy <<END
{scores}
END
: >log.jsonl
cat >result.json <<END
{result}
END
"""


@dataclass(frozen=True)
class Shape:
    """Size of a study."""

    regions: int
    rounds: int
    parallel: int

    @property
    def trials(self) -> int:
        """Trials over all regions."""
        return self.regions * self.rounds * self.parallel

    def __str__(self) -> str:
        return f"{self.regions:,} regions x {self.rounds} rounds x {self.parallel}"


def write_study(area: Path, name: str, shape: Shape, method: str = "bayes", schedule: str = "rounds") -> Path:
    """Write a study with tiny data; return its path."""
    study = made_up_study.write_study(area, name, *astuple(shape))
    text = study.read_text(encoding="utf-8").replace("method: bayes", f"method: {method}\n  schedule: {schedule}")
    study.write_text(text, encoding="utf-8")
    return study


def generate_argv(study: Path, version: str = "23.9") -> list[str | Path]:
    """Return the call of `regiondag generate`, for a version of HTCondor."""
    out = study.parent / "runs"
    return [*pools.REGIONDAG, "generate", study, "--htcondor", version, "--champions", "none", "--out", out]


def generate(study: Path, version: str) -> RunFolder:
    """Return the run that `regiondag generate` makes."""
    return RunFolder(Path(measure(generate_argv(study, version)).output.strip()))


def make_progress(run: RunFolder, shape: Shape, share: float) -> int:
    """Write the journals and DAGMan's log of a run in progress; return how many trials of a region are settled."""
    trials = shape.rounds * shape.parallel
    settled = int(trials * share)
    made_up_study.fill_journals(run, slugs_of(run), trials, settled)
    made_up_study.write_dagman_log(run, cluster=999_999)
    return settled


def slugs_of(run: RunFolder) -> list[str]:
    """Return the run's regions."""
    return list(json.loads(run.manifest.read_text(encoding="utf-8"))["regions"])


def worker(default: float, seconds: Mapping[NodeName, float] | None = None) -> str:
    """Return the script that every job runs instead of a training; nodes may take other times than the default."""
    metrics = {"ndcg@5": 0.5, "p@10": 0.5, "ndcg@20": 0.5}
    model = hashlib.sha256(b"model\n").hexdigest()
    scores = io.BytesIO()
    np.save(scores, np.full((1, len(metrics), 1), 0.5, np.float32), allow_pickle=False)  # one customer
    result = Result("NODE", Status.OK, value=0.5, metrics=metrics, baseline=metrics, curve=(0.5,), best_epoch=1,
                    epochs=1, examples=8, seconds=1.0, model=model,
                    scores=hashlib.sha256(scores.getvalue()).hexdigest())  # fmt: skip
    text = result_to_json(result).replace('"NODE"', '"$node"').replace("0.5", "$value")
    cases = "\n".join(f"{node}) seconds={length:.3f} ;;" for node, length in (seconds or {}).items())
    encoded = base64.b64encode(scores.getvalue()).decode()
    return WORKER.format(cases=cases, seconds=default, result=text, scores=encoded)


def finish(pool: Pool, run: RunFolder, jobs: int, patience: float) -> dict[NodeName, Times]:
    """Submit, wait until DAGMan has ended, and return when the nodes ran that ended; they must be so many."""
    out = run.path / "study.dag.dagman.out"
    pools.submit(pool, run.study_dag)
    pools.wait_for(lambda: pools.ENDED in pools.read_end(out), patience, str(run.path), every=2)
    times = pools.read_events(run.path / "study.dag.nodes.log")
    times.pop("report", None)
    pools.add_journals(run, times)
    found = {parse_node(name): one for name, one in times.items() if not math.isnan(one.ended)}
    if len(found) < jobs:
        raise NotMeasuredError(f"only {len(found)} of {jobs} jobs ended: {pools.read_end(run.path / 'manager.log')}")
    return found
