"""Checks a network against the hyperparameters of study.yaml: every name used, every extreme value legal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnlib.spec import network as spec
from nnlib.util.os_errors import reason_of
from regiondag.study.families import FAMILY, NETWORK, list_parameters
from regiondag.study.model import TRAIN_SETTINGS, Region
from regiondag.study.space import Parameter, list_extreme_values
from regiondag.trainers.networks.ranges import check_ranges
from regiondag.util import schema
from regiondag.util.schema import Problems, Section
from regiondag.util.yaml_file import KeyPath

STARTING = ("freeze", "replace")


def check_network(problems: Problems, checked: set[object], section: Section, region: Region) -> None:
    """Every `$name` of the network must be a hyperparameter, and every hyperparameter must be used."""
    key = (region.network, region.search.space)
    if key in checked or (region.network is not None and "network" not in section):
        return
    checked.add(key)
    if region.search.of_families:
        check_ranges(problems, section.section("search").section("space"), region.search.space)
    if region.network is None:
        _refuse_unused(problems, section.section("search").section("space"))
        return
    where = section.where("network")
    try:
        raw_network = spec.read_json(region.network)
    except OSError as error:
        problems.add(where, f"seen {str(region.network)!r}: {reason_of(error)}; legal: DSSTNE's JSON")
        return
    except spec.SpecError as error:
        for problem in error.problems:
            problems.add(where, problem)
        return
    used = spec.placeholders(raw_network)
    space = section.section("search").section("space")
    names = {name for layer in space.layers for name in layer.value}
    settings = TRAIN_SETTINGS
    for name in sorted(set(used) - names):
        hint = schema.nearest(name, names)
        problems.add(where, f"{region.network}: {used[name]}: ${name} is not in search.space{hint}")
    others = set(list_parameters()) if region.search.of_families else set()
    for name in sorted(names - set(used) - settings - others):
        hint = schema.nearest(name, settings | set(used))
        problems.add(
            space.where(name),
            f'nothing uses {name!r}: write "${name}" into {region.network.name}, or name a training setting '
            f"({', '.join(sorted(settings))}){hint}",
        )
    if set(used) <= {parameter.name for parameter in region.search.space}:
        _parse_network(problems, where, space, region, raw_network)


def check_starts(problems: Problems, regions: Sequence[tuple[Region, KeyPath]]) -> None:
    """A network that freezes or replaces layers needs a region that starts from a model's weights."""
    begun = {region.network for region, _ in regions if not region.init.random}
    first = {region.network: path for region, path in reversed(regions) if region.network not in begun}
    for network, path in first.items():
        for key in _list_starting(network):
            problems.add(
                (*path, "network"),
                f"{network}: FineTuning.{key}: every region that has it starts from random weights; legal: with init "
                "champion, neighbour, pooled or {model: FILE}, or a network without this key",
            )


def _list_starting(network: Path | None) -> list[str]:
    """Return the keys of a network's FineTuning that say something of weights that are there."""
    if network is None:
        return []
    try:
        raw = spec.read_json(network)
    except (OSError, spec.SpecError):
        return []  # which was told
    tuning = {key.lower(): value for key, value in raw.items()}.get("finetuning") if isinstance(raw, dict) else None
    return [key for key in tuning if key.lower() in STARTING] if isinstance(tuning, dict) else []


def _refuse_unused(problems: Problems, space: Section) -> None:
    """Note the hyperparameters that are of no family, where there is no network that could have them."""
    known = list_parameters()
    for name in sorted({name for layer in space.layers for name in layer.value} - set(known)):
        hint = schema.nearest(name, known)
        text = f"is of no family but a network, and there is none: add `network`, a file of DSSTNE's JSON{hint}"
        problems.add(space.where(name), text)


def _parse_network(problems: Problems, where: KeyPath, space: Section, region: Region, raw_network: Any) -> None:
    """Check the network with the ends of every hyperparameter, one varied at a time."""
    mine = [p for p in region.search.space if not region.search.of_families or _is_of_network(p)]
    tried = {parameter.name: list_extreme_values(parameter) for parameter in mine}
    first = {name: values[0] for name, values in tried.items()}
    said: set[str] = set()
    for problem in _network_problems(raw_network, first, region):
        said.add(problem)
        problems.add(where, problem)
    for name, values in tried.items():
        for value in values[1:]:
            for problem in _network_problems(raw_network, {**first, name: value}, region):
                if problem not in said:
                    problems.add(space.where(name), f"{name} = {value!r}: {problem}")


def _is_of_network(parameter: Parameter) -> bool:
    return (FAMILY, (NETWORK,)) in parameter.when


def _network_problems(raw_network: Any, values: dict[str, Any], region: Region) -> list[str]:
    file = "" if region.network is None else region.network.name
    try:
        spec.parse_network(spec.substitute(raw_network, values), file, region.train.compat == "dsstne")
    except spec.SpecError as error:
        return error.problems
    return []
