"""Where several GPUs for one training would serve better as parallel trials: what a model predicts of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnlib.data.file import DataSummary, SetSummary
from nnlib.inspection.gpus_plan import predict_from
from nnlib.inspection.scaling import MACHINES, WORTH, most_worthwhile, predict_efficiency
from nnlib.spec.network import SpecError, parse_network, read_json, substitute
from regiondag.study.model import TRAIN_SETTINGS, JobRequest, Region
from regiondag.study.space import largest_value

MACHINE = MACHINES[0]  # the one that favours several GPUs most


@dataclass(frozen=True, slots=True)
class _Use:
    """How one region would use the GPUs of a job: how many are worth it, and the efficiency of all; None: not cut."""

    region: str
    efficiency: float | None
    worth: int
    by_examples: float | None = None  # the efficiency, if batches were cut where nothing else is


def find_poorly_used(regions: Sequence[Region], summaries: Mapping[Path, DataSummary]) -> list[str]:
    """Return a note for each number of GPUs of which half or more would be lost, with the largest settings searched."""
    found: dict[tuple[str, int], list[_Use]] = {}
    for region in regions:
        for key, job in _jobs(region):
            use = _predict(region, job, summaries)
            if use is not None and (use.efficiency is None or use.efficiency <= WORTH):
                found.setdefault((key, job.gpus), []).append(use)
    return [_describe(key, gpus, uses) for (key, gpus), uses in found.items()]


def find_few_cores(regions: Sequence[Region]) -> list[str]:
    """Return a note for each job of which several processes, one a GPU, would share a core."""
    jobs = [pair for region in regions for pair in _jobs(region)]
    notes = (
        f"{key}.cpus: {job.cpus}: {job.gpus} GPUs have a process each, which prepares its batches, too; give cpus: "
        f"{job.gpus} or more"
        for key, job in jobs
        if job.cpus < job.gpus
    )
    return list(dict.fromkeys(notes))


def _jobs(region: Region) -> Iterator[tuple[str, JobRequest]]:
    """Yield the jobs of a region that may have several GPUs."""
    if region.network is not None:
        jobs = {"job": region.job if region.search.trials or not region.final else None, "final": region.final}
        yield from ((key, job) for key, job in jobs.items() if job is not None and job.gpus > 1)


def _predict(region: Region, job: JobRequest, summaries: Mapping[Path, DataSummary]) -> _Use | None:
    """Return how a region would use a job's GPUs; None where nothing can be said of it."""
    if region.network is None:
        return None
    largest = {parameter.name: largest_value(parameter) for parameter in region.search.space}
    settings = replace(region.train, **{name: value for name, value in largest.items() if name in TRAIN_SETTINGS})  # type: ignore[arg-type]
    try:
        spec = parse_network(substitute(read_json(region.network), largest), region.network.name)
    except (OSError, SpecError):
        return None  # which was told
    sets = _join([summaries[file] for file in region.learned_from if file in summaries])
    if not sets:
        return None
    work = predict_from(spec, settings, sets)
    if work is None:
        other = predict_from(spec, replace(settings, parallel="examples"), sets)
        return _Use(region.name, None, 1, predict_efficiency(MACHINE, other, job.gpus) if other else None)
    counts = [count for count in job.gpu_counts if count > 1]
    return _Use(region.name, predict_efficiency(MACHINE, work, job.gpus), most_worthwhile(MACHINE, work, counts))


def _join(summaries: Sequence[DataSummary]) -> list[SetSummary]:
    """Return the data sets of several files, whose examples follow one another."""
    joined: dict[str, SetSummary] = {}
    for one in (one for summary in summaries for one in summary.sets):
        before = joined.get(one.name)
        joined[one.name] = (
            one
            if before is None
            else replace(
                before,
                examples=before.examples + one.examples,
                nonzeros=before.nonzeros + one.nonzeros,
                width=max(before.width, one.width),
            )
        )
    return list(joined.values())


def _describe(key: str, gpus: int, uses: Sequence[_Use]) -> str:
    """Say what is lost, and what to ask for instead."""
    known = sorted(use.efficiency for use in uses if use.efficiency is not None)
    where = uses[0].region if len(uses) == 1 else f"{uses[0].region} and {len(uses) - 1} more"
    parts = []
    if known:
        parts.append(
            f"a training is predicted to be {_ends(gpus * e for e in known)} times as fast as on one GPU, an "
            f"efficiency of {_ends(known)} ({MACHINE.name}; a model, not measured)"
        )
    if len(known) < len(uses):
        parts.append("nothing of the network is cut (nnlib inspect says why), so that each GPU does all the work")
    shared = sorted(gpus * use.by_examples for use in uses if use.by_examples is not None)
    if shared and shared[-1] > 1:
        parts.append(f"train.parallel: examples would cut its batches, predicted {_ends(shared)} times as fast")
    worth = max(use.worth for use in uses)
    if worth > 1:
        parts.append(f"at most {worth} GPUs are worth it")
    if key == "job":
        parts.append("trials side by side use GPUs whole: gpus: 1 and a larger search.parallel")
    return f"{key}.gpus: {gpus}: {where}: {'; '.join(parts)}"


def _ends(values: Iterable[float]) -> str:
    """Return the least and the largest of figures in order, or one where they are the same."""
    texts = [f"{value:.2f}" for value in values]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"
