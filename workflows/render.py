"""Render what HTCondor and workers read. The only module that imports Jinja2; syntax is quoted by `submit_syntax`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from nnlib.contract import CHECKPOINT_FILE, LOG_FILE, MODEL_FILE, RESULT_FILE, TRIAL_FILE, Exit
from workflows import endings, features, names, submit_syntax
from workflows.errors import GiveUpError
from workflows.features import Version
from workflows.names import NodeName, RunFolder
from workflows.plan import Plan, RegionPlan
from workflows.resources import resource_dir
from workflows.study import Job

MB = 1 << 20
PAGE_SCRIPTS = ("base.js", "table.js", "plots.js", "timeline.js", "page.js")  # one after the other in one script
CHECKPOINT_OUTPUTS = (RESULT_FILE, LOG_FILE, CHECKPOINT_FILE)  # all that a training needs to go on elsewhere
FINAL_OUTPUTS = (*CHECKPOINT_OUTPUTS, MODEL_FILE)

Starts = Iterable[tuple[NodeName, Iterable[NodeName]]]


def _refuse_silent_values(value: Any) -> Any:
    """No expression may print None, or a line break that would start a command of its own."""
    if value is None:
        raise jinja2.TemplateRuntimeError("a template printed None")
    if isinstance(value, str) and ("\n" in value or "\r" in value):
        raise submit_syntax.QuotingError(f"{value!r} holds a line break")
    return value


def _json_text(value: Any) -> str:
    """Return JSON in printable ASCII on one line; so written, it is YAML as well."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True).replace("\x7f", "\\u007f")


def _train_words(code: str, job: Job) -> list[str]:
    """Return the arguments of train.sh."""
    every = [f"{job.checkpoint}s"] if job.checkpoint else []
    return [code, "gpu" if job.gpus else "cpu", *every]


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_dir("templates")),
        undefined=jinja2.StrictUndefined,
        finalize=_refuse_silent_values,
        autoescape=False,  # noqa: S701 (not HTML; submit_syntax quotes)
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for quote in (
        submit_syntax.path,
        submit_syntax.name,
        submit_syntax.arguments,
        submit_syntax.submit_value,
        submit_syntax.submit_expression,
        submit_syntax.classad_string,
    ):
        environment.filters[quote.__name__] = quote
    environment.filters["supports"] = features.supports
    environment.filters["json_text"] = _json_text
    return environment


class Renderer:
    """Renders one run. Large texts come in pieces, so that a million nodes need no memory."""

    def __init__(
        self,
        run: RunFolder,
        plan: Plan,
        *,
        htcondor: Version,
        python: str,
        codes: tuple[str, str],
        standing: frozenset[str],
    ) -> None:
        """`codes`: names of the manager's and the worker's archive; `standing`: slugs that have a champion."""
        self.run = run
        self.plan = plan
        self.htcondor = htcondor
        self.python = python
        self.manager_code, self.worker_code = codes
        self.standing = standing
        self.environment = _environment()

    def files(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield (path relative to the run directory, pieces of text) of every rendered file."""
        yield names.DAGMAN_CONFIG, self._render("dagman.config.j2", jobs=self.plan.config.limits.jobs)
        yield names.REPORT_SUBMIT, self._render("report.sub.j2")
        yield names.STUDY_DAG, self._dag(self.run.study_dag, self.plan.regions, [], self.plan.starts())
        for region in self.plan.regions:
            yield from self._region_files(region)

    def _region_files(self, plan: RegionPlan) -> Iterator[tuple[str, Iterator[str]]]:
        folder = self.run.region(plan.region.slug)
        where = f"regions/{plan.region.slug}"
        train, final = folder.submit_files
        yield f"{where}/{names.REGION_DAG}", self._dag(folder.dag, (plan,), [plan.region.slug])
        yield (
            f"{where}/{names.NODES_DAG}",
            self._render(
                "nodes.dag.j2",
                plan=plan,
                standing=folder.standing_model if plan.region.slug in self.standing else "",
                train_submit=train,
                final_submit=final,
                jobs_per_region=self.plan.config.limits.jobs_per_region,
                give_up=GiveUpError.exit_code,
            ),
        )
        yield f"{where}/{names.TRAIN_SUBMIT}", self._submit(plan, "Trials", ("train", "valid"), CHECKPOINT_OUTPUTS)
        final_parts = (*plan.region.final_parts, "test")
        yield f"{where}/{names.FINAL_SUBMIT}", self._submit(plan, "Final training", final_parts, FINAL_OUTPUTS)

    def _dag(self, dag: Path, plans: tuple[RegionPlan, ...], only: list[str], starts: Starts = ()) -> Iterator[str]:
        """Render one graph; its last node answers for the regions in `only`, or for all when that is empty."""
        trials = sum(plan.region.search.trials for plan in plans)
        scripts = {"pre": self.run.path / "pre.sh", "post": self.run.path / "post.sh"}
        return self._render(
            "study.dag.j2",
            study=self.plan.config.name,
            title=f"{len(plans)} regions, {trials} trials",
            regions=only,
            dag=dag,
            dagman_config=self.run.path / names.DAGMAN_CONFIG,
            node_files=(self.run.region(plan.region.slug).path / names.NODES_DAG for plan in plans),
            python=self.python,
            code=self.manager_code,
            starts=starts,
            settled_before=names.SETTLED_BEFORE,
            crashed=names.DAGMAN_CRASHED,
            report_node=names.REPORT_NODE,
            report_submit=self.run.path / names.REPORT_SUBMIT,
            **scripts,
        )

    def _submit(self, plan: RegionPlan, title: str, parts: tuple[str, ...], outputs: tuple[str, ...]) -> Iterator[str]:
        folder = self.run.region(plan.region.slug)
        inputs = [folder.path / names.NETWORK_FILE, *(folder.data(part) for part in parts)]
        if "test" in parts and plan.region.slug in self.standing:
            inputs.append(folder.standing_model)
        if not plan.region.start.random:
            inputs.append(folder.init_model)
        inputs.append(self.run.path / self.worker_code)
        once = "test" not in parts and features.supports(self.htcondor, "common_input_catalogs")
        catalog = names.catalog_name(plan.region.slug) if once else ""
        return self._render(
            "job.sub.j2",
            title=title,
            folder=folder.path,
            train=self.run.path / "train.sh",
            train_words=_train_words(self.worker_code, plan.region.job),
            checkpointed=Exit.CHECKPOINTED.value,
            checkpoint_outputs=CHECKPOINT_OUTPUTS,
            own_inputs=(TRIAL_FILE, *(f"{names.START_FOLDER}/{name}" for name in outputs)),
            inputs=[] if catalog else inputs,
            catalog=catalog,
            catalog_files=",".join(map(submit_syntax.path, inputs)),
            first_inputs="test" not in parts and plan.region.slug in self.standing,
            outputs=outputs,
            job=plan.region.job,
            mb=MB,
            larger_memory=[size // MB for size in endings.memory_steps(plan.region.job, plan.region.job.memory)],
            attempt=names.ATTEMPT_SUBMIT,
            final="test" in parts,
            log=names.JOB_LOG,
            ends=endings,
            in_words=endings.in_words,
            htcondor=self.htcondor,
            study=self.plan.config.name,
            region=plan.region.name,
            batch_name=f"{self.plan.config.name} {plan.region.slug}",
        )

    def _render(self, template: str, **values: Any) -> Iterator[str]:
        return self.environment.get_template(template).generate(**values)


def source_hash(script: bytes) -> str:
    """Return what a content security policy calls a script.

    >>> source_hash(b"")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return f"sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}"


def render_page_shell(library: str) -> str:
    """Return the report's page without figures; `library` is the hash by which its policy lets plotly.js run."""
    folder = resource_dir("templates") / "report"
    script = "".join((folder / name).read_text(encoding="utf-8") for name in PAGE_SCRIPTS)
    script = f'(() => {{\n"use strict";\n{script}}})();\n'
    template = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=True).from_string(
        (folder / "page.html.j2").read_text(encoding="utf-8")
    )
    style = (folder / "page.css").read_text(encoding="utf-8")
    return template.render(style=style, script=script, hashes=[source_hash(script.encode()), library])


def render_nightly(**values: Any) -> str:
    """Return the submit file of the job that updates a study at the times of a crontab line."""
    return _environment().get_template("nightly.sub.j2").render(**values)


def render_user_data(worker: Mapping[str, Any]) -> str:
    """Return the cloud-config that writes `worker` to /etc/regiondag/worker.json of an instance."""
    return _environment().get_template("fleet/user-data.j2").render(worker=worker)
