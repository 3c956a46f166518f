"""`nnlib inspect`: what a data or model file holds, as text."""

from __future__ import annotations

from pathlib import Path

from nnlib.datafile import check_data_file
from nnlib.errors import DataError
from nnlib.modelfile import read_model
from nnlib.netcdf import read


def described(path: Path) -> str:
    """Return a few lines about the file; DataError when it is neither data nor a model."""
    attributes = read(path).attributes
    if "datasets" in attributes:
        return _data(path)
    if "layers" in attributes:
        return _model(path)
    raise DataError(f"{path.name}: neither a data nor a model file: no attribute `datasets` or `layers`")


def _data(path: Path) -> str:
    summary = check_data_file(path)
    lines = [f"data file, region {summary.region!r}" if summary.region else "data file"]
    for data_set in summary.sets:
        density = data_set.nonzeros / (data_set.examples * data_set.width)
        lines.append(
            f"  {data_set.name}: {data_set.examples} examples, width {data_set.width}, "
            f"{data_set.nonzeros} nonzeros ({density:.3%})"
        )
    return "\n".join(lines)


def _model(path: Path) -> str:
    model = read_model(path)
    spec = model.network.spec
    lines = [f"model {spec.name!r}, {spec.error}" + (f", region {model.region!r}" if model.region else "")]
    for layer in spec.layers:
        detail = f" from {layer.data_set!r}" if layer.data_set else f", dropout {layer.dropout:g}"
        lines.append(f"  {layer.kind} {layer.name}: {layer.units} units, {layer.activation}{detail}")
    count = sum(edge.store.size + edge.bias.size for edge in model.network.edges)
    return "\n".join([*lines, f"  {count} parameters"])
