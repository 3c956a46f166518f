"""What two model files, or two data files, have different: settings, layers, weights, rows and names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.contract import recipe_to_json
from nnlib.data.blockwise import run_in_order
from nnlib.data.rows import Csr, Dense
from nnlib.data.sets import Data, DataSet, kind_of
from nnlib.data.stream import open_data
from nnlib.errors import DataError
from nnlib.families.fit import RecipeModel
from nnlib.families.model_file import RECIPE, read_recipe_model
from nnlib.model.file import Model, read_model
from nnlib.model.network import NORM_ARRAYS, Network
from nnlib.spec.types import NetworkSpec
from nnlib.util.arrays import Floats, Longs
from nnlib.util.netcdf import File

MODEL, DATA, BY_RECIPE = "layers", "datasets", RECIPE  # the attribute that tells


def find_differences(one: Path, other: Path, tolerance: float = 0.0) -> Iterator[str]:
    """Yield a line for each difference; numbers that are `tolerance` apart at most, absolutely, are the same.

    DataError when one file is a model and the other data, or either cannot be read.
    """
    kinds = [kind_of_file(path) for path in (one, other)]
    if kinds[0] != kinds[1]:
        names = {MODEL: "a model", DATA: "data", BY_RECIPE: "the model of a recipe"}
        raise DataError(f"{one} is {names[kinds[0]]}, {other} is {names[kinds[1]]}; legal: two of a kind")
    if kinds[0] == MODEL:
        yield from _models(read_model(one), read_model(other), tolerance)
    elif kinds[0] == BY_RECIPE:
        yield from _recipe_models(read_recipe_model(one), read_recipe_model(other), tolerance)
    else:
        yield from _datas(open_data([one]), open_data([other]), tolerance)


def kind_of_file(path: Path) -> str:
    """Return MODEL, DATA or BY_RECIPE by what the file has, without reading its values; DataError when it is none."""
    with File(path) as file:
        for kind in (MODEL, DATA, BY_RECIPE):
            if kind in file.attributes:
                return kind
    raise DataError(f"{path}: neither a data nor a model file: no attribute `datasets`, `layers` or `recipe`")


def _models(one: Model, other: Model, tolerance: float) -> Iterator[str]:
    specs = one.network.spec, other.network.spec
    yield from _fields("network", *specs, leave=("layers",))
    yield from _values("region", one.region, other.region)
    yield from _values("repeats", one.repeats, other.repeats)
    layers = [{layer.name: layer for layer in spec.layers} for spec in specs]
    yield from _names("layer", *layers)
    if all(len(found) == len(layers[0]) for found in layers) and list(layers[0]) != list(layers[1]):
        yield f"order of layers: {', '.join(layers[0])} | {', '.join(layers[1])}"
    for name in layers[0]:
        if name in layers[1]:
            yield from _fields(f"layer {name}", layers[0][name], layers[1][name])
            features = [model.features.get(model.network.spec.places[name], ()) for model in (one, other)]
            yield from _sequences(f"layer {name}: names of units", *features)
    yield from _weights(one, other, tolerance)


def _recipe_models(one: RecipeModel, other: RecipeModel, tolerance: float) -> Iterator[str]:
    yield from _values("recipe", recipe_to_json(one.recipe), recipe_to_json(other.recipe))
    yield from _values("fitted until day", one.fitted_until, other.fitted_until)
    yield from _values("repeats", one.repeats, other.repeats)
    yield from _sequences("names of items", one.items, other.items)
    yield from _sequences("names of regions", one.regions, other.regions)
    arrays = [model.fitted.arrays() for model in (one, other)]
    yield from _names("array", *arrays)
    for name, values in arrays[0].items():
        if name in arrays[1]:
            yield from _numbers(f"array {name}", values, arrays[1][name], tolerance)


def _weights(one: Model, other: Model, tolerance: float) -> Iterator[str]:
    arrays = [_arrays(model.network) for model in (one, other)]
    yield from _names("parameters", *arrays)
    for name, values in arrays[0].items():
        if name in arrays[1]:
            yield from _numbers(name, values, arrays[1][name], tolerance)


def _arrays(network: Network) -> dict[str, Floats]:
    """Return all parameters by names that do not depend on the order of layers."""
    spec, found = network.spec, dict[str, Floats]()
    for edge in spec.edges:
        pair = f"{spec.layers[edge.source].name} -> {spec.layers[edge.target].name}"
        if edge.owner == edge.number:
            found[f"weights {pair}"] = network.kernels(edge.number)
        found[f"biases {pair}"] = network.biases[edge.number]
    for n, norm in network.norms.items():
        for what in NORM_ARRAYS:
            found[f"batch norm {what} {spec.layers[n].name}"] = getattr(norm, what)
    return found


def _datas(one: Data, other: Data, tolerance: float) -> Iterator[str]:
    yield from _values("region", one.region, other.region)
    yield from _values("repeats", one.repeats, other.repeats)
    yield from _sequences("names of examples", one.samples, other.samples)
    sets = [{data_set.name: data_set for data_set in data.sets} for data in (one, other)]
    yield from _names("data set", *sets)
    for name in sets[0]:
        if name in sets[1]:
            yield from _sets(f"data set {name}", sets[0][name], sets[1][name], tolerance)


def _sets(title: str, one: DataSet, other: DataSet, tolerance: float) -> Iterator[str]:
    yield from _values(f"{title}: kind", kind_of(one), kind_of(other))
    for what in ("width", "examples", "ignore_zero"):
        yield from _values(f"{title}: {what}", getattr(one, what), getattr(other, what))
    yield from _values(f"{title}: dimensions", one.dimensions or (one.width,), other.dimensions or (other.width,))
    yield from _values(f"{title}: indexed", one.index is not None, other.index is not None)
    yield from _sequences(f"{title}: names of units", one.features, other.features)
    if (one.sparse, one.width, one.examples) != (other.sparse, other.width, other.examples):
        return
    ones = np.ones(one.examples, np.float32)
    first, second = (ones if data_set.weights is None else data_set.weights for data_set in (one, other))
    yield from _numbers(f"{title}: weights of examples", first, second, tolerance)
    yield from _rows(title, one, other, tolerance)


def _rows(title: str, one: DataSet, other: DataSet, tolerance: float) -> Iterator[str]:
    """Yield how many examples differ and by how much; entries of sparse rows may come in any order."""

    def block(rows: Longs) -> tuple[NDArray[np.float64], int]:
        found = abs(_matrix(one, rows) - _matrix(other, rows)).max(axis=1)
        apart = np.asarray(found.todense() if sparse.issparse(found) else found).reshape(-1)
        return apart, int(rows[0])

    count, first, most = 0, -1, 0.0
    for apart, low in run_in_order(block, one.examples, 1 if one.sparse else one.width):
        wrong = np.flatnonzero(apart > tolerance)
        if len(wrong) and first < 0:
            first = low + int(wrong[0])
        count, most = count + len(wrong), max(most, float(apart.max(initial=0)))
    if count:
        yield f"{title}: {count} of {one.examples} examples differ, first {first}, by up to {most:.6g}"


def _matrix(data_set: DataSet, rows: Longs) -> Any:
    found = data_set.take(rows).rows
    if isinstance(found, Dense):
        return found.values.astype(np.float64)
    assert isinstance(found, Csr), "rows that were taken are in memory"
    values = np.ones(found.nonzeros) if found.values is None else found.values.astype(np.float64)
    return sparse.csr_array((values, found.indices, found.indptr), shape=(found.examples, found.width))


def _fields(title: str, one: Any, other: Any, leave: Sequence[str] = ()) -> Iterator[str]:
    for field in fields(NetworkSpec if isinstance(one, NetworkSpec) else one):
        if field.name not in leave:
            yield from _values(f"{title}: {field.name}", getattr(one, field.name), getattr(other, field.name))


def _values(title: str, one: Any, other: Any) -> Iterator[str]:
    if one != other:
        yield f"{title}: {one} | {other}"


def _names(title: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for name in [*one, *(name for name in other if name not in one)]:
        if name not in other or name not in one:
            yield f"{title} {name}: only in the {'first' if name in one else 'second'}"


def _sequences(title: str, one: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    if len(one) != len(other):
        yield f"{title}: {len(one)} | {len(other)}"
        return
    wrong = [n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    if wrong:
        yield f"{title}: {len(wrong)} of {len(one)} differ, first {wrong[0]}: {one[wrong[0]]} | {other[wrong[0]]}"


def _numbers(title: str, one: Floats, other: Floats, tolerance: float) -> Iterator[str]:
    if one.shape != other.shape:
        yield f"{title}: {_shape(one)} | {_shape(other)} numbers"
        return
    apart = np.abs(one.astype(np.float64) - other)
    count = int((apart > tolerance).sum())
    if count:
        size = np.maximum(np.abs(one), np.abs(other)).astype(np.float64)
        relative = float((apart / np.maximum(size, np.finfo(np.float32).tiny)).max())
        at = ", ".join(str(int(n)) for n in np.unravel_index(int(apart.argmax()), one.shape))
        yield (
            f"{title}: {count} of {one.size} numbers differ, by up to {apart.max():.6g} (at {at}), relatively by up to "
            f"{relative:.3g}"
        )


def _shape(values: Floats) -> str:
    return " x ".join(map(str, values.shape))
