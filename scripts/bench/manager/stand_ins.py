"""Studies on a real pool whose jobs are stand-ins that sleep; all else of them is as in any study."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from pathlib import Path

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
: >log.jsonl
cat >result.json <<END
{result}
END
"""


def generate(
    pool: Pool, area: Path, name: str, shape: tuple[int, int, int], method: str = "bayes", schedule: str = "rounds"
) -> RunFolder:
    """Return a run of so many regions, steps and lanes."""
    study = made_up_study.write_study(area, name, *shape)
    text = study.read_text(encoding="utf-8").replace("method: bayes", f"method: {method}\n  schedule: {schedule}")
    study.write_text(text, encoding="utf-8")
    words: list[str | Path] = ["--htcondor", pools.dotted(pool), "--champions", "none", "--out", area / "runs"]
    return RunFolder(Path(measure([*pools.REGIONDAG, "generate", study, *words]).output.strip()))


def worker(default: float, seconds: Mapping[NodeName, float] | None = None) -> str:
    """Return the script that every job runs instead of a training; nodes may take other times than the default."""
    metrics = {"ndcg@5": 0.5, "p@10": 0.5, "ndcg@20": 0.5}
    model = hashlib.sha256(b"model\n").hexdigest()
    result = Result("NODE", Status.OK, value=0.5, metrics=metrics, baseline=metrics, curve=(0.5,), best_epoch=1,
                    epochs=1, examples=8, seconds=1.0, model=model)  # fmt: skip
    text = result_to_json(result).replace('"NODE"', '"$node"').replace("0.5", "$value")
    cases = "\n".join(f"{node}) seconds={length:.3f} ;;" for node, length in (seconds or {}).items())
    return WORKER.format(cases=cases, seconds=default, result=text)


def finish(pool: Pool, run: RunFolder, jobs: int, patience: float) -> dict[NodeName, Times]:
    """Submit, wait until DAGMan has ended, and return when the nodes ran that ended; they must be so many."""
    pools.submit(pool, run.study_dag)
    out = run.path / "study.dag.dagman.out"
    deadline = time.monotonic() + patience
    while not out.exists() or "EXITING WITH STATUS" not in _end_of(out):
        if time.monotonic() > deadline:
            raise NotMeasuredError(f"{run.path}: not within {patience:.0f} s")
        time.sleep(2)  # seldom: it takes time from the pool
    times = pools.read_events(run.path / "study.dag.nodes.log")
    times.pop("report", None)
    pools.add_journals(run, times)
    found = {parse_node(name): one for name, one in times.items() if not math.isnan(one.ended)}
    if len(found) < jobs:
        raise NotMeasuredError(f"only {len(found)} of {jobs} jobs ended: {_end_of(run.path / 'manager.log')}")
    return found


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 600, 0))
        return file.read().decode(errors="replace")
