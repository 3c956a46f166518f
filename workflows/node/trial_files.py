"""What PRE leaves for a node's job: its trial.json, what its next try asks for, and empty files to be given."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from nnlib.contract import (
    CONTAINER_FILE,
    ENVIRONMENT_FILE,
    INIT_FILE,
    LOG_FILE,
    PROGRAM_FILE,
    TRIAL_FILE,
    Role,
    Trial,
    trial_to_json,
)
from nnlib.util.files import write_atomically
from regiondag.condor.quoting import classad_string
from regiondag.run.history import History
from regiondag.run.layout import ATTEMPT_SUBMIT, NETWORK_FILE, START_FOLDER, NodeName, RegionFolder, data_file
from regiondag.run.manager_log import say
from regiondag.run.region_spec import RegionSpec
from regiondag.run.sick_machines import choose_avoided, leave_some, query_machines, read_failures
from regiondag.run.trial_recipes import recipe_of_trial
from regiondag.study.families import FAMILY, network_space
from regiondag.study.job_rules import OUT_OF_MEMORY, gpus_after, memory_after, memory_steps
from regiondag.study.model import TRAIN_SETTINGS
from regiondag.study.program import program_trial
from regiondag.study.space import Point, Value, with_defaults

OF_PROGRAMS = (PROGRAM_FILE, CONTAINER_FILE, ENVIRONMENT_FILE)  # what their jobs are sent, as far as it is there


def make_trial(
    spec: RegionSpec, node: NodeName, role: Role, history: History, number: int, parts: tuple[str, ...]
) -> Trial:
    """Return the job of a trial, or the one that trains what the trial `number` has found."""
    if spec.runs_program:
        return _make_program_trial(spec, node, role, history.proposals[number].point)
    recipe = recipe_of_trial(spec, history, number)
    point: Mapping[str, Value] = {} if recipe else history.proposals[number].point
    point = {name: value for name, value in point.items() if name != FAMILY}
    network = {} if recipe else {NETWORK_FILE: spec.sha256[NETWORK_FILE]}
    settings = {name: value for name, value in point.items() if name in TRAIN_SETTINGS}
    init = {} if spec.init.random else {INIT_FILE: spec.sha256[INIT_FILE]}
    placeholders = {} if recipe else with_defaults(network_space(spec.search.space), point)
    others = {name: value for name, value in placeholders.items() if name not in TRAIN_SETTINGS}
    return Trial(
        node=str(node),
        region=spec.name,
        number=-1 if node.number is None else node.number,
        role=role,
        network="" if recipe else NETWORK_FILE,
        recipe=recipe,
        hyperparameters=others,
        train=replace(spec.train, **settings),  # type: ignore[arg-type]  # checked when study.yaml was read
        metric=spec.metric,
        train_files=tuple(data_file(part) for part in parts),
        init=None if spec.init.random else INIT_FILE,
        sha256={**network, **digests_of(spec, [*parts, *_valid(role)]), **init},
    )


def _make_program_trial(spec: RegionSpec, node: NodeName, role: Role, point: Point) -> Trial:
    return program_trial(
        str(node),
        spec.name,
        -1 if node.number is None else node.number,
        role,
        space=spec.search.space,
        point=point,
        train=spec.train,
        metric=spec.metric,
        sha256={name: spec.sha256[name] for name in OF_PROGRAMS if name in spec.sha256},
    )


def _valid(role: Role) -> list[str]:
    return ["valid"] if role is Role.TUNE else []


def digests_of(spec: RegionSpec, parts: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 that the data files of some parts must have."""
    return {file: spec.sha256[file] for file in map(data_file, parts)}


def write_attempt(
    folder: RegionFolder, node: NodeName, spec: RegionSpec, history: History, ends: float | None = None
) -> None:
    """Write what the next try of a node asks for: more memory if that ran out, other machines than those that failed.

    Where a study makes do with fewer GPUs, each fault of a machine halves them.
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
    write_atomically(folder.trial(node) / ATTEMPT_SUBMIT, "".join(f"{line.rstrip()}\n" for line in lines))


def write_trial(folder: RegionFolder, node: NodeName, trial: Trial) -> None:
    """Write trial.json, and make the folder what a job of this node finds before its first try or its next one."""
    place = folder.trial(node)
    start = place / START_FOLDER
    start.mkdir(parents=True, exist_ok=True)
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
    log = place / LOG_FILE
    write_atomically(start / LOG_FILE, log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")
    (place / checkpoint).replace(start / checkpoint)
