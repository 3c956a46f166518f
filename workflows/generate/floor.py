"""What networks have to beat where that is not recent popularity: logistic regression on what they read.

It is a rival where examples are told by dense inputs, such as pictures by their pixels: of these popularity knows no
more than the most frequent class. Each trial's job fits it, so that it must be fitted soon.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nnlib.contract import Recipe
from nnlib.data.file import DataSummary, SetSummary
from nnlib.families.fit import bytes_needed
from nnlib.families.legal import complete_recipe
from nnlib.spec.network import SpecError
from nnlib.spec.types import LayerKind, NetworkSpec
from regiondag.config.memory_check import size_of
from regiondag.study.families import LOGISTIC, name_floor
from regiondag.study.model import Config, Region
from regiondag.trainers.networks.data import read_network
from regiondag.util.text import list_some

INPUT, OUTPUT = "input", "output"
# Of examples x inputs x (classes + BESIDE): about a minute of a hundred steps. A step took .06 to .12 ns of each on a
# core of a Zen 4 (2 to 200 classes); 50,000 pictures of 32x32x3 in ten classes took 11 to 32 steps, 4 to 11 s.
MOST_WORK, BESIDE = 6e9, 10
SHARE = 0.5  # of a job's memory, which its network needs, too


def find_floor(region: Region, data: Mapping[Path, DataSummary]) -> Recipe | None:
    """Return logistic regression where a region's networks can be held against it; None: recent popularity is it.

    `data` are the region's files, all of them. Networks must read one dense data set and answer one sparse one, and be
    judged by a ranking; nothing else is searched beside them.
    """
    if region.network is None or region.search.of_families or region.metric.minimize or not data:
        return None
    if not all(any(_is_dense(one) for one in summary.sets) for summary in data.values()):
        return None  # as most are: their network need not be read
    recipe = Recipe(LOGISTIC)
    try:
        network = read_network(region.network, region.search.space)
    except SpecError:  # which is told where a study is read
        return None
    found = [_find_sets(network, summary) for summary in data.values()]
    if None in found:
        return None
    job = min(region.job.memory, region.final.memory if region.final else region.job.memory)
    return recipe if all(_is_quick(*sets, recipe, SHARE * job) for sets in found if sets) else None


def describe_floors(config: Config, summaries: Mapping[Path, DataSummary]) -> str:
    """Return in words which regions with data of their own have logistic regression to beat; nothing where none has."""
    regions = (region for region in config.regions if region.data)
    names = [one.name for one in regions if find_floor(one, {file: summaries[file] for file in one.data.values()})]
    return f"{name_floor(Recipe(LOGISTIC))} is what networks have to beat in: {list_some(names)}" if names else ""


def _find_sets(network: NetworkSpec, summary: DataSummary) -> tuple[SetSummary, SetSummary] | None:
    """Return the dense data set that a network reads and the sparse one that it answers, if nnlib takes the same two.

    Those are `input` and `output`; of two data sets one has to have its name (see `nnlib.data.read_events`).
    """
    layers = [*network.layers_of(LayerKind.INPUT), *network.layers_of(LayerKind.OUTPUT)]
    sets = {one.name: one for one in summary.sets}
    found = [sets[layer.data_set] for layer in layers if layer.data_set in sets]
    if len(layers) != 2 or len(found) != 2:
        return None
    inputs, targets = found
    named = (inputs.name == INPUT) + (targets.name == OUTPUT)
    fit = _is_dense(inputs) and targets.kind == "sparse boolean"
    return (inputs, targets) if fit and named + (len(sets) == 2) >= 2 else None


def _is_dense(one: SetSummary) -> bool:
    return one.kind.startswith("dense")


def _is_quick(inputs: SetSummary, targets: SetSummary, recipe: Recipe, memory: float) -> bool:
    """Whether a recipe is fitted to a file's examples soon, and in so many bytes beside what they are asked about."""
    size = size_of([DataSummary((targets, inputs), "")])
    held = 2 * inputs.examples * inputs.width * _bytes_of(inputs)
    [needed] = bytes_needed(complete_recipe(recipe), size)
    return inputs.examples * inputs.width * (targets.width + BESIDE) <= MOST_WORK and held + needed <= memory


def _bytes_of(inputs: SetSummary) -> int:
    import numpy as np

    return np.dtype(inputs.kind.removeprefix("dense ")).itemsize
