"""What PRE and POST scripts know of a region: `region.json`, written once when the run directory is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nnlib.contract import Metric, TrainSettings
from regiondag.errors import RegiondagError
from regiondag.study.model import Init, JobRequest, Region, Search
from regiondag.study.space import Point, parameter_from_json, parameter_to_json

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
    first: tuple[Point, ...] = ()  # points of the first trials: the standing champion's
    init: Init = field(default_factory=Init)
    shape: tuple[str, ...] = ()  # hyperparameters that a model to start from has decided
    job: JobRequest = field(default_factory=JobRequest)
    deadline: int = 0  # of the study, see `Limits`


def spec_of(
    study: str,
    region: Region,
    sha256: Mapping[str, str],
    position: int,
    first: tuple[Point, ...] = (),
    shape: tuple[str, ...] = (),
    deadline: int = 0,
) -> RegionSpec:
    """Return what PRE and POST need to know of `region`; `shape`: hyperparameters that shape its network."""
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
        deadline=deadline,
    )


def spec_to_json(spec: RegionSpec) -> str:
    """Return `spec` as JSON text."""
    search = asdict(spec.search) | {"space": [parameter_to_json(parameter) for parameter in spec.search.space]}
    raw = {
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
        "deadline": spec.deadline,
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
            deadline=raw.get("deadline", 0),
        )
    except OSError as error:
        raise RegiondagError(f"{path}: cannot be read: {error.strerror}{RESTORE}") from error
    except (KeyError, TypeError, ValueError) as error:
        seen = f"it lacks {error}" if isinstance(error, KeyError) else "it is damaged"
        raise RegiondagError(
            f"{path}: cannot be read as a region of this version: {seen}, or was made by another one{RESTORE}"
        ) from error


def _read_search(raw: Mapping[str, Any]) -> Search:
    space = tuple(map(parameter_from_json, raw["space"]))
    return Search(**{**raw, "space": space, "sizes": tuple(raw["sizes"]), "constraints": tuple(raw["constraints"])})
