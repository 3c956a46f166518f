"""`nnlib inspect`: what a data or model file holds, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from nnlib.data.file import check_data_file
from nnlib.inspection.diff import BY_RECIPE, DATA, kind_of_file
from nnlib.inspection.recipe_models import describe_recipe_model
from nnlib.inspection.shapes import describe_shapes, has_maps
from nnlib.model.file import read_model
from nnlib.model.network import Network
from nnlib.spec.types import Edge, Layer, LayerKind
from nnlib.util.columns import fold_text
from nnlib.util.days import show_day


def describe_file(path: Path, room: int = 80) -> str:
    """Return a few lines about the file; DataError when it is neither data nor a model.

    Convolutional networks are a table, of at most `room` columns.
    """
    kind = kind_of_file(path)
    if kind == BY_RECIPE:
        return describe_recipe_model(path)
    return _data(path) if kind == DATA else _model(path, room)


def _data(path: Path) -> str:
    summary = check_data_file(path)
    lines = [f"data file, region {summary.region!r}" if summary.region else "data file"]
    if summary.as_of is not None:
        lines[0] += f", asked about {show_day(summary.as_of)}"
    lines[0] += ", what customers have is ranked too (repeats)" * summary.repeats
    if summary.regions:
        lines.append(f"  regions: {', '.join(f'{name!r} {count}' for name, count in summary.regions.items())}")
    for data_set in summary.sets:
        shape = f" ({' x '.join(map(str, data_set.dimensions))})" if data_set.dimensions else ""
        shared = f" that share {data_set.rows} rows" if data_set.indexed else ""
        extra = ", weighted" * data_set.weighted + ", zeros ignored" * data_set.ignore_zero
        extra += ", quantities" * data_set.quantities
        extra += f", {' to '.join(map(show_day, data_set.days))}" if data_set.days else ""
        lines.append(
            f"  {data_set.name}: {data_set.kind}, {data_set.examples} examples{shared}, width {data_set.width}{shape}, "
            f"{data_set.nonzeros} nonzeros ({data_set.density:.3%}){extra}"
        )
    return "\n".join(lines)


def _model(path: Path, room: int) -> str:
    model = read_model(path)
    network, spec = model.network, model.network.spec
    lines = [f"model {spec.name!r}, {spec.error}" + (f", region {model.region!r}" if model.region else "")]
    settings = {"denoising": spec.denoising, "sparseness beta": spec.sparseness.beta, "decay": spec.decay}
    lines[0] += _on(settings) + ", as DSSTNE computes it" * spec.compat
    lines[0] += ", recommends what customers have, too (repeats)" * model.repeats
    if has_maps(spec):
        return "\n".join([*fold_text(lines[0], room, "  "), *describe_shapes(spec, room)])
    lines += [f"  {_layer(layer, model.features.get(n, ()))}" for n, layer in enumerate(spec.layers)]
    lines += [f"  {_weights(network, edge)}" for edge in spec.edges]
    return "\n".join([*lines, f"  {network.parameters} parameters"])


def _layer(layer: Layer, names: Sequence[str]) -> str:
    """Return a line about a layer: what is not so in every network is left out where it is off."""
    sizes = f" ({' x '.join(map(str, layer.dimensions))})" if len(layer.dimensions) > 1 else ""
    parts = [f"{layer.kind} {layer.name}: {layer.units} units{sizes}"]
    if layer.kind is not LayerKind.INPUT:
        parts += [str(layer.activation), f"from {', '.join(layer.sources)}"]
    if layer.skips:
        parts.append(f"skip from {', '.join(layer.skips)}")
    if layer.data_set:
        parts.append(f"data set {layer.data_set!r}{f' with names such as {names[0]!r}' if names else ''}")
    settings = {
        "dropout": layer.dropout,
        "sparseness beta": layer.sparseness.beta,
        "weight norm": layer.weight_norm,
        "delta norm": layer.delta_norm,
    }
    return ", ".join(parts) + _on(settings) + ", batch normalization" * layer.batch_norm


def _on(settings: Mapping[str, float]) -> str:
    """Return the settings that are not 0, each after a comma."""
    return "".join(f", {name} {value:g}" for name, value in settings.items() if value)


def _weights(network: Network, edge: Edge) -> str:
    """Return a line about the weights between two layers."""
    layers, owner = network.spec.layers, network.spec.edges[edge.owner]
    source, target = layers[edge.source], layers[edge.target]
    shared = f", shared with {layers[owner.source].name} -> {layers[owner.target].name}"
    return (
        f"weights {source.name} -> {target.name}: {source.units} x {target.units}"
        + (shared + " transposed" * edge.transposed) * (owner is not edge)
        + ", locked" * (edge.owner in network.locked)
    )
