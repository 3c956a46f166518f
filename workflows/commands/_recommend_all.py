"""`regiondag recommend STUDY --all`: everybody's recommendations into files of the study, here or on a pool."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nnlib.util.terminal import tell
from regiondag.errors import RegiondagError

if TYPE_CHECKING:
    from regiondag.recommend.ask import Wish
    from regiondag.recommend.batch import BatchFolder, BatchPlan
    from regiondag.recommend.region import Served
    from regiondag.run.study_folder import StudyFolder

INTERVAL = 2.0  # seconds between two looks


def recommend_all(
    arguments: argparse.Namespace, study: StudyFolder, served: Served, slugs: Sequence[str], wish: Wish
) -> int:
    """Write, submit or watch a batch; 1 when it is over and not whole."""
    from regiondag.condor.submit import refuse_slash_tmp
    from regiondag.recommend.batch import list_batches
    from regiondag.recommend.make import begin_batch

    folder = study.study.resolve().parent
    if arguments.status:
        batches = list_batches(folder)
        if not batches:
            raise RegiondagError(f"{folder} has no recommendations yet; first: regiondag recommend {folder} --all")
        return _watch(arguments, batches[0], batches[0].read_plan())
    if not arguments.submit:
        batch, plan = begin_batch(folder, served, slugs, wish, arguments.chunk)
        return _write_here(arguments, batch, plan)
    from regiondag.pool.pool import require_pool
    from regiondag.recommend.jobs import submit_batch, write_dag

    refuse_slash_tmp(folder, f"regiondag recommend {folder} --all")
    pool = require_pool(arguments.pool)
    batch, plan = begin_batch(folder, served, slugs, wish, arguments.chunk)
    if not batch.dag.exists():
        bundles = {slug: bundle for slug in slugs if (bundle := served.find_bundle(slug))}
        write_dag(batch, plan, {slug: served.find_submit(slug) for slug in slugs}, bundles)
    tell(f"job {submit_batch(pool, batch)} of the pool {pool.name!r} writes {batch.path}")
    return _watch(arguments, batch, plan)


def _write_here(arguments: argparse.Namespace, batch: BatchFolder, plan: BatchPlan) -> int:
    from nnlib.util.terminal import show_count
    from nnlib.util.threads import count_processors
    from regiondag.recommend.here import write_here

    with show_count(sum(region.customers for region in plan.regions), "customers") as watch:
        write_here(batch, plan, count_processors(), watch)
    return _watch(arguments, batch, plan)


def _watch(arguments: argparse.Namespace, batch: BatchFolder, plan: BatchPlan) -> int:
    """Say where a batch stands, until it is over if that is wanted."""
    from regiondag.pool.pool import find_pool
    from regiondag.recommend.jobs import describe_status, read_status
    from regiondag.util.text import make_printable

    said = ""
    while True:
        status = read_status(batch, plan, find_pool(arguments.pool))
        words = make_printable(describe_status(status))
        last = not arguments.watch or status.over
        if last and arguments.json:
            print(json.dumps(dataclasses.asdict(status), ensure_ascii=False))
        elif last:
            print(words)
        elif words != said:
            tell(words)
        if last:
            return 1 if status.over and not status.finished else 0
        said = words
        time.sleep(INTERVAL)
