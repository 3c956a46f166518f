"""What is known of champions, for people and for programs: all regions at a glance, one in full, and two compared."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regiondag.errors import RegiondagError
from regiondag.registry.figures import (
    Figure,
    customers_of,
    figures_of,
    name_beside,
    recipe_in_words,
    show_figure_in_full,
    texts_of,
)
from regiondag.registry.journal import Past, fold, read_steps
from regiondag.registry.read import CHAMPION_FILE, CURRENT, Champion, Registry, try_link
from regiondag.util.text import show_value

EPOCH = datetime.date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class ServedRegion:
    """A region, and what serves it."""

    region: str
    slug: str
    version: str | None  # what serves; null where nothing does
    since: float  # when it was put there; Unix time
    by: str  # who did that
    event: str  # how: promoted or rolled back
    run: str  # name of the run directory that it came from
    pinned: bool  # no run takes its place
    recipe: str  # in words
    figure: Figure | None  # by the study's metric
    customers: int  # on whom it was tested
    damage: str  # what is wrong with what should serve; nothing else serves then
    versions: int  # how many there are


@dataclass(frozen=True, slots=True)
class VersionFile:
    """A file of a version."""

    name: str
    sha256: str  # when it came into the registry
    bytes: int
    damage: str  # what is wrong with it now; empty where it is what it was


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """A version of a region's champion, in full."""

    study: str
    region: str
    slug: str
    version: str
    run: str
    folder: str
    promoted: float  # when it came into the registry; Unix time
    by: str
    serves: bool
    pinned: bool
    recipe: str  # in words
    reason: str  # why it serves
    fitted_until: str | None  # the first day that it has not seen
    tested_from: str | None  # the first day of the test; what was tested is the recipe, fitted on the days before
    customers: int
    figures: tuple[Figure, ...]
    files: tuple[VersionFile, ...]
    data: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of the region's own data, by file of the run
    inputs: Mapping[str, str] = field(default_factory=dict)  # and of what it was fitted on and tested with
    made: Mapping[str, str] = field(default_factory=dict)  # seed, code, host, machine, versions of libraries


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact of two versions."""

    fact: str
    old: str | None
    new: str | None
    changed: bool


@dataclass(frozen=True, slots=True)
class VersionsCompared:
    """Two versions of a region's champion."""

    region: str
    slug: str
    old: str
    new: str
    comparable: bool  # both were tested on the same data
    facts: tuple[Difference, ...]  # figures always, and what is not the same


def list_served(registry: Registry) -> list[ServedRegion]:
    """Return all regions that are served, each with what serves it or why nothing can."""
    past = fold(read_steps(registry.journal))
    return [_served(registry, slug, name, past.get(slug, Past())) for slug, name in registry.regions().items()]


def _served(registry: Registry, slug: str, name: str, past: Past) -> ServedRegion:
    champion, damage = None, ""
    try:
        champion = registry.current(slug)
    except RegiondagError as error:
        damage = str(error)
    figures = figures_of(champion) if champion else ()
    return ServedRegion(
        region=name,
        slug=slug,
        version=champion.version if champion else try_link(registry.path / slug / CURRENT),
        since=past.since or (champion.promoted if champion else 0.0),
        by=past.by,
        event=past.event,
        run=champion.run if champion else "",
        pinned=registry.is_pinned(slug),
        recipe=recipe_in_words(champion) if champion else "",
        figure=next(iter(figures), None),
        customers=customers_of(champion) if champion else 0,
        damage=damage,
        versions=len(registry.names(slug)),
    )


def describe_version(champion: Champion, serves: bool) -> VersionFacts:
    """Return all that is known of a version; its files are read."""
    facts = champion.facts
    decision = facts.get("decision")
    made = {"seed": facts.get("seed"), "code": facts.get("code"), "host": facts.get("host")}
    for group in ("machine", "gpu", "versions"):
        made |= {f"{group} {key}": value for key, value in texts_of(facts.get(group)).items()}
    return VersionFacts(
        study=champion.study,
        region=champion.region,
        slug=champion.slug,
        version=champion.version,
        run=champion.run,
        folder=str(champion.folder),
        promoted=champion.promoted,
        by=str(facts.get("by", "")),
        serves=serves,
        pinned=champion.pinned,
        recipe=recipe_in_words(champion),
        reason=str(decision.get("reason", "")) if isinstance(decision, dict) else "",
        fitted_until=_date(_fitted_until(champion)),
        tested_from=_date(facts.get("fitted_until")),
        customers=customers_of(champion),
        figures=figures_of(champion),
        files=tuple(_files_of(champion)),
        data=texts_of(facts.get("data")),
        inputs=texts_of(facts.get("inputs")),
        made={key: str(value) for key, value in made.items() if value not in (None, "")},
    )


def _fitted_until(champion: Champion) -> object:
    """Return what the model says of itself; a network, which says nothing, is the very one that was tested."""
    from nnlib.errors import NnlibError
    from nnlib.families.model_file import read_fitted_until  # with NumPy and netCDF4

    if champion.facts.get("recipe") is None:
        return champion.facts.get("fitted_until")
    try:
        return read_fitted_until(champion.model)
    except (OSError, NnlibError):
        return None


def _date(day: object) -> str | None:
    try:
        return (EPOCH + datetime.timedelta(days=day)).isoformat() if isinstance(day, int) else None
    except OverflowError:
        return None


def compare_versions(old: Champion, new: Champion) -> VersionsCompared:
    """Return what two versions of a region have in common and what not."""
    before, after = dict(_flatten(old)), dict(_flatten(new))
    names = [*after, *(name for name in before if name not in after)]
    found = [Difference(name, before.get(name), after.get(name), before.get(name) != after.get(name)) for name in names]
    tests = [texts_of(one.facts.get("data")).get("data.test.nc") for one in (old, new)]
    shown = tuple(one for one in found if one.changed or one.fact.startswith("test "))
    return VersionsCompared(new.region, new.slug, old.version, new.version, tests[0] == tests[1] is not None, shown)


def _flatten(champion: Champion) -> Iterator[tuple[str, str]]:
    """Yield all facts of a version as texts, recipes value by value."""
    yield "run", champion.run
    facts = describe_version(champion, serves=False)
    yield from _flatten_recipe("recipe", champion.facts.get("recipe"), champion.facts.get("hyperparameters"))
    for figure in facts.figures:
        yield f"test {figure.metric}", show_figure_in_full(figure)
        for name, value in (("floor", figure.floor), ("simple", figure.simple)):
            if value is not None:
                yield f"test {figure.metric}, {name_beside(name, figure.floor_name)}", f"{value:.4f}"
    yield "customers", f"{facts.customers:,}"
    yield "fitted until", facts.fitted_until or "-"
    yield "tested from", facts.tested_from or "-"
    yield "reason", facts.reason or "-"
    for group in (facts.data, facts.inputs):
        yield from ((name, digest[:12]) for name, digest in group.items())
    yield from ((name, value[:12] if name == "code" else value) for name, value in facts.made.items())
    yield "model", champion.sha256[:12]


def _flatten_recipe(name: str, raw: object, network: object) -> Iterator[tuple[str, str]]:
    if not isinstance(raw, dict):
        yield name, "network"
        yield from ((f"{name} {key}", text) for key, text in texts_of(network).items())
        return
    yield name, str(raw.get("family"))
    yield from ((f"{name} {key}", text) for key, text in texts_of(raw.get("hyperparameters")).items())
    members, weights = raw.get("members") or [], raw.get("weights") or []
    for number, member in enumerate(members):
        family = member.get("family") if isinstance(member, dict) else "?"
        if number < len(weights):
            yield f"weight of {family}", show_value(weights[number])
        yield from _flatten_recipe(f"member {family}", member, None)


def _files_of(champion: Champion) -> Iterator[VersionFile]:
    for path, digest in champion.digests.items():
        damage, size = "", 0
        try:
            size = path.stat().st_size
            champion.check_file(path)
        except OSError as error:
            damage = error.strerror or str(error)
        except RegiondagError as error:
            damage = str(error).partition("; ")[0].removeprefix(f"{path}: ")
        yield VersionFile(path.name, digest, size, damage)
    path = champion.folder / CHAMPION_FILE
    yield VersionFile(CHAMPION_FILE, "", path.stat().st_size, "")


def run_of(registry: Registry, champion: Champion) -> Path | None:
    """Return the run directory that a version came from; None where it is not there any more."""
    run = registry.path.parents[1] / champion.run
    return run if Path(champion.run).name == champion.run and run.is_dir() else None
