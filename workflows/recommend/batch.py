"""Recommendations for all customers: what is to be written, in which files, and whether it is there. Standard library.

STUDY/recommendations/<stamp>/manifest.json            written last: without it something is missing
STUDY/recommendations/<stamp>/<slug>/part-0000.parquet a chunk of a region's customers
STUDY/recommendations/<stamp>/_work/                   plan, inputs, and what HTCondor needs and leaves
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnlib.contract import sha256_of
from nnlib.util.files import write_atomically
from regiondag.errors import RegiondagError

RECOMMENDATIONS, WORK = "recommendations", "_work"  # no slug has an underscore
PLAN_FILE, MANIFEST, DAG = "plan.json", "manifest.json", "recommend.dag"
VERSION = 1
MAGIC = b"PAR1"
MOST_REPORT = 1 << 16  # bytes of what a job says of its file
_NODE = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)_c([0-9]{4,9})")


class PartError(RegiondagError):
    """A file of recommendations that is missing, or not what its job said.

    Next: submit again; what is there already is not made anew.
    """


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some customers of a region, by their places in its data: one file, and one job."""

    slug: str
    number: int
    first: int
    last: int

    @property
    def node(self) -> str:
        """Its name in the DAG."""
        return f"{self.slug}_c{self.number:04d}"

    @property
    def name(self) -> str:
        """Its file's name, without what says the kind."""
        return f"part-{self.number:04d}"

    @property
    def customers(self) -> int:
        """How many."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class RegionBatch:
    """One region's part: the champion, the data, and how its customers are split."""

    slug: str
    name: str
    version: str  # of the champion
    model: str  # SHA-256
    data: str  # SHA-256 of the histories
    customers: int
    items: int
    chunk: int  # customers a file
    floor: bool  # whether it has recent popularity as a model

    def chunks(self) -> Iterator[Chunk]:
        """Yield its chunks, in the order of its customers."""
        for number, first in enumerate(range(0, self.customers, self.chunk)):
            yield Chunk(self.slug, number, first, min(first + self.chunk, self.customers) - 1)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What is to be written. Two of the same are the same work."""

    study: str
    k: int
    owned: bool | None  # None: as the data say
    only: tuple[str, ...] | None
    never: tuple[str, ...]
    regions: tuple[RegionBatch, ...]

    def chunks(self) -> Iterator[Chunk]:
        """Yield all chunks."""
        for region in self.regions:
            yield from region.chunks()

    def region(self, slug: str) -> RegionBatch:
        """Return a region; KeyError without."""
        return next(one for one in self.regions if one.slug == slug)


@dataclass(frozen=True, slots=True)
class Part:
    """A file that is there, as its job said and as it is."""

    path: str  # in the batch's folder
    customers: int
    by_popularity: int
    rows: int
    sha256: str
    seconds: float


@dataclass(frozen=True, slots=True)
class BatchFolder:
    """The files of one batch."""

    path: Path

    @property
    def manifest(self) -> Path:
        """What makes it whole."""
        return self.path / MANIFEST

    @property
    def work(self) -> Path:
        """Plan, inputs, DAG and logs."""
        return self.path / WORK

    @property
    def dag(self) -> Path:
        """The graph of all chunks that HTCondor works on."""
        return self.work / DAG

    def inputs(self, slug: str) -> Path:
        """Folder of what a region's jobs read."""
        return self.work / slug

    def part(self, chunk: Chunk) -> Path:
        """Where a chunk's recommendations go."""
        return self.path / chunk.slug / f"{chunk.name}.parquet"

    def report(self, chunk: Chunk) -> Path:
        """What its job says of the file."""
        return self.work / chunk.slug / f"{chunk.name}.json"

    def find(self, node: str) -> Chunk:
        """Return the chunk of a node's name; ValueError for none."""
        found = _NODE.fullmatch(node)
        chunks = self.read_plan().region(found[1]).chunks() if found else iter(())
        chunk = next((one for one in chunks if one.node == node), None)
        if chunk is None:
            raise ValueError(f"{node!r} is no chunk of {self.path}")
        return chunk

    def read_plan(self) -> BatchPlan:
        """Read the plan; RegiondagError when it is damaged."""
        path = self.work / PLAN_FILE
        try:
            return plan_of(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RegiondagError(f"{path}: damaged ({error}); begin anew: remove {self.path}") from error

    def write_plan(self, plan: BatchPlan) -> None:
        """Write the plan."""
        write_atomically(self.work / PLAN_FILE, json.dumps(asdict(plan), ensure_ascii=False, indent=1) + "\n")

    def is_there(self, chunk: Chunk) -> bool:
        """Whether a chunk seems done; what is in its file `read_part` looks at."""
        try:
            return self.part(chunk).stat().st_size > len(MAGIC) and self.report(chunk).stat().st_size > 0
        except OSError:
            return False

    def read_part(self, plan: BatchPlan, chunk: Chunk) -> Part:
        """Return what is there of a chunk; PartError when it is missing, torn, or not what its job said."""
        path, report = self.part(chunk), self.report(chunk)
        try:
            with report.open("rb") as file:
                said: Any = json.loads(file.read(MOST_REPORT))
            counts = [said[key] for key in ("customers", "by_popularity", "rows")]
            digest, seconds = said["sha256"], float(said["seconds"])
            with path.open("rb") as file:
                begin = file.read(len(MAGIC))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PartError(f"{path.name} of {chunk.slug}: nothing whole came of it ({error})") from error
        if not all(type(count) is int and count >= 0 for count in counts) or not 0 <= seconds < 1e9:
            raise PartError(f"{report.name} of {chunk.slug}: seen {counts}, legal: numbers from 0")
        customers, popular, rows = counts
        if customers != chunk.customers or popular > customers or not 0 < rows <= customers * plan.k:
            raise PartError(
                f"{path.name} of {chunk.slug}: {rows} rows of {customers} customers, {popular} by popularity; legal: "
                f"{chunk.customers} customers, at most {plan.k} rows each"
            )
        seen = sha256_of(path)
        if begin != MAGIC or seen != digest:
            raise PartError(f"{path.name} of {chunk.slug}: its SHA-256 is {seen[:12]}, its job said {str(digest)[:12]}")
        return Part(str(path.relative_to(self.path)), customers, popular, rows, seen, seconds)

    def discard(self, chunk: Chunk) -> None:
        """Remove what is there of a chunk."""
        self.part(chunk).unlink(missing_ok=True)
        self.report(chunk).unlink(missing_ok=True)

    def finish(self, plan: BatchPlan) -> None:
        """Look at every file and write the manifest; PartError, and no manifest, when one is missing or wrong."""
        parts = {chunk.node: self.read_part(plan, chunk) for chunk in plan.chunks()}
        regions = [
            {
                **{
                    key: getattr(one, key) for key in ("slug", "name", "version", "model", "data", "customers", "items")
                },
                "rows": sum(parts[chunk.node].rows for chunk in one.chunks()),
                "parts": [asdict(parts[chunk.node]) for chunk in one.chunks()],
            }
            for one in plan.regions
        ]
        facts = {
            "version": VERSION,
            "study": plan.study,
            "finished": time.time(),
            "k": plan.k,
            "owned": plan.owned,
            "only": plan.only,
            "never": plan.never,
            "customers": sum(part.customers for part in parts.values()),
            "rows": sum(part.rows for part in parts.values()),
            "regions": regions,
        }
        write_atomically(self.manifest, json.dumps(facts, ensure_ascii=False, indent=1) + "\n")


def plan_of(text: str) -> BatchPlan:
    """Return the plan that JSON holds; KeyError, TypeError or ValueError where it is none."""
    raw: Any = json.loads(text)
    regions = tuple(RegionBatch(**region) for region in raw["regions"])
    if any(one.chunk < 1 or one.customers < 0 for one in regions):
        raise ValueError("a chunk without customers")
    only = None if raw["only"] is None else tuple(map(str, raw["only"]))
    return BatchPlan(raw["study"], int(raw["k"]), raw["owned"], only, tuple(map(str, raw["never"])), regions)


def list_batches(study: Path) -> list[BatchFolder]:
    """Return the batches of a study's folder, the newest first."""
    found = sorted((study / RECOMMENDATIONS).glob(f"*/{WORK}/{PLAN_FILE}"), reverse=True)
    return [BatchFolder(path.parents[1]) for path in found]
