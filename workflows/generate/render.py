"""Render what HTCondor and workers read. Syntax is quoted by `condor.quoting`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nnlib.contract import (
    TRIAL_FILE,
    Exit,
)
from nnlib.util.terminal import tell
from regiondag.condor import quoting, versions
from regiondag.condor.preflight import without_names
from regiondag.condor.templates import template_environment
from regiondag.condor.versions import Version
from regiondag.errors import GiveUpError
from regiondag.generate.plan import Plan, RegionPlan, build_plan
from regiondag.run import layout
from regiondag.run.layout import NodeName, RunFolder
from regiondag.study import job_rules
from regiondag.study.model import BUNDLE, Config, JobRequest
from regiondag.trainers.python_bundle import Bundle, provide_pythons
from regiondag.trainers.trainer import Trainer, trainer_of
from regiondag.util.schema import DURATION, size
from regiondag.util.text import list_some

MB = 1 << 20
SIZE = size()

Starts = Iterable[tuple[NodeName, Iterable[NodeName]]]


def _train_words(code: str, job: JobRequest) -> list[str]:
    """Return the arguments of train.sh."""
    every = [f"{job.checkpoint}s"] if job.checkpoint else []
    return [code, "gpu" if job.gpus else "cpu", *every]


def _request_gpus(job: JobRequest) -> str:
    """Return how many GPUs a job asks for: a number, or the largest of its counts that a machine has free.

    Where there is no machine to look at, as in the queue, that is the fewest.
    """
    *more, fewest = job.gpu_counts or (0,)
    if not more:
        return str(fewest)
    free = "countMatches(MY.RequireGPUs, TARGET.AvailableGPUs)" if job.require_gpus else "(TARGET.GPUs ?: 0)"
    chosen = str(fewest)
    for count in reversed(more):
        chosen = f"ifThenElse({free} >= {count}, {count}, {chosen})"
    return f"min({{ $(gpus), {chosen} }})"


def _requirements(job: JobRequest, trainer: Trainer, python: Bundle | None) -> str:
    """Return what a machine must be.

    One whose GPUs differ says no name of all: there several would be of two kinds.
    """
    clauses = [f"({quoting.submit_expression(job.requirements)})"]
    if job.gpus >= 2 and not re.search(r"\bDeviceName\b", job.require_gpus, re.IGNORECASE):
        clauses.append("(TARGET.GPUs_DeviceName =!= undefined)")
    clauses += [f"({job_rules.requires_glibc(python.glibc)})"] if python else []
    return " && ".join([*clauses, *(f"({one})" for one in trainer.requirements)])


def submit_texts(config: Config, htcondor: Version) -> dict[str, str]:
    """Return the submit files of a study, as they would be, by what they are for; of each kind one.

    No data are read, and nothing is written, but for a Python that goes with jobs, which is kept.
    """
    plan = build_plan(config)
    codes = ("manager.pyz", "worker.pyz")
    bundles = provide_pythons(config.regions, tell)
    given: dict[str, Any] = {"htcondor": htcondor, "python": "/usr/bin/python3", "codes": codes, "bundles": bundles}
    renderer = Renderer(RunFolder(Path("/run")), plan, **given)
    kinds: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for region in plan.regions:
        for path, pieces in renderer.submit_files(region):
            name, text, slug = path.rpartition("/")[2], "".join(pieces), region.region.slug
            kinds.setdefault((name, without_names(text, slug)), (text, []))[1].append(slug)
    return {f"{name} of {list_some(slugs, 3)}": text for (name, _), (text, slugs) in kinds.items()}


class Renderer:
    """Renders one run. Large texts come in pieces, so that a million nodes of a thousand regions need no memory."""

    def __init__(
        self,
        run: RunFolder,
        plan: Plan,
        *,
        htcondor: Version,
        python: str,
        codes: tuple[str, str],
        bundles: Mapping[str, Bundle] = MappingProxyType({}),
    ) -> None:
        """`codes`: names of the manager's and the worker's archive; `bundles`: Pythons of regions' jobs, by slug."""
        self.run = run
        self.plan = plan
        self.htcondor = htcondor
        self.python = python
        self.bundles = bundles
        self.manager_code, self.worker_code = codes
        self.environment = template_environment()

    def files(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Yield (path relative to the run directory, pieces of text) of every rendered file.

        The study's graph comes bit by bit: a region's nodes are made once for both graphs that have them. One INCLUDE a
        region in its place costs DAGMan 12 bytes times the square of the regions.
        """
        yield layout.DAGMAN_CONFIG, self._render("dagman.config.j2", jobs=self.plan.config.limits.jobs)
        yield layout.REPORT_SUBMIT, self._render("report.sub.j2")
        head, tail = self._ends(self.run.study_dag, self.plan.regions, [], self.plan.starts())
        yield layout.STUDY_DAG, head
        for region in self.plan.regions:
            slug = region.region.slug
            nodes = "".join(self._nodes(region))
            yield layout.STUDY_DAG, (nodes,)
            own_head, own_tail = self._ends(self.run.region(slug).dag, (region,), [slug])
            yield f"regions/{slug}/{layout.REGION_DAG}", itertools.chain(own_head, (nodes,), own_tail)
            yield from self.submit_files(region)
        yield layout.STUDY_DAG, tail

    def submit_files(self, plan: RegionPlan) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield those that submit one region's jobs."""
        where = f"regions/{plan.region.slug}"
        if plan.region.search.sizes:
            yield f"{where}/{layout.TRAIN_SUBMIT}", self._submit(plan, "Trials", ("train", "valid"))
        served, final_parts = plan.region.served_by, (*plan.region.final_parts, "test")
        if served:
            final_parts = (*next(p.region.final_parts for p in self.plan.regions if p.region.slug == served), "test")
        yield f"{where}/{layout.FINAL_SUBMIT}", self._submit(plan, "Final training", final_parts)

    def _nodes(self, plan: RegionPlan) -> Iterator[str]:
        """Render one region's nodes and what waits for what among them."""
        return self._render(
            "nodes.dag.j2",
            plan=plan,
            submit_files=self.run.region(plan.region.slug).submit_files,
            jobs_per_region=self.plan.config.limits.jobs_per_region,
            give_up=GiveUpError.exit_code,
        )

    def _ends(
        self, dag: Path, plans: tuple[RegionPlan, ...], only: list[str], starts: Starts = ()
    ) -> tuple[Iterator[str], Iterator[str]]:
        """Render what comes before and after the nodes of one graph.

        Its last node answers for the regions in `only`, or for all when that is empty.
        """
        trials = sum(plan.region.search.trials for plan in plans)
        head = self._render(
            "head.dag.j2",
            study=self.plan.config.name,
            title=f"{len(plans)} regions, {trials} trials",
            dag=dag,
            dagman_config=self.run.path / layout.DAGMAN_CONFIG,
            crashed=layout.DAGMAN_CRASHED,
        )
        tail = self._render(
            "tail.dag.j2",
            regions=only,
            python=self.python,
            code=self.manager_code,
            starts=starts,
            settled_before=layout.SETTLED_BEFORE,
            report_node=layout.REPORT_NODE,
            report_submit=self.run.path / layout.REPORT_SUBMIT,
            pre=self.run.path / "pre.sh",
            post=self.run.path / "post.sh",
        )
        return head, tail

    def _submit(self, plan: RegionPlan, title: str, parts: tuple[str, ...]) -> Iterator[str]:
        folder = self.run.region(plan.region.slug)
        source = self.run.region(plan.region.served_by or plan.region.slug)
        final = "test" in parts
        job = plan.region.final if final and plan.region.final else plan.region.job
        trainer = trainer_of(plan.region)
        brings = trainer.kind.outputs
        outputs = brings.of_final if final else brings.of_trial
        inputs = trainer.inputs(source, parts)
        if not plan.region.init.random:
            inputs.append(folder.init_model)
        inputs.append(self.run.path / self.worker_code)
        bundle = self.bundles[plan.region.slug] if job.python == BUNDLE else None
        inputs += [folder.python_bundle] if bundle else []
        once = not final and versions.supports(self.htcondor, "common_input_catalogs")
        catalog = layout.catalog_name(plan.region.slug) if once else ""
        return self._render(
            "job.sub.j2",
            title=title,
            folder=folder.path,
            train=self.run.path / "train.sh",
            train_words=_train_words(self.worker_code, job),
            checkpointed=Exit.CHECKPOINTED.value,
            checkpoint_outputs=brings.going_on,
            own_inputs=(TRIAL_FILE, *(f"{layout.START_FOLDER}/{name}" for name in outputs)),
            inputs=[] if catalog else inputs,
            catalog=catalog,
            catalog_files=",".join(map(quoting.path, inputs)),
            downloads=trainer.downloads,
            outputs=outputs,
            job=job,
            gpus=_request_gpus(job),
            requirements=_requirements(job, trainer, bundle),
            mb=MB,
            larger_memory=[size // MB for size in job_rules.memory_steps(job, job.memory)],
            attempt=layout.ATTEMPT_SUBMIT,
            final=final,
            log=layout.JOB_LOG,
            ends=job_rules,
            in_words=DURATION.write,
            in_bytes=SIZE.write,
            htcondor=self.htcondor,
            study=self.plan.config.name,
            region=plan.region.name,
            batch_name=f"{self.plan.config.name} {plan.region.slug}",
        )

    def _render(self, template: str, **values: Any) -> Iterator[str]:
        return self.environment.get_template(template).generate(**values)
