"""What PRE and POST scripts know of a region: `region.json`, written once when the run directory is made."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nnlib.contract import (
    PROGRAM_FILE,
    Metric,
    Outputs,
    Recipe,
    TrainSettings,
    recipe_of,
)
from regiondag.errors import RegiondagError
from regiondag.study.model import MIN_CUSTOMERS, Config, Init, JobRequest, Region, Search
from regiondag.study.space import Point, parameter_from_json, parameter_to_json
from regiondag.study.trainer import NETWORKS, PROGRAMS, Kind

_RUN_ID = re.compile(rb'\{\s*"run_id": "([0-9a-f]+)"')
RESTORE = "; restore it from a copy, or generate the run anew"


@dataclass(frozen=True, slots=True)
class RegionSpec:
    """A region's search and training, with the SHA-256 of every input file in its folder."""

    study: str
    name: str
    slug: str
    metric: Metric
    train: TrainSettings
    search: Search
    final_parts: tuple[str, ...]
    sha256: Mapping[str, str]
    position: int = 0  # of the region in the study: regions that share start on different parts of a sequence
    first: tuple[Point, ...] = ()  # points of the first trials: that of the recipe in office
    init: Init = field(default_factory=Init)
    shape: tuple[str, ...] = ()  # hyperparameters that a model to start from has decided
    job: JobRequest = field(default_factory=JobRequest)
    deadline: int = 0  # of the study, see `Limits`
    most_trials: int = 0  # of all searches together, see `Limits`
    most_disk: int = 0  # bytes of the run, see `Limits`
    served_by: str = ""  # slug of the region whose search is for this one, too
    regions: tuple[str, ...] = ()  # slugs of the regions that are served by this one
    min_customers: int = MIN_CUSTOMERS
    incumbent: Recipe | None = None  # the recipe in office
    own: Mapping[str, Recipe] = field(default_factory=dict)  # those that are in office in one of `regions` alone
    window: int | None = None  # the first day of the validation window, in days since 1970-01-01
    # Of merged data: part -> slug of the region -> the first of its customers, and the one after the last.
    rows: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    final: JobRequest | None = None  # what the last training asks for; None: as `job`
    floor: Recipe | None = None  # what its networks have to beat; None: recent popularity
    run_id: str = ""  # of the run and the region, which each line of its journal has; empty: an earlier version made it

    @property
    def kind(self) -> Kind:
        """Who trains its trials: nnlib, or a program of the user's, whose archive lies in the region's folder then."""
        return PROGRAMS if PROGRAM_FILE in self.sha256 else NETWORKS

    @property
    def outputs(self) -> Outputs:
        """What its jobs bring back."""
        return self.kind.outputs

    @property
    def by_value(self) -> bool:
        """Whether trials are compared by their values alone: no recipe has a network's loss or a program's metric."""
        return self.metric.minimize or not self.kind.by_customers


def spec_of(
    study: str,
    region: Region,
    sha256: Mapping[str, str],
    position: int,
    first: tuple[Point, ...] = (),
    shape: tuple[str, ...] = (),
    incumbent: Recipe | None = None,
    config: Config | None = None,
) -> RegionSpec:
    """Return what PRE and POST need to know of `region`; `shape`: hyperparameters that shape its network."""
    served = () if config is None else tuple(r.slug for r in config.regions if r.served_by == region.slug)
    return RegionSpec(
        study=study,
        name=region.name,
        slug=region.slug,
        metric=region.metric,
        train=region.train,
        search=region.search,
        final_parts=region.final_parts,
        sha256=sha256,
        position=position,
        first=first,
        init=region.init,
        shape=shape,
        job=region.job,
        final=region.final,
        deadline=config.limits.deadline if config else 0,
        most_trials=config.limits.trials if config else 0,
        most_disk=config.limits.disk if config else 0,
        served_by=region.served_by,
        regions=served,
        min_customers=config.min_customers if config else MIN_CUSTOMERS,
        incumbent=incumbent,
    )


def spec_to_json(spec: RegionSpec) -> str:
    """Return `spec` as JSON text."""
    search = asdict(spec.search) | {"space": [parameter_to_json(parameter) for parameter in spec.search.space]}
    raw = {
        "run_id": spec.run_id,  # first: see `read_run_id`
        "study": spec.study,
        "name": spec.name,
        "slug": spec.slug,
        "metric": asdict(spec.metric),
        "train": asdict(spec.train),
        "search": search,
        "final_parts": spec.final_parts,
        "sha256": spec.sha256,
        "position": spec.position,
        "first": [dict(point) for point in spec.first],
        "start": asdict(spec.init),
        "shape": spec.shape,
        "job": asdict(spec.job),
        "final": spec.final and asdict(spec.final),
        "deadline": spec.deadline,
        "most_trials": spec.most_trials,
        "most_disk": spec.most_disk,
        "served_by": spec.served_by,
        "regions": spec.regions,
        "min_customers": spec.min_customers,
        "incumbent": spec.incumbent and asdict(spec.incumbent),
        "own": {slug: asdict(recipe) for slug, recipe in spec.own.items()},
        "window": spec.window,
        "rows": spec.rows,
        "floor": spec.floor and asdict(spec.floor),
    }
    return json.dumps(raw, indent=1, ensure_ascii=False) + "\n"


def read_spec(path: Path) -> RegionSpec:
    """Read what `spec_to_json` wrote; RegiondagError when it cannot be read."""
    try:
        raw: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return RegionSpec(
            study=raw["study"],
            name=raw["name"],
            slug=raw["slug"],
            metric=Metric(**raw["metric"]),
            train=TrainSettings(**raw["train"]),
            search=_read_search(raw["search"]),
            final_parts=tuple(raw["final_parts"]),
            sha256=raw["sha256"],
            position=raw.get("position", 0),
            first=tuple(raw.get("first", ())),
            init=Init(**raw.get("start", {})),
            shape=tuple(raw.get("shape", ())),
            job=JobRequest(**raw.get("job", {})),
            final=JobRequest(**raw["final"]) if raw.get("final") else None,
            deadline=raw.get("deadline", 0),
            most_trials=raw.get("most_trials", 0),
            most_disk=raw.get("most_disk", 0),
            served_by=raw.get("served_by", ""),
            regions=tuple(raw.get("regions", ())),
            min_customers=raw.get("min_customers", MIN_CUSTOMERS),
            incumbent=recipe_of(raw["incumbent"]) if raw.get("incumbent") else None,
            own={slug: recipe_of(recipe) for slug, recipe in raw.get("own", {}).items()},
            window=raw.get("window"),
            rows={
                part: {slug: (ends[0], ends[1]) for slug, ends in rows.items()}
                for part, rows in raw.get("rows", {}).items()
            },
            floor=recipe_of(raw["floor"]) if raw.get("floor") else None,
            run_id=raw.get("run_id", ""),
        )
    except OSError as error:
        raise RegiondagError(f"{path}: cannot be read: {error.strerror}{RESTORE}") from error
    except (KeyError, TypeError, ValueError) as error:
        seen = f"it lacks {error}" if isinstance(error, KeyError) else "it is damaged"
        raise RegiondagError(
            f"{path}: cannot be read as a region of this version: {seen}, or was made by another one{RESTORE}"
        ) from error


def make_run_id(run: Path, created: str, slug: str) -> str:
    """Return an id of a run's region, the same wherever the run lies later."""
    return hashlib.sha256("\n".join((str(run), created, slug)).encode()).hexdigest()[:12]


def read_run_id(path: Path) -> str:
    """Return what the lines of a region's journal have as `run`, without the rest: where data are merged, megabytes.

    Empty where the file is not there, or an earlier version made it.
    """
    try:
        with path.open("rb", buffering=0) as file:
            head = _RUN_ID.match(file.read(80))
    except OSError:
        return ""
    return head[1].decode() if head else ""


def _read_search(raw: Mapping[str, Any]) -> Search:
    space = tuple(map(parameter_from_json, raw["space"]))
    return Search(**{**raw, "space": space, "sizes": tuple(raw["sizes"]), "constraints": tuple(raw["constraints"])})
