"""The model from which a region's trainings start: taken into the region's folder once, by the first PRE script.

From then on the run keeps to that copy, whatever becomes of the model it was made from, so that PRE run again writes
the same trial.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nnlib.contract import INIT_FILE, MODEL_FILE, Recipe, sha256_of
from nnlib.util.files import link_or_copy, write_atomically
from regiondag.errors import GiveUpError, TryAgainError
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.study.families import NETWORK
from regiondag.study.model import Search
from regiondag.study.space import Value, seed_of

if TYPE_CHECKING:
    from regiondag.run.champions import Incumbent


def start_from_model(folder: RegionFolder, spec: RegionSpec) -> RegionSpec:
    """Return `spec` with the digest of the model that trainings start from, and a search that keeps that model's shape.

    Call it under the region's lock. Raises GiveUpError when there is no such model yet, or none of this network.
    """
    if spec.init.random or spec.init.model:  # a file was copied when the run was made
        return spec
    if not folder.init_facts.exists():
        _take(folder, spec)
    from regiondag.tuning.champion_point import fit_champion_point  # most scripts start without

    facts = json.loads(folder.init_facts.read_text(encoding="utf-8"))
    search = _fix_shape(spec, facts["hyperparameters"])
    shape = {name: facts["hyperparameters"][name] for name in spec.shape}
    first = [fit_champion_point(search, {**point, **shape}) for point in spec.first]
    return replace(
        spec,
        search=search,
        first=tuple(point for point in first if point is not None),
        sha256={**spec.sha256, INIT_FILE: facts["sha256"]},
    )


def _take(folder: RegionFolder, spec: RegionSpec) -> None:
    """Copy the model, and then what is known of it: where the second is, the first is whole."""
    source = _find_source(folder, spec)
    raw = json.loads(source.metrics.read_text(encoding="utf-8"))
    facts = {
        "kind": spec.init.kind,
        "region": raw["region"],
        "run": raw["run"],
        "hyperparameters": raw["hyperparameters"],
        "sha256": source.sha256,
    }
    _fix_shape(spec, facts["hyperparameters"])  # before anything is kept of a model that does not do
    link_or_copy(source.model, folder.init_model)
    if sha256_of(folder.init_model) != source.sha256:
        raise TryAgainError(f"region {spec.name!r}: {source.model} was replaced while it was copied")
    write_atomically(folder.init_facts, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")


def _find_source(folder: RegionFolder, spec: RegionSpec) -> Incumbent:
    from regiondag.run.champions import Incumbent, champion_of, recipe_of_champion

    if not spec.init.source:
        return Incumbent(folder.incumbent_model, folder.incumbent_metrics, spec.sha256[folder.incumbent_model.name])
    run = folder.run
    found = champion_of(run, spec.init.source)
    if found is None:
        other = run.region(spec.init.source)
        raise GiveUpError(
            f"region {spec.name!r} starts from the champion of {read_spec(other.spec).name!r}, which has none in this "
            f"run yet: submit {other.dag} first, and this DAG again when it is done; {run.study_dag} does both in order"
        )
    if recipe_of_champion(found) != Recipe(NETWORK):  # the floor serves there; its network was trained all the same
        model = run.region(spec.init.source).trial(NodeName(spec.init.source, None)) / MODEL_FILE
        return replace(found, model=model, sha256=sha256_of(model))
    return found


def _fix_shape(spec: RegionSpec, values: Mapping[str, Any]) -> Search:
    """Return the region's search with the shape that the model has; GiveUpError when that cannot be."""
    from regiondag.tuning.domain import domain_of
    from regiondag.tuning.fixed_shape import fix_values

    shape: dict[str, Value] = {name: values[name] for name in spec.shape if name in values}
    model = f"region {spec.name!r}: the model that its trainings start from (init: {spec.init.kind})"
    missing = [f"${name}" for name in spec.shape if name not in shape]
    if missing:
        raise GiveUpError(
            f"{model} was trained without a value for {', '.join(missing)} of its network.json, with values for: "
            f"{', '.join(values) or 'none'}. Both must have the same network; else give the region init: random"
        )
    search = fix_values(spec.search, shape)
    if search.constraints and domain_of(search).random(seed_of("init", spec.slug), set()) is None:
        given = ", ".join(f"{name} = {value}" for name, value in shape.items())
        raise GiveUpError(
            f"{model} has {given}, and no point of the search has that and meets all constraints "
            f"({'; '.join(search.constraints)}); change them, or give the region init: random"
        )
    return search
