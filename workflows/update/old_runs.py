"""Which runs and versions of champions may go: what is old, and needed by nobody."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regiondag.registry.journal import Past, fold, read_steps
from regiondag.registry.promote import aside_of, find_previous
from regiondag.registry.read import CURRENT, CURRENT_PINNED, Registry, read_link
from regiondag.run.layout import RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.update.changes import is_finished

RUN, VERSION, LEFTOVER = "run", "version", "leftover"
DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Rule:
    """What is kept, whatever else goes."""

    runs: int = 7  # the newest
    days: float = 0.0  # runs that are younger
    champions: int = 30  # the newest versions of each region


@dataclass(frozen=True, slots=True)
class OldItem:
    """A run, a version of a region's champion, or what is left of a removal that was cut off."""

    path: str
    kind: str  # run, version or leftover
    bytes: int  # that its files take; some may be shared with what stays
    goes: bool
    why: str  # why it stays; empty where it goes
    error: str = ""  # what kept it from being removed


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """What goes and what stays."""

    study: str
    runs: str  # the folder
    removed: bool  # whether it was done, or only looked at
    frees: int  # bytes that nothing else shares
    items: tuple[OldItem, ...]


def plan_runs(
    runs: Sequence[RunFolder], registry: Registry, rule: Rule, now: float, in_progress: Callable[[RunFolder], str]
) -> Iterator[tuple[Path, str]]:
    """Yield each run, the newest first, with why it stays; "" where it goes.

    `in_progress` says what a DAGMan does with a run; it is asked about those alone that would go otherwise.
    """
    finished, serving = _find_finished(runs), dict(_find_serving(registry))
    for number, run in enumerate(runs):
        age = now - run.manifest.stat().st_mtime
        yield (
            run.path,
            "is a link" * run.path.is_symlink()
            or f"one of the newest {rule.runs}" * (number < rule.runs)
            or f"younger than {rule.days:g} days" * (age < rule.days * DAY)
            or _name(finished, run, "the newest finished run of")
            or _name(serving, run, "has made the champion of")
            or in_progress(run),
        )


def _name(slugs: Mapping[str, str], run: RunFolder, text: str) -> str:
    found = [slug for slug, name in slugs.items() if name == run.path.name]
    return f"{text} {found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''}" if found else ""


def _find_finished(runs: Sequence[RunFolder]) -> dict[str, str]:
    """Return by slug the name of the newest run in which a region came to its end."""
    found: dict[str, str] = {}
    for run in runs:
        for slug in read_manifest(run).regions:
            if slug not in found and is_finished(run, slug):
                found[slug] = run.path.name
    return found


def _find_serving(registry: Registry) -> Iterator[tuple[str, str]]:
    """Yield by slug the run that made what serves; of a version that cannot be read, the run of its time."""
    for slug in registry.slugs():
        for name in {read_link(registry.path / slug / link) for link in (CURRENT, CURRENT_PINNED)} - {None}:
            champion = registry.try_version(slug, str(name))
            yield slug, champion.run if champion else f"run-{registry.path.name}-{name}"


def plan_versions(registry: Registry, rule: Rule) -> Iterator[tuple[Path, str]]:
    """Yield each version of all regions with why it stays; "" where it goes."""
    past = fold(read_steps(registry.journal))
    for slug in registry.slugs():
        names = registry.names(slug)
        reasons = {read_link(registry.path / slug / CURRENT): "serves"}
        reasons |= {read_link(registry.path / slug / CURRENT_PINNED): "pinned"}
        if len(names) > rule.champions:
            previous = find_previous(registry, slug, past.get(slug, Past()))
            reasons |= {previous.version: "served before"} if previous else {}
        for number, name in enumerate(names):
            newest = f"one of the newest {rule.champions}" * (number < rule.champions)
            yield registry.path / slug / name, reasons.get(name, "") or newest


def find_leftovers(runs: Path, study: str, registry: Registry, now: float) -> list[Path]:
    """Return what is left of removals that were cut off, and of runs and versions that were a day ago."""
    places = {runs: f"run-{study}-*", **{registry.path / slug: "*" for slug in registry.slugs()}}
    found = []
    for place, names in places.items():
        parts = (path for path in place.glob(f".{names}.part") if now - path.lstat().st_mtime > DAY)
        found += [*place.glob(aside_of(Path(names)).name), *parts]
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())


def measure_items(paths: Collection[Path]) -> tuple[dict[Path, int], int]:
    """Return what each folder takes, and what would be free if all were gone: files may be shared with others."""
    sizes: dict[Path, int] = {}
    links: dict[tuple[int, int], list[int]] = {}  # size, names that it has, names seen
    for path in paths:
        own: dict[tuple[int, int], int] = {}
        for found in _walk(path):
            size = found.st_blocks * 512
            own[found.st_dev, found.st_ino] = size
            links.setdefault((found.st_dev, found.st_ino), [size, found.st_nlink, 0])[2] += 1
        sizes[path] = sum(own.values())
    return sizes, sum(size for size, names, seen in links.values() if seen >= names)


def _walk(path: Path) -> Iterator[os.stat_result]:
    """Yield what is known of each file below a folder, links as such; folders that may not be read are passed over."""
    for place, _, files in os.walk(path):
        for name in files:
            try:
                found = os.lstat(Path(place, name))
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                yield found
