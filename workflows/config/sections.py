"""The sections of study.yaml, each read into its dataclass; mistakes go to the section's problem list."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from nnlib.contract import Metric, TrainSettings, slug_of
from regiondag.config.keys import ACQUISITIONS, ALONE, JOB, LIMITS, MODES, SEARCH, SECTIONS, STUDY, TRAIN
from regiondag.config.space_section import grid_trials, read_constraints, read_space, small_size
from regiondag.config.submit_section import read_submit
from regiondag.study.families import AGAIN, BLEND, DAYS, FAMILIES, NETWORK, POPULARITY, space_of
from regiondag.study.gpus import GpuWish
from regiondag.study.model import MAX_TRIALS, TRAIN_SETTINGS, JobRequest, Limits, Purchases, Region, Search
from regiondag.study.space import Choice, Point, Space, list_extreme_values, list_grid_values
from regiondag.tuning.domain import domain_of
from regiondag.tuning.methods import METHODS, resolve_method
from regiondag.util.schema import Layer, Section

POINT = "a point of the space: a legal value of each hyperparameter that exists there, and no constraint broken"


def read_metric(section: Section) -> Metric:
    """Read `metric: ndcg@20` or `minimize: loss`, whichever the innermost layer gives."""
    given = [layer for layer in section.layers if "metric" in layer.value or "minimize" in layer.value]
    section = Section(section.problems, given[:1] or section.layers[-1:])
    if "metric" in section and "minimize" in section:
        section.problems.add(section.where("minimize"), "stands beside `metric`; give one of the two")
    key = "minimize" if "minimize" in section else "metric"
    name = section.read(key, "loss" if key == "minimize" else Metric().name, SECTIONS[key].check)
    return Metric(name, minimize=key == "minimize")


def read_limits(section: Section) -> Limits:
    """Read `limits`."""
    return section.fill(Limits, LIMITS)


def read_train(section: Section) -> TrainSettings:
    """Read `train`."""
    return section.fill(TrainSettings, TRAIN)


def read_job(section: Section) -> JobRequest:
    """Read `job`."""
    given: dict[str, Any] = {name: section.value(name, JOB) for name in JOB if name != "submit"}
    given["submit"] = read_submit(section.section("submit"))
    section.finish()
    wish: GpuWish = given.pop("gpus")
    job = JobRequest(**given, gpus=wish.most, fewest_gpus=None if wish.fewest == wish.most else wish.fewest)
    if "cpus" not in section:
        job = replace(job, cpus=max(job.cpus, wish.most))  # each GPU has a process of its own
    job = replace(job, require_gpus=wish.require(job.require_gpus))
    if job.require_gpus and not wish.most:
        if section.contradicts("require_gpus", "gpus"):
            section.problems.add(section.where("require_gpus"), "is of GPUs, and `gpus` is 0; remove it, or give gpus")
        job = replace(job, require_gpus="")
    if job.memory_max is not None and job.memory_max <= job.memory:
        section.problems.add(section.where("memory_max"), "is not larger than `memory`")
        job = replace(job, memory_max=None)
    if not job.gpus and "requirements" not in section:
        job = replace(job, requirements="true")  # else it would wait for a machine with a GPU that it does not want
    return job


def read_final(section: Section) -> JobRequest | None:
    """Read `job` as `final` overrides it; None where there is no `final`. `section` holds both."""
    if "final" not in section:
        return None
    layers = [*section.section("final").layers, *section.section("job").layers]
    return read_job(Section(section.problems, layers))


def read_families(
    study: Section, purchases: Purchases | None = None, too_large: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """Read `families`: by default all that the data can be for, or the network alone where there is no table.

    Those that are `too_large`, with the reason, are a mistake where they are asked for, and else left out. Popularity
    is among them wherever a choice is made for all regions together: the others have to beat it.
    """
    network, alone = "network" in study, study.section("search").value("scope", SEARCH) != "all"
    families: tuple[str, ...] = study.value("families", STUDY)
    if NETWORK in families and not network:
        study.problems.add(study.where("families"), "network: there is no `network`, a file of DSSTNE's JSON; add one")
    for family in families:
        if family in too_large:
            study.problems.add(study.where("families"), f"{family}: {too_large[family]}, or leave it out")
    if families:
        only = alone and set(families) == {NETWORK}
        return families if only or POPULARITY in families else (POPULARITY, *families)
    if network and "data" not in study:
        return (NETWORK,) if alone else (POPULARITY, NETWORK)
    dated = purchases is None or purchases.split not in ("random", "column")  # which tables without dates have
    there = {NETWORK: network, DAYS: dated, AGAIN: purchases is not None and purchases.repeats}
    there |= dict.fromkeys(too_large, False)
    return tuple(family for family in FAMILIES if there.get(family, True))


def read_search(
    section: Section,
    families: tuple[str, ...] = (NETWORK,),
    *,
    several: bool = False,
    settings: Collection[str] = TRAIN_SETTINGS,
) -> Search:
    """Read `search`, its space included; `several`: other regions have searches of their own, too.

    `settings` are the hyperparameters that stand for settings of nnlib's training; a program has none.
    """
    names = ("method", "schedule", "budget", "prune", "rounds", "parallel")
    method, schedule, budget, prune, rounds, parallel = (section.value(name, SEARCH) for name in names)
    method = resolve_method(method)
    space = _read_space(section, families, settings)
    for name in ("scope", "stop"):
        section.value(name, SEARCH)
    asked: str = section.value("share", SEARCH)
    share = _share(section, method, asked, several=several)
    search = Search(
        method,
        space,
        (parallel,) * rounds,
        constraints=read_constraints(section, space),
        acquisition=_acquisition(section, method),
        give_up_after=section.value("give_up_after", SEARCH),
        schedule=schedule,
        budget=budget,
        prune=prune,
        share=share,
        winner=section.read("winner", _winner(method, share, asked), SEARCH["winner"].check),
        stop=section.value("stop", SEARCH) if method == "bayes" else "none",
        blends=BLEND in families,
    )
    section.finish()
    if method == "grid":
        return _grid_search(section, search)
    if rounds * parallel > MAX_TRIALS:
        section.problems.add(
            section.where("rounds"),
            f"{rounds} rounds of {parallel} trials are more than {MAX_TRIALS} trials, the most a region can have",
        )
    trials = min([rounds * parallel, *small_size(search)])
    # Nothing to wait for between rounds, unless what ended decides whether, or how long, others run.
    if METHODS[method].ask is None and schedule == "rounds" and not budget and prune == "none":
        return replace(search, sizes=(trials,))
    full, rest = divmod(trials, parallel)
    return replace(search, sizes=(parallel,) * full + (rest,) * (rest > 0))


def read_search_alone(section: Section, name: str) -> Region:
    """Read a search whose trials somebody else runs, as `keys.ALONE` has it, as that of a region of data nowhere.

    Each trial is proposed by itself, as in lanes, and hyperparameters may be absent: there is no network to need them.
    """
    given = {key: section.value(key, ALONE) for key in ("metric", "mode", "trials", "seed")}
    method = resolve_method(section.value("method", ALONE))
    space = read_space(section.section("space"), None)
    search = Search(
        method,
        space,
        (given["trials"],),
        constraints=read_constraints(section, space),
        acquisition=_acquisition(section, method),
        schedule="lanes",
    )
    first = _read_first(section, search)
    section.finish()
    count = _grid_trials(section, search) if method == "grid" else min([given["trials"], *small_size(search)])
    return Region(
        name=name,
        slug=slug_of(name),
        data={},
        network=None,
        metric=Metric(given["metric"], minimize=given["mode"] == MODES[1]),
        train=TrainSettings(seed=given["seed"]),
        search=replace(search, sizes=(count,)),
        job=JobRequest(),
        first=first,
    )


def _read_first(section: Section, search: Search) -> tuple[Point, ...]:
    """Read points that are tried first; what has one value only need not stand there."""
    given: list[object] = section.value("first", ALONE)
    fixed = {one.name: one.options[0] for one in search.space if isinstance(one, Choice) and len(one.options) == 1}
    domain = domain_of(search) if given and not section.problems.found else None  # else nothing can be said of them
    points = []
    for number, point in enumerate(given if domain else ()):
        whole = {**fixed, **point} if isinstance(point, Mapping) else {}
        if domain and domain.has(whole):
            points.append({one.name: whole[one.name] for one in search.space if one.name in whole})
        else:
            section.problems.add((*section.where("first"), number), f"seen {point!r}, legal: {POINT}")
    return tuple(points)


def _share(section: Section, method: str, asked: str, *, several: bool) -> str:
    legal = METHODS[method].sharing
    if asked == "auto":
        return "model" if several and "model" in legal else "off"
    if asked not in legal and section.contradicts("share", "method"):
        section.problems.add(section.where("share"), f"{asked} is not legal with method {method}: {', '.join(legal)}")
    return asked if asked in legal else "off"


def _winner(method: str, share: str, asked: str) -> str:
    """Return who names the winner by default: a model where that was measured to be better."""
    if method == "bayes" and (share == "off" or asked == "auto"):
        return str(SEARCH["winner"].default)
    return "model" if share == "model" else "observed"


def _acquisition(section: Section, method: str) -> str:
    acquisition: str = section.value("acquisition", SEARCH)
    if acquisition == ACQUISITIONS[0] or method == "bayes":
        return acquisition
    if section.contradicts("acquisition", "method"):
        section.problems.add(
            section.where("acquisition"), f"{acquisition} is not legal with method {method}: only bayes"
        )
    return ACQUISITIONS[0]


def read_update(
    section: Section,
    families: tuple[str, ...] = (NETWORK,),
    *,
    several: bool = False,
    settings: Collection[str] = TRAIN_SETTINGS,
) -> Search | None:
    """Read `search` as `update` overrides it; None where there is no `update`. `section` holds both."""
    if "update" not in section:
        return None
    layers = []
    for layer in section.section("update").layers:
        if "space" in layer.value:
            section.problems.add(
                (*layer.path, "space"), "the space of an update is that of the study; change search.space instead"
            )
        layers.append(Layer({key: value for key, value in layer.value.items() if key != "space"}, layer.path))
    both = Section(section.problems, [*layers, *section.section("search").layers])
    return read_search(both, families, several=several, settings=settings)


def _grid_search(section: Section, search: Search) -> Search:
    size = "a grid has as many trials as the space has points; remove this key "
    size += "(limits.jobs_per_region says how many run at a time)"
    once = "a grid's trials are all proposed before any of them has ended; remove this key, or choose another method"
    contradicting = dict.fromkeys(("rounds", "parallel", "schedule"), size) | {"budget": once}
    if search.prune != "none":
        contradicting["prune"] = once
    for key, text in contradicting.items():
        # A region may ask for a grid below a study that searches in rounds: the study's keys do not contradict it.
        if section.contradicts(key, "method"):
            section.problems.add(section.where(key), text)
    search = replace(search, schedule="rounds", budget=0, prune="none")
    trials = _grid_trials(section, search)
    if trials > MAX_TRIALS:
        section.problems.add(section.where("space"), f"{trials:,} points, legal: at most {MAX_TRIALS:,}")
    return replace(search, sizes=(max(min(trials, MAX_TRIALS), 1),))


def _grid_trials(section: Section, search: Search) -> int:
    """Return how many points the grid has; 1 after noting why it cannot be said."""
    countable = True
    for parameter in search.space:
        try:
            list_grid_values(parameter)
        except ValueError as error:
            section.problems.add(section.section("space").where(parameter.name), str(error))
            countable = False
    try:
        return grid_trials(search) if countable else 1
    except ValueError as error:
        section.problems.add(section.where("space"), str(error))
        return 1


def _read_space(section: Section, families: tuple[str, ...], settings: Collection[str]) -> Space:
    below = section.section("space")
    others = families != (NETWORK,)
    space = () if others and not below.layers[0].value else read_space(below, settings)
    for parameter in space:  # what stands for a training setting may only take that setting's legal values
        if parameter.name in settings:
            for value in list_extreme_values(parameter):
                layer = Layer({parameter.name: value}, below.where(parameter.name)[:-1])
                read_train(Section(section.problems, [layer]))
    return space_of(families, space) if others else space
