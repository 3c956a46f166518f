"""Change what serves: promote, roll back, pin, and remove versions.

Each step is a line of the journal first and then a link that moves, under the registry's lock. A step that was cut off
between the two is finished by whoever takes the lock next, and so is done once, however often it is asked for.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnlib.contract import FLOOR_FILE, sha256_of
from nnlib.util.files import appearing, copy_atomically, link_or_copy, locked, sync, write_atomically
from regiondag.errors import RegiondagError
from regiondag.registry.journal import (
    MOVES,
    PINNED,
    PROMOTED,
    REGISTERED,
    REMOVED,
    ROLLED_BACK,
    UNPINNED,
    Past,
    append_step,
    fold,
    read_last_step,
    read_steps,
    who_am_i,
)
from regiondag.registry.read import (
    CHAMPION_FILE,
    CURRENT,
    CURRENT_PINNED,
    Champion,
    Registry,
    open_registry,
    read_link,
    version_key,
)
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.run.region_spec import RegionSpec

_STAMP = re.compile(r".*-([0-9]{8}-[0-9]{6})(?:-[0-9]+)?")


def promote_region(folder: RegionFolder, spec: RegionSpec) -> Champion:
    """Put a region's champion into the registry beside its run, and in office. Done twice it changes nothing more.

    A pinned region keeps what it has, and so does one that is served by a newer run's. What stands for all regions
    together serves nobody; it is there as what tomorrow's search begins with, and goes back with the others.
    """
    registry = open_registry(folder.run.path.parent, spec.study)
    facts: dict[str, Any] = json.loads(folder.champion_metrics.read_text(encoding="utf-8"))
    with _step(registry):
        name = _find(registry, folder, str(facts["sha256"]))
        if name is None:
            name = _write_version(registry, folder, spec, facts)
        elif name in _past(registry, spec.slug).known:
            return registry.version(spec.slug, name)
        _do(registry, PROMOTED if _may_serve(registry, spec.slug, name) else REGISTERED, {spec.slug: name})
    return registry.version(spec.slug, name)


def roll_back(registry: Registry, versions: Mapping[str, str]) -> dict[str, str]:
    """Let other versions serve, of all regions in one step; return those that were not serving already.

    The pin of a pinned region goes along: it keeps runs from moving `current`, not people. RegiondagError, and nothing
    is changed, where one of the versions is damaged.
    """
    with _step(registry):
        for slug, name in versions.items():
            registry.version(slug, name).check()
        new = {slug: name for slug, name in versions.items() if read_link(registry.path / slug / CURRENT) != name}
        if new:
            _do(registry, ROLLED_BACK, new)
    return new


def pin(registry: Registry, slug: str) -> Champion:
    """Let no run move `current` of a region; RegiondagError where nothing serves it."""
    with _step(registry):
        champion = registry.current(slug)
        if champion is None:
            raise RegiondagError(f"the region {slug!r} has no champion yet, so there is nothing to pin")
        if not champion.pinned:
            _do(registry, PINNED, {slug: champion.version})
    return registry.version(slug, champion.version)


def unpin(registry: Registry, slug: str) -> bool:
    """Let the next run's champion serve again; return whether the region was pinned."""
    with _step(registry):
        pinned = read_link(registry.path / slug / CURRENT_PINNED)
        if pinned is not None:
            _do(registry, UNPINNED, {slug: pinned})
    return pinned is not None


def remove_version(registry: Registry, slug: str, name: str) -> None:
    """Remove a version that neither serves nor is pinned; RegiondagError for one that does."""
    with _step(registry):
        if name in (read_link(registry.path / slug / CURRENT), read_link(registry.path / slug / CURRENT_PINNED)):
            raise RegiondagError(f"{registry.path / slug / name} serves, so it is not removed")
        _do(registry, REMOVED, {slug: name})


def find_previous(registry: Registry, slug: str, past: Past) -> Champion | None:
    """Return what served a region before what serves now: the newest older version that ever did and is whole."""
    now = past.current or read_link(registry.path / slug / CURRENT)
    for name in registry.names(slug):
        if name in past.served and (now is None or version_key(name) < version_key(now)):
            try:
                champion = registry.version(slug, name)
                champion.check()
            except RegiondagError:
                continue
            return champion
    return None


@contextmanager
def _step(registry: Registry) -> Iterator[None]:
    """Hold the registry's lock, when the last step is done."""
    registry.path.mkdir(0o700, parents=True, exist_ok=True)  # models are their owner's business, as in a run
    with locked(registry.journal.with_suffix(".lock")):
        last = read_last_step(registry.journal)
        if last:
            _move(registry, last.event, last.moves)
        yield


def _do(registry: Registry, event: str, moves: Mapping[str, str]) -> None:
    append_step(registry.journal, event, moves)
    _move(registry, event, moves)


def _move(registry: Registry, event: str, moves: Mapping[str, str]) -> None:
    """Do what the journal says; nothing where that is done."""
    for slug, name in moves.items():
        folder = registry.path / slug
        if event in MOVES and (folder / name).is_dir():
            _point(folder / CURRENT, name)
            if read_link(folder / CURRENT_PINNED) is not None:
                _point(folder / CURRENT_PINNED, name)
        elif event == PINNED:
            _point(folder / CURRENT_PINNED, name)
        elif event == UNPINNED:
            (folder / CURRENT_PINNED).unlink(missing_ok=True)
        elif event == REMOVED:
            remove_folder(folder / name)


def _point(link: Path, target: str) -> None:
    """Let a link point to another version, in one step."""
    if read_link(link) == target:
        return
    part = link.with_name(f".{link.name}.part")  # whoever is here has the lock: a part that is there is nobody's
    part.unlink(missing_ok=True)
    part.symlink_to(target)
    part.replace(link)
    sync(link.parent)


def aside_of(path: Path) -> Path:
    """Return where a folder lies while it is removed."""
    return path.with_name(f".{path.name}.removed")


def remove_folder(path: Path) -> None:
    """Remove a folder that at no time looks whole without being it; one that was left half way goes, too."""
    aside = aside_of(path)
    if path.is_dir() and not path.is_symlink():
        if aside.exists():
            shutil.rmtree(aside)
        path.replace(aside)
        sync(path.parent)
    if aside.exists():
        shutil.rmtree(aside)


def _may_serve(registry: Registry, slug: str, name: str) -> bool:
    now = read_link(registry.path / slug / CURRENT)
    if registry.is_pinned(slug):
        return False
    return now is None or not (registry.path / slug / now).is_dir() or version_key(now) < version_key(name)


def _past(registry: Registry, slug: str) -> Past:
    return fold(read_steps(registry.journal)).get(slug, Past())


def _find(registry: Registry, folder: RegionFolder, sha256: str) -> str | None:
    """Return the version that is this run's very model; None where there is none."""
    for name in registry.names(folder.path.name):
        if name.startswith(_stamp(folder)):
            known = registry.try_version(folder.path.name, name)
            if known and (known.run, known.sha256) == (folder.run.path.name, sha256):
                return name
    return None


def _write_version(registry: Registry, folder: RegionFolder, spec: RegionSpec, facts: Mapping[str, Any]) -> str:
    place, stamp, number = registry.path / spec.slug, _stamp(folder), 1
    while (place / (name := stamp if number == 1 else f"{stamp}-{number}")).exists():
        number += 1  # a final training that was run again, another run of that second, or a damaged version
    floor = _find_floor(folder, spec, facts)
    with appearing(place / name) as part:
        model = part / folder.champion_model.name
        link_or_copy(folder.champion_model, model)
        if floor:
            # What a job brought has no second name, or POST, called again, would refuse it.
            brought = floor.parent == folder.trial(NodeName(spec.slug, None))
            (copy_atomically if brought else link_or_copy)(floor, part / FLOOR_FILE)
        known = {
            **facts,
            "slug": spec.slug,
            "version": name,
            "promoted": round(time.time(), 3),
            "by": who_am_i(),
            "file": model.name,
            "bytes": model.stat().st_size,
            "floor": sha256_of(part / FLOOR_FILE) if floor else None,
            "data": {file: digest for file, digest in spec.sha256.items() if file.startswith("data.")},
            "pooled": bool(spec.regions or spec.rows),
        }
        write_atomically(part / CHAMPION_FILE, json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    return name


def _find_floor(folder: RegionFolder, spec: RegionSpec, facts: Mapping[str, Any]) -> Path | None:
    """Return the floor as the run has it: of all regions' job where that serves, else of the region's own."""
    ours = folder.trial(NodeName(spec.slug, None)) / FLOOR_FILE
    floor = folder.run.region(spec.served_by).champion_floor if spec.served_by and "decision" in facts else ours
    return floor if floor.exists() else None


def _stamp(folder: RegionFolder) -> str:
    """Return when the run was made, as its name says."""
    found = _STAMP.fullmatch(folder.run.path.name)
    if found:
        return found[1]
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(folder.spec.stat().st_mtime))
