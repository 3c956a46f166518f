"""Does a region's data fit its network? Its data sets, widths and sizes, and what families need of them."""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.spec import network as spec
from nnlib.spec.geometry import is_computed
from nnlib.spec.sizes import fit_data, refuse_data, resolve_sizes
from nnlib.spec.types import LayerKind, NetworkSpec
from regiondag.study.families import FAMILY, NETWORK, POPULARITY
from regiondag.study.model import Region
from regiondag.study.space import Choice, Space, list_extreme_values

if TYPE_CHECKING:
    from nnlib.data.file import DataSummary


def find_misfits(region: Region, summaries: Mapping[Path, DataSummary]) -> Iterator[str]:
    """Yield what does not fit together: the network's data sets and widths, and those of the region's files."""
    yield from _starts_that_know(region, summaries)
    yield from _without_histories(region, summaries)
    if region.network is None:
        yield from _without_purchases(region, summaries)
        return
    network = read_network(region.network, region.search.space)
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
    told: set[str] = set()
    for file in region.data.values():
        resolved = yield from _wrong_sizes(
            network, summaries[file], f"region {region.name!r}: {file}: {region.network.name}"
        )
        wrong = set(_wrong_outputs(resolved, summaries[file])) - told
        wrong |= set(_uncut(region, resolved)) - told
        told |= wrong
        yield from (f"region {region.name!r}: {region.network.name}: {text}" for text in sorted(wrong))


def read_network(file: Path, space: Space) -> NetworkSpec:
    """Return a network as it is at one end of the space; SpecError where it is none."""
    values = {parameter.name: list_extreme_values(parameter)[0] for parameter in space}
    return spec.parse_network(spec.substitute(spec.read_json(file), values), file.name)


def _uncut(region: Region, network: NetworkSpec) -> Iterator[str]:
    """Yield why a network cannot be cut as a study asks for, by items or by examples."""
    searched = [one.options for one in region.search.space if isinstance(one, Choice) and one.name == "parallel"]
    wanted = {region.train.parallel, *(name for names in searched for name in names)} & {"items", "examples"}
    if wanted and all(layer.units for layer in network.layers):  # else it does not fit its data, which was told
        from nnlib.inspection.gpus_plan import why_not  # which few studies need

        for parallel in sorted(str(name) for name in wanted):
            if why := why_not(network, parallel):
                yield why


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


def _without_histories(region: Region, summaries: Mapping[Path, DataSummary]) -> Iterator[str]:
    """Yield which families learn from what customers had before, where dense inputs are there in its place."""
    searched = [one.options for one in region.search.space if isinstance(one, Choice) and one.name == FAMILY]
    learning = [str(name) for options in searched for name in options if name not in (POPULARITY, NETWORK)]
    for file in region.data.values() if learning else ():
        if any(one.name == "input" and one.kind.startswith("dense") for one in summaries[file].sets):
            yield (
                f"region {region.name!r}: {file}: data set 'input' is dense, so that there are no histories to "
                f"learn from, as {', '.join(learning)} would; legal: families: [network]"
            )
            return


def _without_purchases(region: Region, summaries: Mapping[Path, DataSummary]) -> Iterator[str]:
    """Yield which files have nothing that a family could be fitted on."""
    for file in region.data.values():
        if all(data_set.kind != "sparse boolean" for data_set in summaries[file].sets):
            yield (
                f"region {region.name!r}: {file} has no sparse boolean data set, of who has taken what; "
                "families but `network` need one"
            )
