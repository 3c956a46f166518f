"""What the throughput benchmark runs on a real pool: trainings stretched to a length, and trials that only sleep."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orchestration_inputs as inputs
import orchestration_pool as pools
from harness import NotMeasuredError, measure

from nnlib.contract import CHECKPOINT_FILE, LOG_FILE, RESULT_FILE
from regiondag.pool.pool import Pool
from regiondag.run.layout import ATTEMPT_SUBMIT, START_FOLDER, NodeName, RunFolder, parse_node

BROUGHT_BACK = (RESULT_FILE, LOG_FILE, CHECKPOINT_FILE)  # a job is given what it brings back, empty at first

# A real training of some hundredths of a second, then sleep: trainings of a minute that leave the cores to the manager.
STRETCH = """\
"$python" "$1" train --trial trial.json --device "$2" || exit
sleep {seconds}
"""

# Its value is a function of the node's number, so that there is a best one.
SLEEP = """\
#!/bin/sh
node=$(sed -n 's/^ *"node": "\\(.*\\)".*/\\1/p' trial.json)
value=0.$(printf %s "$node" | cksum | cut -c1-6)
sleep 1
: >log.jsonl
echo model >model.nc
cat >result.json <<END
{"version": 1, "node": "$node", "status": "ok", "value": $value, "metrics": {"ndcg@5": $value}, "curve": [$value],
 "best_epoch": 1, "epochs": 1, "seconds": 1.0}
END
"""


@dataclass(frozen=True)
class Ran:
    """One trial's job: Unix times of its start and end on its slot, and the seconds in which it trained."""

    began: float
    ended: float
    trained: float


def stretched_study(pool: Pool, area: Path, lanes: int, steps: int, seconds: float) -> RunFolder:
    """Return a run of real trainings that each sleep for `seconds` when they are done."""
    run = _generate(pool, area, "stretched", "bayes\n  schedule: lanes", steps, lanes)
    script = run.path / "train.sh"
    text = script.read_text(encoding="utf-8")
    head, found, _ = text.partition("exec ")
    if not found:
        raise NotMeasuredError("train.sh does not start the training by exec any more")
    script.write_text(head + STRETCH.format(seconds=seconds), encoding="utf-8")
    return run


def short_study(pool: Pool, area: Path, trials: int) -> RunFolder:
    """Return a run of independent trials that sleep for a second."""
    run = _generate(pool, area, "short", "sobol", 1, trials)
    (run.path / "train.sh").write_text(SLEEP, encoding="utf-8")
    return run


def _generate(pool: Pool, area: Path, name: str, method: str, steps: int, lanes: int) -> RunFolder:
    study = inputs.write_study(area, name, 1, steps, lanes)
    text = study.read_text(encoding="utf-8").replace("method: bayes", f"method: {method}")
    study.write_text(text, encoding="utf-8")
    words = ["--htcondor", ".".join(map(str, pool.version)), "--champions", "none", "--out", area / "runs"]
    return RunFolder(Path(measure([*pools.REGIONDAG, "generate", study, *words]).output.strip()))


def strip_scripts(run: RunFolder, trials: int) -> None:
    """Leave of the run's graph the same jobs without PRE, POST, final training and report; write what PRE would."""
    folder = next(run.path.glob("regions/*"))
    lines = ["CONFIG " + str(run.path / "dagman.config")]
    for number in range(trials):
        node = NodeName(folder.name, number)
        lines.append(f"JOB {node} {folder}/train.sub")
        lines.append(f'VARS {node} trial="{node.folder}"')
        place = folder / "trials" / node.folder
        (place / START_FOLDER).mkdir(parents=True, exist_ok=True)
        for file in BROUGHT_BACK:
            (place / START_FOLDER / file).touch()
        (place / ATTEMPT_SUBMIT).touch()
        (place / "trial.json").write_text(json.dumps({"node": str(node)}, indent=1) + "\n", encoding="utf-8")
    run.study_dag.write_text("\n".join(lines) + "\n", encoding="utf-8")


def finish_study(pool: Pool, run: RunFolder, trials: int, slept: float, patience: float) -> list[Ran]:
    """Submit, wait until DAGMan has ended, and return what its log says of the trials, each of which slept as long."""
    pools.submit(pool, run.study_dag)
    out = run.path / "study.dag.dagman.out"
    deadline = time.monotonic() + patience
    while not out.exists() or "EXITING WITH STATUS" not in _end_of(out):
        if time.monotonic() > deadline:
            raise NotMeasuredError(f"{run.path}: not within {patience:.0f} s")
        time.sleep(2)  # seldom: it takes time from the pool
    times = pools.read_events(run.path / "study.dag.nodes.log")
    times.pop("report", None)
    jobs = [
        Ran(found.executing, found.ended, slept + _trained(run, parse_node(name)))
        for name, found in times.items()
        if parse_node(name).number is not None and not math.isnan(found.ended)
    ]
    if len(jobs) < trials:
        raise NotMeasuredError(f"only {len(jobs)} of {trials} jobs ended; see {run.path}")
    return jobs


def seconds_beyond_training(jobs: Sequence[Ran], slots: int) -> list[float]:
    """Return how long a slot was taken by each trial, or waited for it, without training.

    The slot of a job is the one that has been free for the longest; the first job of each slot has nothing to wait for.
    """
    free = [math.nan] * slots
    beyond = []
    for job in sorted(jobs, key=lambda job: job.began):
        slot = min(range(slots), key=lambda number: -math.inf if math.isnan(free[number]) else free[number])
        if not math.isnan(free[slot]):
            beyond.append(job.ended - free[slot] - job.trained)
        free[slot] = job.ended
    return beyond


def busy_share(jobs: Sequence[Ran], slots: int) -> float:
    """Return the share of all slots' time, from the first start to the last end, in which they trained."""
    lasted = max(job.ended for job in jobs) - min(job.began for job in jobs)
    return sum(job.trained for job in jobs) / (slots * lasted)


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 2000, 0))
        return file.read().decode(errors="replace")


def _trained(run: RunFolder, node: NodeName) -> float:
    """Return the seconds of a trial's epochs."""
    log = run.region(node.slug).trial(node) / "log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return sum(json.loads(line)["seconds"] for line in lines)
