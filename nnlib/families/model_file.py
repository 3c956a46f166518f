"""Model files of families: one NetCDF file a model, from which it gives the same scores bit by bit.

Attributes: `recipe` (JSON as `nnlib.contract.Recipe` has it, all hyperparameters in it), `recipe_version` (1) and
`fitted_until` (the first day that the model has not seen, in days since 1970-01-01; 0 where data have no times), and
`repeats`, which is 1 where what a customer has is recommended like anything else, as the data said that were fitted.
Variables: `items` and `regions` (strings: names in the model's order), and `array_<name>` for every array of the
model, of one or more dimensions, numbers of type int32, int64, float32 or float64. Those of a blend's members are
`array_member<n>_<name>`. What a family's arrays are its module says.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import ContractError, Recipe, recipe_from_json, recipe_to_json
from nnlib.data.events import Events
from nnlib.data.file_header import integer, shape_of_names
from nnlib.data.file_history import REPEATS, read_repeats
from nnlib.data.file_rows import check_room
from nnlib.data.rows import Dense, from_rows
from nnlib.errors import DataError, DivergedError, NnlibError
from nnlib.families.family import Arrays
from nnlib.families.fit import RecipeModel, restore_model
from nnlib.families.legal import complete_recipe
from nnlib.families.packing import WEIGHTS_OF_INPUTS, WIDTH
from nnlib.util import netcdf

VERSION = 1
RECIPE, RECIPE_VERSION, FITTED_UNTIL = "recipe", "recipe_version", "fitted_until"
ITEMS, REGIONS, ARRAY = "items", "regions", "array_"
TYPES = tuple(map(np.dtype, ("i4", "i8", "f4", "f8")))
NOBODYS = "\0"  # a region that no file can name


def write_recipe_model(path: Path, model: RecipeModel) -> None:
    """Write a model file atomically; the same model gives the same bytes."""
    attributes: dict[str, netcdf.Attribute] = {
        RECIPE: recipe_to_json(model.recipe),
        RECIPE_VERSION: np.uint32(VERSION),
        FITTED_UNTIL: np.int32(model.fitted_until),
    }
    if model.repeats:
        attributes[REPEATS] = np.uint32(1)
    arrays = model.fitted.arrays()
    plans = {
        ITEMS: netcdf.VariableShape({"itemsDim": len(model.items)}, None),
        REGIONS: netcdf.VariableShape({"regionsDim": len(model.regions)}, None),
    }
    for name, values in arrays.items():
        sizes = {f"{name}Dim{axis}": size for axis, size in enumerate(values.shape)}
        plans[ARRAY + name] = netcdf.VariableShape(sizes, values.dtype)
    with netcdf.fill(path, attributes, plans) as put:
        put(ITEMS, 0, model.items)
        put(REGIONS, 0, model.regions)
        for name, values in arrays.items():
            put(ARRAY + name, 0, values)


def is_recipe_model(path: Path) -> bool:
    """Whether a file is the model of a recipe; DataError when it is not NetCDF, OSError when it cannot be opened."""
    with netcdf.File(path) as file:
        return RECIPE in file.attributes


def read_fitted_until(path: Path) -> int | None:
    """Return the first day that a model of a recipe has not seen; None of data without times, and of a network."""
    with netcdf.File(path) as file:
        return (integer(file, FITTED_UNTIL) or None) if RECIPE in file.attributes else None


def read_recipe_model(path: Path) -> RecipeModel:
    """Read a model file; DataError says what is wrong with it, OSError when it cannot be opened at all."""
    with netcdf.File(path) as file:
        recipe = _recipe(file)
        items, regions = _names(file, ITEMS), _names(file, REGIONS)
        fitted_until, repeats = integer(file, FITTED_UNTIL), read_repeats(file)
        arrays = _arrays(file)
    try:
        model = RecipeModel(recipe, items, regions, fitted_until, restore_model(recipe, arrays, regions), repeats)
        _try(model, arrays)
    except (KeyError, ValueError, IndexError, TypeError, ArithmeticError, DivergedError) as error:
        what = f"no array {error}" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path}: the arrays of {recipe.family}: {what}; copy or fit the model again") from error
    return model


def _recipe(file: netcdf.File) -> Recipe:
    text = file.attributes.get(RECIPE)
    if not isinstance(text, str):
        raise DataError(f"{file.path}: no attribute {RECIPE}: this is no model of a family; `nnlib inspect` says more")
    version = integer(file, RECIPE_VERSION)
    if version != VERSION:
        raise DataError(f"{file.path}: attribute {RECIPE_VERSION}: {version}, this nnlib reads {VERSION}; take a newer")
    try:
        return complete_recipe(recipe_from_json(text))
    except (ContractError, NnlibError) as error:
        raise DataError(f"{file.path}: attribute {RECIPE}: {error}") from error


def _names(file: netcdf.File, name: str) -> tuple[str, ...]:
    shape = shape_of_names(file, name)
    names = file.strings(name) if shape else ()
    if not names or len(set(names)) < len(names):
        raise DataError(f"{file.path}: variable {name}: {len(names)} names, legal: one at least, and each once")
    return names


def _arrays(file: netcdf.File) -> Arrays:
    """Return the arrays of the file by name, when there is room for them and all of their numbers are finite."""
    shapes = {name: shape for name, shape in file.variables.items() if name.startswith(ARRAY)}
    for name, shape in shapes.items():
        if shape.dtype is None or shape.dtype.newbyteorder("=") not in TYPES or not shape.dimensions:
            raise DataError(f"{file.path}: variable {name}: legal: an array of int32, int64, float32 or float64")
    check_room(file, "its arrays", sum(s.length * s.dtype.itemsize for s in shapes.values() if s.dtype is not None))
    arrays: Arrays = {}
    for name, shape in shapes.items():
        values: NDArray[Any] = np.asarray(file.whole(name).values)
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise DataError(f"{file.path}: variable {name}: a number is not finite; copy or fit the model again")
        sizes = [file.dimensions[dimension] for dimension in shape.dimensions]
        if math.prod(sizes) != values.size:
            raise DataError(f"{file.path}: variable {name} is torn; copy or fit the model again")
        arrays[name.removeprefix(ARRAY)] = values.reshape(sizes)
    return arrays


def _try(model: RecipeModel, arrays: Arrays) -> None:
    """Raise ValueError or DivergedError unless the model gives every item a finite score.

    It is asked about somebody who has the last item, and whose inputs, where it takes any, are 1/2.
    """
    width = len(model.items)
    for name, values in arrays.items():
        if name.endswith(WIDTH) and values.tolist() != [width]:
            raise ValueError(f"{name}: {values.tolist()!r:.40}, legal: {width}, as there are items")
    inputs = {values.shape[0] for name, values in arrays.items() if name.endswith(WEIGHTS_OF_INPUTS)}
    if len(inputs) > 1:
        raise ValueError(f"{WEIGHTS_OF_INPUTS}: {' and '.join(map(str, sorted(inputs)))} rows, legal: as many in each")
    one = Events(from_rows([[width - 1]], width), model.items, np.zeros(1, np.int32), (NOBODYS,))
    for count in inputs:
        one = replace(one, inputs=Dense(np.full((1, count), 0.5, np.float32)))
    scores = model.scores(one, np.zeros(1, np.int64))
    if scores.shape != (1, width):
        raise ValueError(f"scores of shape {scores.shape}, legal: {width}, as there are items")
