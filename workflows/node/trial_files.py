"""What PRE leaves for a node's job: its trial.json, what its next try asks for, and empty files to be given."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

from nnlib.contract import (
    CORRUPT,
    LOG_FILE,
    TRIAL_FILE,
    Trial,
    trial_to_json,
)
from nnlib.epoch_log import LONGEST_LOG
from nnlib.plain_file import read_plain
from nnlib.util.files import write_atomically
from regiondag.condor.quoting import classad_string
from regiondag.node.brought import remove_odd
from regiondag.run.history import History
from regiondag.run.layout import ATTEMPT_SUBMIT, FINAL_SUBMIT, START_FOLDER, TRAIN_SUBMIT, NodeName, RegionFolder
from regiondag.run.manager_log import say
from regiondag.run.region_spec import RegionSpec
from regiondag.run.sick_machines import choose_avoided, leave_some, query_machines, read_failures
from regiondag.study.job_rules import OUT_OF_MEMORY, gpus_after, memory_after, memory_steps

# In submit files; paths in them hold neither quotes nor macros.
_SHARED = re.compile(r'^MY\._x_catalog_\w+ = "(.*)"$', re.MULTILINE)
_INPUTS = re.compile(r"^transfer_input_files = .*$", re.MULTILINE)


def write_attempt(
    folder: RegionFolder, node: NodeName, spec: RegionSpec, history: History, ends: float | None = None
) -> None:
    """Write what the next try of a node asks for: more memory if that ran out, other machines than those that failed.

    Where a study makes do with fewer GPUs, each fault of a machine halves them.
    Where inputs came corrupt it shares them with no other job.
    DAGMan's next try is a new job, which knows nothing of the last one.
    """
    faults, job = history.faults_of(node.number), spec.job if node.number is not None else spec.final or spec.job
    small = sum(fault.reason.startswith(OUT_OF_MEMORY) for fault in faults)
    memory = memory_after(job, small)
    avoided = choose_avoided(read_failures(folder.run), faults, time.time())
    if avoided:
        avoided = dict(leave_some(avoided, query_machines(gpus=bool(job.gpus))))
        if avoided:
            say(f"{node}: not on {', '.join(avoided)}, where jobs of this run failed")
    clauses = [f"(TARGET.Machine =!= {classad_string(host)} || time() > {int(when)})" for host, when in avoided.items()]
    lines = [
        f"memory = {memory >> 20}",
        f"avoid = {''.join(f'&& {clause} ' for clause in clauses)}",
    ]
    if job.fewest_gpus is not None:
        lines.append(f"gpus = {gpus_after(job, len(faults) - small)}")
    if job.memory_max:
        lines.append(f"larger_memory = {', '.join(str(size >> 20) for size in memory_steps(job, memory))}")
    if ends is not None:
        lines.append(f"idle_until = {int(ends)}")
    if any(fault.reason.endswith(CORRUPT) for fault in faults):
        lines += _share_nothing(folder, node)
    write_atomically(folder.trial(node) / ATTEMPT_SUBMIT, "".join(f"{line.rstrip()}\n" for line in lines))


def _share_nothing(folder: RegionFolder, node: NodeName) -> Iterator[str]:
    """Yield what lets the next job bring all of its input files, as far as it shares some with other jobs.

    A machine keeps those for as long as jobs of the DAG ask for them, also where they came corrupt.
    """
    submit = (folder.path / (FINAL_SUBMIT if node.number is None else TRAIN_SUBMIT)).read_text(encoding="utf-8")
    shared, inputs = _SHARED.search(submit), _INPUTS.search(submit)
    if shared and inputs:
        say(f"{node}: with input files of its own, as those that jobs share came corrupt")
        yield "MY.CommonInputCatalogs = undefined"
        yield f"{inputs[0]},{shared[1]}"


def write_trial(folder: RegionFolder, node: NodeName, trial: Trial) -> None:
    """Write trial.json, and make the folder what a job of this node finds before its first try or its next one."""
    place = folder.trial(node)
    place.mkdir(parents=True, exist_ok=True)
    for odd in remove_odd(place):  # POST has not run where the DAG was removed
        say(f"{node}: removed what a job left: {odd}")
    start = place / START_FOLDER
    start.mkdir(exist_ok=True)
    brings = trial.outputs
    checkpoint = place / brings.checkpoint
    if checkpoint.exists() and checkpoint.stat().st_size:
        _move_log_and_checkpoint(place, start, brings.checkpoint)
    for name in set(brings.of_final) - {brings.checkpoint}:  # of an attempt before this one
        (place / name).unlink(missing_ok=True)
    # What a job brings back it is given: stopped before its first line, it would hold for a file that is not there.
    # HTCondor removes what it fails to bring back whole, so these lie where it never writes.
    for name in brings.of_final if node.number is None else brings.of_trial:
        (start / name).touch()
    write_atomically(place / TRIAL_FILE, trial_to_json(trial))


def _move_log_and_checkpoint(place: Path, start: Path, checkpoint: str) -> None:
    """Let the next job go on from there; the checkpoint last, as a crash between the two is repeated."""
    try:
        log = read_plain(place / LOG_FILE, LONGEST_LOG).decode(errors="replace")
    except OSError:  # the job begins anew where its checkpoint tells of epochs that no log knows
        log = ""
    write_atomically(start / LOG_FILE, log)
    (place / checkpoint).replace(start / checkpoint)
