"""Remove old runs and versions: one after the other, each gone at once for everybody who looks."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from nnlib.util.os_errors import describe
from regiondag.condor.submit import refuse_while_in_progress
from regiondag.errors import RegiondagError
from regiondag.pool.pool import Pool
from regiondag.registry.promote import remove_folder, remove_version
from regiondag.registry.read import Registry
from regiondag.run.layout import RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.run.study_folder import StudyFolder
from regiondag.update.old_runs import (
    LEFTOVER,
    RUN,
    VERSION,
    CleanPlan,
    OldItem,
    Rule,
    find_leftovers,
    measure_items,
    plan_runs,
    plan_versions,
)

Progress = Callable[[int, int], None]


def plan_clean(study: StudyFolder, registry: Registry, rule: Rule, pool: Pool | None) -> CleanPlan:
    """Say what goes and what stays; nothing is changed."""
    runs, now = study.list_runs(), time.time()
    found = [(RUN, *one) for one in plan_runs(runs, registry, rule, now, lambda run: say_progress(pool, run))]
    found += [
        (RUN, path, "its manifest.json cannot be read, so nothing is known of it") for path in _find_torn(study, runs)
    ]
    found += [(VERSION, *one) for one in plan_versions(registry, rule)]
    found += [(LEFTOVER, path, "") for path in find_leftovers(study.runs, study.name, registry, now)]
    sizes, frees = measure_items([path for _, path, why in found if not why])
    items = [OldItem(str(path), kind, sizes.get(path, 0), not why, why) for kind, path, why in found]
    return CleanPlan(study.name, str(study.runs), removed=False, frees=frees, items=tuple(items))


def _find_torn(study: StudyFolder, runs: list[RunFolder]) -> list[Path]:
    """Return folders that have the name of a run of this study, and are none."""
    known = {run.path for run in runs}
    named = re.compile(rf"run-{re.escape(study.name)}-[0-9]{{8}}-[0-9]{{6}}(-[0-9]+)?")
    places = study.runs.iterdir() if study.runs.is_dir() else ()
    return sorted(path for path in places if named.fullmatch(path.name) and path not in known)


def say_progress(pool: Pool | None, run: RunFolder) -> str:
    """Return what a DAGMan does with a run; nothing where none does."""
    try:
        refuse_while_in_progress(pool, run, read_manifest(run).regions)
    except RegiondagError as error:
        return str(error)
    return ""


def clean(plan: CleanPlan, registry: Registry, pool: Pool | None, progress: Progress) -> CleanPlan:
    """Remove what goes, and return the plan with what could not be removed, and why; the rest goes on."""
    done = tuple(_remove_all(plan.items, registry, pool, progress))
    gone = [Path(item.path) for item in done if item.goes and item.error]
    left, _ = measure_items(gone)
    return replace(plan, removed=True, frees=max(plan.frees - sum(left.values()), 0), items=done)


def _remove_all(
    items: Iterable[OldItem], registry: Registry, pool: Pool | None, progress: Progress
) -> Iterator[OldItem]:
    items = list(items)
    for number, item in enumerate(items):
        progress(number, len(items))
        yield replace(item, error=_remove(item, registry, pool)) if item.goes else item


def _remove(item: OldItem, registry: Registry, pool: Pool | None) -> str:
    """Remove one item; return why that cannot be, nothing where it is gone."""
    path = Path(item.path)
    try:
        owner = path.lstat().st_uid
        if os.geteuid() not in (0, owner):
            return f"belongs to user {owner}, who may remove it"
        if item.kind == VERSION:
            remove_version(registry, path.parent.name, path.name)
        elif item.kind == LEFTOVER:
            shutil.rmtree(path)
        elif busy := say_progress(pool, RunFolder(path)):  # it may have been submitted since
            return busy
        else:
            remove_folder(path)
    except FileNotFoundError:
        return ""  # somebody else was quicker
    except OSError as error:
        return describe(error)
    except RegiondagError as error:
        return str(error)
    return ""
