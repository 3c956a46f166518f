"""`nnlib inspect`: what a data or model file holds, as text."""

from __future__ import annotations

from pathlib import Path

from nnlib.datafile import check_data_file
from nnlib.errors import DataError
from nnlib.modelfile import read_model
from nnlib.netcdf import File


def described(path: Path) -> str:
    """Return a few lines about the file; DataError when it is neither data nor a model."""
    with File(path) as file:  # without its values, which may be more than memory holds
        attributes = file.attributes
    if "datasets" in attributes:
        return _data(path)
    if "layers" in attributes:
        return _model(path)
    raise DataError(f"{path.name}: neither a data nor a model file: no attribute `datasets` or `layers`")


def _data(path: Path) -> str:
    summary = check_data_file(path)
    lines = [f"data file, region {summary.region!r}" if summary.region else "data file"]
    for data_set in summary.sets:
        shape = f" ({' x '.join(map(str, data_set.dimensions))})" if data_set.dimensions else ""
        shared = f" that share {data_set.rows} rows" if data_set.indexed else ""
        extra = ", weighted" * data_set.weighted + ", zeros ignored" * data_set.ignore_zero
        lines.append(
            f"  {data_set.name}: {data_set.kind}, {data_set.examples} examples{shared}, width {data_set.width}{shape}, "
            f"{data_set.nonzeros} nonzeros ({data_set.density:.3%}){extra}"
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
