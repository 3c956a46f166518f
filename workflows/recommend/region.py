"""Which champion recommends in a region, and from which histories.

The champion is the registry's current one. Histories are those of the study's newest run that has data of the region,
or of the file that these were copied from where it was made anew since: a model may be older than what it is asked
with, as items are found by name. Names of items are those of the newest run that has any.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from regiondag.errors import RegiondagError
from regiondag.registry.read import Champion, Registry, open_registry
from regiondag.run.champions import earlier_runs
from regiondag.run.layout import RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import read_spec
from regiondag.study.submit_commands import Submit

if TYPE_CHECKING:
    from nnlib.prediction.recommender import Recommender

HISTORIES = ("all", "final", "train")  # parts of the data, the one that knows most first


@dataclass(frozen=True, slots=True)
class Sources:
    """The files that a region's recommendations are made of."""

    champion: Champion
    data: Path
    items: Path | None


@dataclass(frozen=True)
class Served:
    """A study's regions that have a champion. What lies on the disk is looked at once."""

    runs: Path
    study: str
    registry: Registry = field(init=False)

    def __post_init__(self) -> None:
        """Open the registry."""
        object.__setattr__(self, "registry", open_registry(self.runs, self.study))

    @cached_property
    def regions(self) -> Mapping[str, str]:
        """Names by slug; RegiondagError, with what to do, where there is no champion yet."""
        found = self.registry.regions()
        if not found:
            raise RegiondagError(
                f"the study {self.study!r} has no champion in {self.registry.path} yet; "
                + ("its newest run is to end first: regiondag status" if self._runs else "first: regiondag run")
            )
        return found

    @cached_property
    def without_champion(self) -> Mapping[str, str]:
        """Names by slug of regions of the newest run that have no champion."""
        known = read_manifest(self._runs[0]).regions if self._runs else {}
        return {slug: name for slug, name in known.items() if slug not in self.regions and slug != "pooled"}

    def find(self, slug: str) -> Sources:
        """Return what a region's recommendations are made of; RegiondagError where something is missing."""
        champion = self.registry.current(slug)
        if champion is None:
            raise RegiondagError(
                f"the region {slug!r} of the study {self.study!r} has no champion yet; `regiondag status` says how far "
                "its run is, and `regiondag champions list` what is there"
            )
        return self.sources_of(champion)

    def sources_of(self, champion: Champion) -> Sources:
        """Return the same of a version of a champion, be it the current one or not."""
        _refuse_program(champion)
        return Sources(champion, self.find_data(champion.slug), self._items)

    def find_data(self, slug: str) -> Path:
        """Return the newest data file with the histories of a region's customers."""
        for run in self._runs:
            for part in HISTORIES:
                copy = run.region(slug).data(part)
                if copy.is_file():
                    return _newer(run, copy)
        if champion := self.registry.current(slug):
            _refuse_program(champion)
        raise RegiondagError(
            f"no run of the study {self.study!r} in {self.runs} has data of the region {slug!r} any more, so nothing "
            "is known of its customers; next: regiondag generate"
        )

    def find_submit(self, slug: str) -> Submit:
        """Return the submit commands that the newest run of a region gives its jobs, as a pool may ask for them."""
        spec = next((run.region(slug).spec for run in self._runs if run.region(slug).spec.is_file()), None)
        return read_spec(spec).job.submit if spec else {}

    def find_bundle(self, slug: str) -> Path | None:
        """Return the Python that the newest run of a region sends along with its jobs, if it does."""
        file = next((run.region(slug).python_bundle for run in self._runs if run.region(slug).spec.is_file()), None)
        return file if file and file.is_file() else None

    def open(self, slug: str) -> Recommender:
        """Return what recommends in a region; RegiondagError says what is missing or damaged."""
        return self.open_sources(self.find(slug))

    def open_sources(self, found: Sources) -> Recommender:
        """Return what recommends by these files."""
        from nnlib.errors import NnlibError
        from nnlib.prediction.recommender import open_recommender

        try:
            return open_recommender(found.champion.model, found.data, found.champion.floor, found.items)
        except NnlibError as error:
            raise RegiondagError(f"region {found.champion.region!r}: {error}") from error

    @cached_property
    def _runs(self) -> list[RunFolder]:
        return earlier_runs(self.runs, self.study)

    @cached_property
    def _items(self) -> Path | None:
        return next((run.items for run in self._runs if run.items.is_file()), None)


def _newer(run: RunFolder, copy: Path) -> Path:
    """Return the file that a run's data were copied from if it was made anew since, else the copy."""
    source = read_manifest(run).sources.get(str(copy.relative_to(run.path)))
    try:
        if source is not None and Path(source).stat().st_mtime > copy.stat().st_mtime:
            return Path(source)
    except OSError:  # it is not there any more
        pass
    return copy


def _refuse_program(champion: Champion) -> None:
    if champion.of_program:
        raise RegiondagError(
            f"what serves {champion.region!r} was made by a program, which regiondag cannot ask; next: regiondag "
            f"champions export STUDY {champion.region!r} --to FOLDER, which writes what it has left"
        )
