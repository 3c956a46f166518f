"""Write a batch on a pool: its DAG, how it is submitted again, and where it stands."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nnlib.util.files import link_or_copy
from regiondag.condor import client, quoting
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.condor.submit import find_unfinished_job
from regiondag.condor.templates import template_environment
from regiondag.errors import GiveUpError, RegiondagError
from regiondag.generate.bundle import pack_recommend, pack_worker
from regiondag.pool.pool import Pool
from regiondag.recommend.batch import BatchFolder, BatchPlan, RegionBatch
from regiondag.recommend.make import AIM, DATA, FLOOR, MODEL, NEVER, ONLY
from regiondag.run import layout
from regiondag.run.layout import dagman_file, dagman_log
from regiondag.study import job_rules
from regiondag.study.submit_commands import Submit
from regiondag.trainers.python_bundle import read_bundle
from regiondag.util.resources import resource_dir

SCRIPTS = ("pre.sh", "post.sh", "recommend.sh")
RETRIES = 3
MB = 1 << 20
LEAST_MEMORY = 512  # MB: Python with NumPy and SciPy, and a block of scores
HELD, IDLE = 3600, 7 * 86_400  # seconds after which such a job is removed
DEADLINE = int(20 * AIM)


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """Where a batch stands."""

    folder: str
    dag: str  # not submitted, idle, running, held, removed or ended
    exit_code: int | None  # of DAGMan, once it has ended
    finished: bool  # whether the manifest is there
    files: int
    written: int  # files that are there
    customers: int
    done: int  # customers in them
    running: int
    idle: int
    held: int
    hold_reason: str  # of the first held job

    @property
    def over(self) -> bool:
        """Whether nothing will change any more by itself."""
        return self.finished or self.dag in ("ended", "removed", "not submitted")


def write_dag(
    batch: BatchFolder,
    plan: BatchPlan,
    submit: Mapping[str, Submit] = MappingProxyType({}),
    bundles: Mapping[str, Path] = MappingProxyType({}),
) -> None:
    """Write all that HTCondor reads of a batch; done again it is the same, unless the program is newer.

    `submit`: commands that a study adds to the jobs of its regions, by slug; `bundles`: the Pythons that they bring.
    """
    manager, worker = pack_recommend(), pack_worker()
    for archive in (manager, worker):
        (batch.work / archive.name).write_bytes(archive.content)
    for script in SCRIPTS:
        shutil.copy(resource_dir("scripts") / "dag" / script, batch.work / script)
    environment = template_environment()

    def write(path: Path, template: str, **values: object) -> None:
        path.write_text(environment.get_template(template).render(**values), encoding="utf-8")

    write(batch.work / layout.DAGMAN_CONFIG, "dagman.config.j2", jobs=0)
    write(batch.work / layout.REPORT_SUBMIT, "report.sub.j2")
    for region in plan.regions:
        values = _job(batch, plan, region, worker.name) | {"submit": submit.get(region.slug, {})}
        if region.slug in bundles:
            values |= _bring_python(bundles[region.slug], batch.inputs(region.slug), values)
        write(batch.inputs(region.slug) / "recommend.sub", "recommend.sub.j2", **values)
    write(
        batch.dag,
        "recommend.dag.j2",
        study=_name_of(plan.study),
        dag=batch.dag,
        work=batch.work,
        dagman_config=batch.work / layout.DAGMAN_CONFIG,
        chunks=list(plan.chunks()),
        retries=RETRIES,
        give_up=GiveUpError.exit_code,
        python=_python(batch),
        code=manager.name,
        settled_before=layout.SETTLED_BEFORE,
        crashed=layout.DAGMAN_CRASHED,
        report_node=layout.REPORT_NODE,
    )


def submit_batch(pool: Pool, batch: BatchFolder) -> int:
    """Run condor_submit_dag, unless DAGMan is at it already; return its job. PRE passes over what is there.

    RegiondagError with what condor_submit_dag says where it refuses.
    """
    job = find_unfinished_job(pool, dagman_log(batch.dag))
    if job is not None:
        return job
    again = ["-f"] if dagman_file(batch.dag, "condor.sub").exists() else []
    done = pool.run(["condor_submit_dag", *again, str(batch.dag)], cwd=batch.work, capture_output=True)
    state = read_dag_log(dagman_log(batch.dag))
    if done.returncode or state is None:
        raise RegiondagError(f"condor_submit_dag refused {batch.dag}: {(done.stderr or done.stdout).strip()[-500:]}")
    return state.cluster


def read_status(batch: BatchFolder, plan: BatchPlan, pool: Pool | None) -> BatchStatus:
    """Return where a batch stands: files for what is done, the queue for what is not."""
    chunks = list(plan.chunks())
    there = [chunk for chunk in chunks if batch.is_there(chunk)]
    state = read_dag_log(dagman_log(batch.dag))
    jobs = client.query_jobs(pool, state.cluster) if pool and state and state.ended is None else []
    counts = Counter(job.status for job in jobs)
    return BatchStatus(
        folder=str(batch.path),
        dag=state.status if state else "not submitted",
        exit_code=state.exit_code if state else None,
        finished=batch.manifest.exists(),
        files=len(chunks),
        written=len(there),
        customers=sum(chunk.customers for chunk in chunks),
        done=sum(chunk.customers for chunk in there),
        running=counts["running"] + counts["transferring"],
        idle=counts["idle"],
        held=counts["held"],
        hold_reason=next((job.hold_reason for job in jobs if job.hold_reason), ""),
    )


def describe_status(status: BatchStatus) -> str:
    """Return where a batch stands, in words."""
    files = f"{status.written:,} of {status.files:,} files, {status.done:,} of {status.customers:,} customers"
    if status.finished:
        return f"{status.folder}: whole, {status.files:,} files of {status.customers:,} customers"
    jobs = [
        f"{n} {what}" for n, what in ((status.running, "running"), (status.idle, "waiting"), (status.held, "held")) if n
    ]
    said = f"{status.folder}: {files}; {', '.join(jobs) or f'its DAG: {status.dag}'}"
    if status.hold_reason:
        said += f"; held: {status.hold_reason}"
    if status.over:
        said += "; not whole: the same command again writes what is missing, manager.log in _work says why"
    return said


def _job(batch: BatchFolder, plan: BatchPlan, region: RegionBatch, code: str) -> dict[str, object]:
    """Return what the submit file of a region says."""
    inputs = batch.inputs(region.slug)
    files = [inputs / MODEL, inputs / DATA, *([inputs / FLOOR] if region.floor else [])]
    lists = {"--only": ONLY if plan.only else "", "--never": NEVER if plan.never else ""}
    files += [batch.work / name for name in lists.values() if name]
    words = [MODEL, DATA, "-k", str(plan.k), "--region", region.name]
    words += ["--floor", FLOOR] if region.floor else []
    words += [] if plan.owned is None else ["--exclude", "none" if plan.owned else "owned"]
    for option, name in lists.items():
        words += [option, name] if name else []
    size = sum(path.stat().st_size for path in files) // MB
    return {
        "work": batch.work,
        "folder": batch.path / region.slug,
        "inputs": inputs,
        "code": batch.work / code,
        "code_name": code,
        "words": quoting.arguments(words)[1:-1],
        "files": files,
        "memory": LEAST_MEMORY + 4 * size,
        "disk": 200 + 2 * size + region.chunk * plan.k * 64 // MB,
        "requirements": "true",
        "ends": job_rules,
        "held": HELD,
        "idle": IDLE,
        "deadline": DEADLINE,
        "study": plan.study,
        "region": region.name,
        "batch_name": f"{plan.study} recommend {region.slug}",
    }


def _bring_python(file: Path, inputs: Path, values: Mapping[str, Any]) -> dict[str, object]:
    """Return what changes in a submit file where jobs bring their Python, which goes to the batch's inputs."""
    bundle = read_bundle(file)
    link_or_copy(file, inputs / layout.BUNDLE_FILE)
    return {
        "files": [*values["files"], inputs / layout.BUNDLE_FILE],
        "disk": values["disk"] + bundle.disk // MB,
        "requirements": job_rules.requires_glibc(bundle.glibc),
    }


def _name_of(study: str) -> str:
    """Return a study's name as a comment of the DAG has it."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in study) or "-"


def _python(batch: BatchFolder) -> str:
    """Return the Python of PRE and POST; where a DAG cannot name it, as in a folder with spaces, what starts it."""
    if quoting.is_path(sys.executable):
        return sys.executable
    script = batch.work / layout.PYTHON_FILE
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return str(script)
