"""Who trains a region's trials: what a study and its run ask of that, the same of nnlib and of a program of the user's.

What their jobs are told, and what is read of a champion, is in `trainers.jobs`, which travels with DAGMan's scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from nnlib.contract import INIT_FILE, PROGRAM_FILE, sha256_of
from nnlib.util.memory import show_bytes
from regiondag.run.layout import NETWORK_FILE, RegionFolder, data_file
from regiondag.study.job_rules import HAS_APPTAINER
from regiondag.study.model import Region
from regiondag.study.program import Program
from regiondag.study.trainer import NETWORKS, PROGRAMS, Kind
from regiondag.trainers.archive import digest_of, write_program
from regiondag.trainers.networks.data import find_misfits
from regiondag.trainers.networks.space import check_network
from regiondag.trainers.program_check import check_seconds, check_space
from regiondag.util.schema import Section

if TYPE_CHECKING:
    from nnlib.data.file import DataSummary
    from nnlib.worker.downloads import Download


class Trainer(Protocol):
    """What trains the trials of one region."""

    @property
    def kind(self) -> Kind:
        """What is known of all that it makes."""

    @property
    def of_data_sets(self) -> bool:
        """Whether it learns from data sets of nnlib's, which can be pooled, and starts from models of nnlib's."""

    @property
    def made_of(self) -> str:
        """What its trainings are made of, in words."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Files of the user's that go with each job, besides data."""

    @property
    def downloads(self) -> tuple[Download, ...]:
        """Files that each job gets from URLs."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """What a machine must be, as an expression each of HTCondor's."""

    def check(self, section: Section, checked: set[object], /) -> None:
        """Note what is wrong with the region's hyperparameters and settings; `checked` has what other regions share."""

    def misfits(self, summaries: Mapping[Path, DataSummary], /) -> Iterator[str]:
        """Yield what does not fit together of what a job gets."""

    def copies(self, folder: RegionFolder, /) -> dict[Path, Path]:
        """Return which files a run takes into the region's folder, and of which."""

    def write(self, folder: RegionFolder, /) -> tuple[Path, ...]:
        """Write what is made for the jobs into the region's folder, and return it."""

    def inputs(self, folder: RegionFolder, parts: Sequence[str], /) -> list[Path]:
        """Return what jobs on some parts of the data get of the region's folder."""

    def is_unchanged(self, digests: Mapping[str, str], /) -> bool:
        """Whether it is what a run had, whose files in the region's folder have these SHA-256."""


def trainer_of(region: Region) -> Trainer:
    """Return what trains a region's trials."""
    return _OfNetworks(region) if region.program is None else _OfProgram(region, region.program)


def programs_of(regions: Iterable[Region]) -> dict[str, tuple[Region, Program]]:
    """Return the regions that programs train, by slug, and their programs."""
    return {region.slug: (region, region.program) for region in regions if region.program}


@dataclass(frozen=True, slots=True)
class _OfNetworks:
    """nnlib: networks and other families, from data sets that it has read."""

    region: Region
    kind: ClassVar[Kind] = NETWORKS
    of_data_sets: ClassVar[bool] = True
    made_of: ClassVar[str] = "data and network"
    files: ClassVar[tuple[Path, ...]] = ()
    downloads: ClassVar[tuple[Download, ...]] = ()
    requirements: ClassVar[tuple[str, ...]] = ()

    def check(self, section: Section, checked: set[object], /) -> None:
        check_network(section.problems, checked, section, self.region)

    def misfits(self, summaries: Mapping[Path, DataSummary], /) -> Iterator[str]:
        return find_misfits(self.region, summaries)

    def copies(self, folder: RegionFolder, /) -> dict[Path, Path]:
        network = self.region.network
        found = {folder.data(part): source for part, source in self.region.data.items()}
        return found if network is None else {**found, folder.path / NETWORK_FILE: network}

    def write(self, _folder: RegionFolder, /) -> tuple[Path, ...]:
        return ()

    def inputs(self, folder: RegionFolder, parts: Sequence[str], /) -> list[Path]:
        network = [] if self.region.network is None else [folder.path / NETWORK_FILE]
        return [*network, *map(folder.data, parts)]

    def is_unchanged(self, digests: Mapping[str, str], /) -> bool:
        sources = {data_file(part): file for part, file in self.region.data.items()}
        if self.region.network is not None:
            sources[NETWORK_FILE] = self.region.network
        if self.region.init.model:
            sources[INIT_FILE] = Path(self.region.init.model)
        then = {
            name: digest
            for name, digest in digests.items()
            if name in (*sources, INIT_FILE) or name.startswith("data.")
        }
        return set(then) == set(sources) and all(then[name] == sha256_of(file) for name, file in sources.items())


@dataclass(frozen=True, slots=True)
class _OfProgram:
    """A program of the user's. Its data, if any, are among its files."""

    region: Region
    program: Program
    kind: ClassVar[Kind] = PROGRAMS
    of_data_sets: ClassVar[bool] = False
    made_of: ClassVar[str] = "program and files"

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for _, file in self.program.files)

    @property
    def downloads(self) -> tuple[Download, ...]:
        return self.program.downloads

    @property
    def requirements(self) -> tuple[str, ...]:
        return (f"TARGET.{HAS_APPTAINER} =?= true",) if self.program.container else ()

    def check(self, section: Section, _checked: set[object], /) -> None:
        check_seconds(section, self.program, self.region.job.deadline)
        check_space(section, self.program, self.region.search.space)

    def misfits(self, _summaries: Mapping[Path, DataSummary], /) -> Iterator[str]:
        image = self.program.image
        size = image.stat().st_size if image else 0
        for key, job in (("job", self.region.job), ("final", self.region.final)):
            if job and job.disk < size:
                yield (
                    f"region {self.region.name!r}: {key}.disk is {show_bytes(job.disk)}, the image {image} alone has "
                    f"{show_bytes(size)}; ask for that, and for what the program writes"
                )

    def copies(self, folder: RegionFolder, /) -> dict[Path, Path]:
        return {folder.container: self.program.image} if self.program.image else {}

    def write(self, folder: RegionFolder, /) -> tuple[Path, ...]:
        write_program(self.program, folder.program_archive)
        return (folder.program_archive,)

    def inputs(self, folder: RegionFolder, _parts: Sequence[str], /) -> list[Path]:
        image = [folder.container] if self.program.image else []
        environment = [folder.environment] if self.program.environment else []
        return [folder.program_archive, *image, *environment]

    def is_unchanged(self, digests: Mapping[str, str], /) -> bool:
        return digests.get(PROGRAM_FILE) == digest_of(self.program)
