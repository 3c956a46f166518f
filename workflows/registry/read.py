"""Read the registry of champions: what serves each region, and what served it before.

    <runs>/champions/<study>/journal.jsonl               what was done, by whom and when
    <runs>/champions/<study>/<slug>/<version>/           champion.json, model.nc, floor.nc
    <runs>/champions/<study>/<slug>/current -> <version>

A version appears whole and is never changed; `current` moves in one step. So nobody who reads needs a lock.
Standard library alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlib.contract import FLOOR_FILE, MODEL_FILE, PROGRAM_MODEL_FILE
from regiondag.errors import RegiondagError
from regiondag.run.layout import SLUG, RunFile
from regiondag.util.digests import digest_of_shared

REGISTRIES = "champions"  # beside the runs; a folder a study
CHAMPION_FILE = "champion.json"
REGISTRY_JOURNAL = "journal.jsonl"
CURRENT, CURRENT_PINNED = "current", "pinned"  # links to a version; `pinned` is there while no run may move `current`

# Every file of a study's registry, for people; a test compares it with what is there.
FILES = (
    RunFile("journal.jsonl", "POST, champions", "what was promoted, rolled back, pinned and removed, by whom and when"),
    RunFile("journal.lock", "POST, champions", "empty; who holds it moves links"),
    RunFile("*/current", "POST, champions", "a link to the version that serves the region"),
    RunFile("*/pinned", "champions", "a link to the same, while no run may move it"),
    RunFile("*/*/champion.json", "POST", "recipe, figures, data, where and by whom it was made"),
    RunFile("*/*/model.nc", "POST", "the model"),
    RunFile("*/*/model.zip", "POST", "in its place, what a program has made"),
    RunFile("*/*/floor.nc", "POST", "recent popularity or logistic regression, fitted on the same days"),
)

_VERSION = re.compile(r"([0-9]{8}-[0-9]{6})(?:-([0-9]{1,4}))?")


@dataclass(frozen=True, slots=True)
class Champion:
    """One version of a region's champion."""

    study: str
    region: str
    slug: str
    version: str
    folder: Path
    sha256: str  # of the model
    run: str  # name of the run directory that it came from
    promoted: float  # when it came into the registry
    pinned: bool  # no run takes its place
    facts: Mapping[str, Any]  # champion.json, whole

    @property
    def model(self) -> Path:
        """What serves."""
        return self.folder / _model_file(self.facts)

    @property
    def of_program(self) -> bool:
        """Whether a program has made it, so that nnlib cannot ask it."""
        return self.model.name == PROGRAM_MODEL_FILE

    @property
    def floor(self) -> Path | None:
        """The floor, fitted on the same days; None where the run has none."""
        return self.folder / FLOOR_FILE if self.facts.get("floor") else None

    @property
    def digests(self) -> dict[Path, str]:
        """The SHA-256 of the files that serve."""
        return {self.model: self.sha256} | ({self.floor: str(self.facts["floor"])} if self.floor else {})

    def check(self) -> None:
        """Raise RegiondagError unless its files are what they were when it came into the registry.

        A file is read once in a process, and again only when it has changed.
        """
        for path in self.digests:
            self.check_file(path)

    def check_file(self, path: Path) -> None:
        """Do so for one of them."""
        digest = self.digests[path]
        try:
            seen = digest_of_shared(path)
        except OSError as error:
            raise RegiondagError(f"{path}: {error.strerror or error}; {self._advice}") from error
        if seen != digest:
            text = f"damaged, its SHA-256 is {seen[:12]}... and not {digest[:12]}..."
            raise RegiondagError(f"{path}: {text}; {self._advice}")

    @property
    def _advice(self) -> str:
        return _advise(self.folder.parent)


@dataclass(frozen=True, slots=True)
class Registry:
    """The champions of a study."""

    path: Path  # <runs>/champions/<study>

    @property
    def journal(self) -> Path:
        """What was done, a line each."""
        return self.path / REGISTRY_JOURNAL

    def slugs(self) -> list[str]:
        """Return all that have versions, the region that stands for all others together among them."""
        folders = self.path.iterdir() if self.path.is_dir() else ()
        return sorted(one.name for one in folders if SLUG.fullmatch(one.name) and one.is_dir())

    def regions(self) -> dict[str, str]:
        """Return the names of the regions that are served, by slug, in the alphabet's order."""
        found = {}
        for slug in self.slugs():
            one = self._named_by(slug)
            if one is None or not one.facts.get("pooled"):
                found[slug] = one.region if one else slug
        return dict(sorted(found.items(), key=lambda pair: (pair[1].casefold(), pair[0])))

    def current(self, slug: str) -> Champion | None:
        """Return what serves a region; None before its first champion.

        RegiondagError, with what to do, where `current` points nowhere or to a version that is not whole.
        """
        target = read_link(self.path / slug / CURRENT)
        if target is None:
            return None
        champion = self.version(slug, target)
        champion.check()
        return champion

    def versions(self, slug: str) -> list[Champion]:
        """Return a region's versions, the newest first, but for damaged ones (`damages` has those)."""
        return [one for name in self.names(slug) if (one := self.try_version(slug, name))]

    def damages(self, slug: str) -> dict[str, str]:
        """Return what is wrong with versions that cannot be read; models are not looked into."""
        found = {}
        for name in self.names(slug):
            try:
                self.version(slug, name)
            except RegiondagError as error:
                found[name] = str(error)
        return found

    def names(self, slug: str) -> list[str]:
        """Return the names of a region's versions, whole or not, the newest first."""
        return sorted(_list_versions(self.path / slug), key=version_key, reverse=True)

    def version(self, slug: str, name: str) -> Champion:
        """Return one version of a region; RegiondagError where it is not there or not whole. Models are not read."""
        folder = self.path / slug / name
        if not _VERSION.fullmatch(name) or not folder.is_dir():
            raise RegiondagError(f"{folder}: there is no such version; {_advise(folder.parent)}")
        try:
            return _read(folder, pinned=read_link(folder.parent / CURRENT_PINNED) == name)
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise RegiondagError(f"{folder}: damaged ({error}); {_advise(folder.parent)}") from error

    def is_pinned(self, slug: str) -> bool:
        """Whether no run may move `current`."""
        return try_link(self.path / slug / CURRENT_PINNED) is not None

    def try_version(self, slug: str, name: str) -> Champion | None:
        """Return one version; None where it is not there or not whole."""
        try:
            return self.version(slug, name)
        except RegiondagError:
            return None

    def _named_by(self, slug: str) -> Champion | None:
        """Return a version that says how the region is called: what serves, or else the newest that can be read."""
        target = try_link(self.path / slug / CURRENT)
        names = [target] if target else []
        return next((one for name in [*names, *self.names(slug)] if (one := self.try_version(slug, name))), None)


def open_registry(runs: Path, study: str) -> Registry:
    """Return the registry of a study's champions, which lies beside its runs; it may not be there yet."""
    return Registry(runs / REGISTRIES / study)


def version_key(name: str) -> tuple[str, int]:
    """Return what versions are sorted by.

    >>> sorted(["20260102-000000", "20260101-000000-10", "20260101-000000-2"], key=version_key)
    ['20260101-000000-2', '20260101-000000-10', '20260102-000000']
    """
    found = _VERSION.fullmatch(name)
    return (found[1], int(found[2] or 1)) if found else (name, 1)


def read_link(link: Path) -> str | None:
    """Return where a link of the registry points to; None where there is none."""
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RegiondagError(
            f"{link}: no link to a version ({error.strerror}), as after a copy that followed links; remove it, "
            f"{_advise(link.parent)}"
        ) from error


def try_link(link: Path) -> str | None:
    """Return the same, and None where something else stands there."""
    try:
        return read_link(link)
    except RegiondagError:
        return None


def _list_versions(folder: Path) -> Iterator[str]:
    if folder.is_dir():
        yield from (one.name for one in folder.iterdir() if _VERSION.fullmatch(one.name))


def _read(folder: Path, *, pinned: bool) -> Champion:
    facts = json.loads((folder / CHAMPION_FILE).read_text(encoding="utf-8"))
    known = {key: facts[key] for key in ("study", "region", "run", "sha256")}
    if not all(isinstance(value, str) for value in known.values()):
        raise ValueError(f"{CHAMPION_FILE}: {', '.join(known)} are to be texts")
    if (facts["slug"], facts["version"]) != (folder.parent.name, folder.name):
        raise ValueError(f"{CHAMPION_FILE} is of {facts['slug']} {facts['version']}")
    model = folder / _model_file(facts)
    size = model.stat().st_size
    if size != facts["bytes"]:
        raise ValueError(f"{model.name} has {size:,} bytes and not {facts['bytes']:,}")
    return Champion(
        **known,
        slug=folder.parent.name,
        version=folder.name,
        folder=folder,
        promoted=float(facts["promoted"]),
        pinned=pinned,
        facts=facts,
    )


def _model_file(facts: Mapping[str, Any]) -> str:
    """Return the name of the file that serves; ValueError for one that no run of ours writes."""
    name = facts.get("file", MODEL_FILE)
    if name not in (MODEL_FILE, PROGRAM_MODEL_FILE):
        raise ValueError(f"{CHAMPION_FILE}: file: seen {name!r:.80}, legal: {MODEL_FILE}, {PROGRAM_MODEL_FILE}")
    return str(name)


def _advise(folder: Path) -> str:
    found = sorted(_list_versions(folder), key=version_key, reverse=True)
    known = f"there are {', '.join(found[:4])}{' ...' if len(found) > 4 else ''}" if found else "there is none"
    return f"next: regiondag champions rollback STUDY {folder.name} --to VERSION; {known}"
