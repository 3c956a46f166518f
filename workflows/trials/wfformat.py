"""A run as WfFormat 1.5 has it, the format of executed workflows that WfCommons, WRENCH and others read. Pure.

The schema is https://github.com/wfcommons/WfFormat. What has not ended is a task of the specification alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from regiondag.trials.provenance import Provenance, Task, created_at, show_time

VERSION = "1.5"
ENGINE = "HTCondor DAGMan"
SITE = "https://htcondor.org"
MB = 1 << 20


def wfformat_of(run: Provenance) -> dict[str, object]:
    """Return a run as an object of WfFormat."""
    used = {name for task in run.tasks for name in (*_inputs(run, task), *task.outputs)}
    specification: dict[str, object] = {
        "tasks": list(_tasks(run)),
        "files": [{"id": name, "sizeInBytes": run.sizes[name]} for name in sorted(used)],
    }
    ended = [task for task in run.tasks if task.ended is not None]
    workflow: dict[str, object] = {"specification": specification}
    if ended:
        workflow["execution"] = _execution(ended)
    version = run.manifest.versions.get("htcondor")
    known = {
        "name": run.manifest.study,
        "description": f"The run {run.name} of regiondag: {', '.join(run.manifest.regions.values())}",
        "createdAt": created_at(run.manifest),
        "schemaVersion": VERSION,
        "runtimeSystem": {"name": ENGINE, "version": version, "url": SITE} if version else None,
        "workflow": workflow,
    }
    return {name: value for name, value in known.items() if value}


def _inputs(run: Provenance, task: Task) -> list[str]:
    code = [run.code] if task.inputs and run.code in run.sizes else []
    return [*task.inputs, *code]


def _tasks(run: Provenance) -> Iterator[dict[str, object]]:
    children: dict[str, list[str]] = {str(task.node): [] for task in run.tasks}
    for task in run.tasks:
        for parent in task.parents:
            children[str(parent)].append(str(task.node))
    for task in run.tasks:
        yield {
            "name": "final" if task.node.number is None else "trial",
            "id": str(task.node),
            "parents": list(map(str, task.parents)),
            "children": children[str(task.node)],
            "inputFiles": _inputs(run, task),
            "outputFiles": list(task.outputs),
        }


def _execution(ended: list[Task]) -> dict[str, object]:
    begin = min(task.attempt.queued.start for task in ended if task.attempt)
    end = max(task.ended for task in ended if task.ended is not None)
    return {
        "makespanInSeconds": end - begin,
        "executedAt": show_time(begin),
        "tasks": list(map(_executed, ended)),
        "machines": list(_machines(ended)),
    }


def _executed(task: Task) -> dict[str, object]:
    asked = task.attempt.asked if task.attempt else {}
    used = task.attempt.used if task.attempt else {}
    memory = used.get("memory_mb")
    known = {
        "id": str(task.node),
        "runtimeInSeconds": task.seconds,
        "executedAt": None if task.started is None else show_time(task.started),
        "coreCount": asked.get("cpus"),
        "memoryInBytes": None if memory is None else int(memory * MB),
        "machines": task.machines,
    }
    return {name: value for name, value in known.items() if value is not None}


def _machines(ended: list[Task]) -> Iterator[dict[str, object]]:
    """Yield each machine, with what the jobs that ended there saw of it."""
    facts: dict[str, Mapping[str, str]] = {}
    for task in ended:
        for name in task.machines:
            facts.setdefault(name, {})
        if task.machines and task.machine:
            facts[task.machines[-1]] = task.machine
    for name, seen in facts.items():
        cores = seen.get("cores", "")
        cpu = {"coreCount": int(cores) if re.fullmatch("[0-9]{1,6}", cores) else None, "vendor": seen.get("cpu")}
        known = {
            "nodeName": name,
            "system": "linux" if seen.get("kernel") else None,
            "release": seen.get("kernel"),
            "architecture": seen.get("architecture"),
            "cpu": {key: value for key, value in cpu.items() if value},
        }
        yield {key: value for key, value in known.items() if value}
