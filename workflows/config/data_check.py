"""Look into the data of every region before anything is submitted."""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nnlib.data.file import DataSummary, check_data_file
from nnlib.errors import DataError
from nnlib.spec import network as spec
from nnlib.spec.geometry import is_computed
from nnlib.spec.sizes import fit_data, refuse_data, resolve_sizes
from nnlib.spec.types import LayerKind, NetworkSpec
from nnlib.util.memory import show_bytes
from regiondag.errors import ConfigError
from regiondag.study.families import AGAIN, FAMILY
from regiondag.study.model import Config, Region
from regiondag.study.space import Choice, list_extreme_values


def check_data(config: Config) -> dict[Path, DataSummary]:
    """Read every data file once; ConfigError naming file and variable for all that cannot be used."""
    summaries: dict[Path, DataSummary] = {}
    problems: dict[Path, str] = {}
    for region in config.regions:
        for file in region.data.values():
            if file in summaries or file in problems:
                continue
            try:
                summaries[file] = check_data_file(file)
            except DataError as error:
                problems[file] = f"region {region.name!r}: {file.parent}: {error}"
    if problems:
        raise ConfigError(list(problems.values()))
    misfits = [text for region in config.regions for text in misfits_of(region, summaries)]
    misfits += list(_nothing_again(config.regions, summaries))[:1]
    if misfits:
        raise ConfigError(misfits)
    return summaries


def training_examples(config: Config, summaries: Mapping[Path, DataSummary]) -> dict[str, int]:
    """Return how many training examples each region has that has data of its own, by slug."""
    return {region.slug: summaries[region.data["train"]].sets[0].examples for region in config.regions if region.data}


def misfits_of(region: Region, summaries: Mapping[Path, DataSummary]) -> Iterator[str]:
    """Yield what does not fit together: the network's data sets and widths, and those of the region's files."""
    if region.program:
        yield from _without_room(region, region.program.image)
        return
    yield from _starts_that_know(region, summaries)
    if region.network is None:
        yield from _without_purchases(region, summaries)
        return
    raw = spec.read_json(region.network)
    values = {parameter.name: list_extreme_values(parameter)[0] for parameter in region.search.space}
    network = spec.parse_network(spec.substitute(raw, values), region.network.name)
    for layer in (network.layers[0], network.layers[-1]):
        expected, source = layer.units, f"layer {layer.name!r} of {region.network.name}"
        for file in region.data.values():
            sets = {data_set.name: data_set.width for data_set in summaries[file].sets}
            width = sets.get(layer.data_set)
            if width is None:
                yield (
                    f"region {region.name!r}: {file} has no data set {layer.data_set!r}, which layer {layer.name!r} of "
                    f"{region.network} reads; it has: {', '.join(sets)}"
                )
            elif expected is not None and width != expected:
                yield (
                    f"region {region.name!r}: {file}: data set {layer.data_set!r} has {width} units, "
                    f"{source} has {expected}; all files of a region must come from one import"
                )
            else:
                expected, source = width, str(file)
    outputs: set[str] = set()
    for file in region.data.values():
        resolved = yield from _wrong_sizes(
            network, summaries[file], f"region {region.name!r}: {file}: {region.network.name}"
        )
        wrong = set(_wrong_outputs(resolved, summaries[file])) - outputs
        outputs |= wrong
        yield from (f"region {region.name!r}: {region.network.name}: {text}" for text in sorted(wrong))


def _wrong_outputs(network: NetworkSpec, summary: DataSummary) -> Iterator[str]:
    """Yield which outputs, computed of what is below, have another size than their data."""
    known = {one.name: one.width for one in summary.sets}
    for layer in network.layers_of(LayerKind.OUTPUT):
        width = known.get(layer.data_set)
        if is_computed(layer) and None not in (layer.units, width) and layer.units != width:
            yield (
                f"layer {layer.name!r}: its sources give {layer.units} units, data set {layer.data_set!r} has width "
                f"{width}; legal: {layer.units}"
            )


def _wrong_sizes(network: NetworkSpec, summary: DataSummary, file: str) -> Generator[str, None, NetworkSpec]:
    """Yield what keeps maps from being made of the data, and return the network with its sizes.

    A network whose data sets are not there has been told of.
    """
    known = {one.name: one for one in summary.sets}
    layers = list(network.layers)
    for n, layer in enumerate(layers):
        found = known.get(layer.data_set)
        if found is not None and layer.units in (None, found.width):
            sparse = "sparse" in found.kind
            layers[n] = fit_data(layer, found.width, found.dimensions, sparse)
            yield from (f"{file}: {text}" for text in refuse_data(network, layer, found.dimensions, sparse))
    try:
        return resolve_sizes(replace(network, layers=tuple(layers)), file)
    except spec.SpecError as error:
        yield from error.problems
    return network


def _starts_that_know(region: Region, summaries: Mapping[Path, DataSummary]) -> Iterator[str]:
    """Yield that a model to start from, which serves and so was fitted on all days, knows what trials are asked."""
    file = region.data.get("valid")
    day = summaries[file].as_of if file else None
    if day is not None and region.init.kind in ("champion", "neighbour"):
        first = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
        yield (
            f"region {region.name!r}: init: {region.init.kind}: such a model has learned from the days on which trials "
            f"are judged, those from {first} on, and could be compared with nothing; legal for data with days: random, "
            "pooled"
        )


def _nothing_again(regions: Sequence[Region], summaries: Mapping[Path, DataSummary]) -> Iterator[str]:
    """Yield, for each file, that nothing which `again` knows could be recommended."""
    for region in regions:
        families = [one.options for one in region.search.space if isinstance(one, Choice) and one.name == FAMILY]
        for file in region.data.values() if any(AGAIN in options for options in families) else ():
            if not summaries[file].repeats:
                yield (
                    f"families: {AGAIN}: it ranks what customers have, which {file} leaves out; legal where buying "
                    "again counts: data.split: {repeats: true}, or nnlib import --repeats"
                )


def _without_purchases(region: Region, summaries: Mapping[Path, DataSummary]) -> Iterator[str]:
    """Yield which files have nothing that a family could be fitted on."""
    for file in region.data.values():
        if all(data_set.kind != "sparse boolean" for data_set in summaries[file].sets):
            yield (
                f"region {region.name!r}: {file} has no sparse boolean data set, of who has taken what; "
                "families but `network` need one"
            )


def _without_room(region: Region, image: Path | None) -> Iterator[str]:
    """Yield what says that a job asks for less room than the image that goes with it takes."""
    size = image.stat().st_size if image else 0
    for key, job in (("job", region.job), ("final", region.final)):
        if job and job.disk < size:
            yield (
                f"region {region.name!r}: {key}.disk is {show_bytes(job.disk)}, the image {image} alone has "
                f"{show_bytes(size)}; ask for that, and for what the program writes"
            )
