"""Whether the models that a final training has brought are those of its trial: `PLACE INPUTS`, folders of both.

It is run in a process of its own, as what is no NetCDF file may crash the library that reads it. Exit codes: 0 they
are, 4 they are not, 75 it cannot be said here; of the two last a sentence is printed.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np

from nnlib.contract import FLOOR_FILE, TRIAL_FILE, Exit, Recipe, Trial, trial_from_json
from nnlib.data.sets import DataSet
from nnlib.data.stream import open_data
from nnlib.errors import DataError, NnlibError
from nnlib.families.legal import complete_recipe
from nnlib.families.model_file import read_recipe_model
from nnlib.model.examples import resolve
from nnlib.model.file import read_model
from nnlib.model.file_attributes import network_attributes
from nnlib.spec.json_section import SpecError, show
from nnlib.spec.network import network_of_trial
from nnlib.spec.types import NetworkSpec
from nnlib.util.memory import available_bytes, show_bytes

Kind = TypeVar("Kind")
TIMES = 4  # what a model takes while it is read, in sizes of its file
ADDRESSES = 3 << 29  # bytes beside it, most of which nothing lies at
SHOWN = 400  # characters of a sentence


def find_misfits(trial: Trial, place: Path, inputs: Path) -> Iterator[str]:
    """Yield what each model in `place` has otherwise than its trial, whose data and network lie in `inputs`.

    Raises DataError for a model that cannot be read. What is wrong with the inputs is raised before one is opened.
    """
    sets = open_data([inputs / name for name in trial.train_files], limit_bytes=0).sets
    recipes = {FLOOR_FILE: trial.compare["floor"]} if (place / FLOOR_FILE).exists() and "floor" in trial.compare else {}
    model = trial.outputs.model
    recipes |= {model: trial.recipe} if trial.recipe else {}
    wanted = None if trial.recipe else _network_spec(trial, inputs, sets)
    legal = {name: complete_recipe(recipe) for name, recipe in recipes.items()}
    return _compare(place, model, wanted, legal, sets)


def _compare(
    place: Path, model: str, wanted: NetworkSpec | None, recipes: dict[str, Recipe], sets: Iterable[DataSet]
) -> Iterator[str]:
    if wanted:
        yield from (f"{model}: {text}" for text in _of_network(place / model, wanted, sets))
    for name, recipe in sorted(recipes.items()):
        yield from (f"{name}: {text}" for text in _of_recipe(place / name, recipe, sets))


def _network_spec(trial: Trial, inputs: Path, sets: Iterable[DataSet]) -> NetworkSpec:
    return resolve(network_of_trial(trial, inputs), {one.name: one for one in sets}, trial.network)


def _of_network(path: Path, wanted: NetworkSpec, sets: Iterable[DataSet]) -> Iterator[str]:
    model = _read(read_model, path)
    spec = model.network.spec
    seen, legal = network_attributes(spec), network_attributes(wanted)
    for name in (*legal, *seen):
        if not np.array_equal(seen.get(name, ()), legal.get(name, ())):  # some are arrays
            values = [show(found) if isinstance(found, str) else found for found in (seen.get(name), legal.get(name))]
            yield f"{name} is {values[0]}, legal: {values[1]}, as the trial's network has it"
            return
    if spec.edges != wanted.edges:
        yield "its layers share other weights than those of the trial's network"
    features = {one.name: one.features for one in sets}
    for n, layer in enumerate(wanted.layers):
        if model.features.get(n, ()) != features.get(layer.data_set, ()):
            yield f"the names of the units of {show(layer.name)} are not those of the data"


def _of_recipe(path: Path, wanted: Recipe, sets: Iterable[DataSet]) -> Iterator[str]:
    model = _read(read_recipe_model, path)
    if model.recipe != wanted:
        yield f"it is of another recipe, {model.recipe!s:.100}, legal: {wanted!s:.100}"
    elif model.items not in [one.features or tuple(map(str, range(one.width))) for one in sets]:
        yield f"its {len(model.items):,} items are not those of the data"


def _read(read: Callable[[Path], Kind], path: Path) -> Kind:
    """Read a file, with DataError for whatever it lets a reader stumble over."""
    try:
        return read(path)
    except (OSError, MemoryError, NnlibError):
        raise
    except Exception as error:
        raise DataError(f"cannot be read: {error!r}") from error


def main(words: list[str]) -> int:
    """Check what the words name; return the exit code."""
    place, inputs = map(Path, words)
    trial = trial_from_json((place / TRIAL_FILE).read_text(encoding="utf-8"))
    size = max((place / name).stat().st_size for name in trial.outputs.of_final if (place / name).exists())
    if TIMES * size > available_bytes():
        return _say(Exit.MACHINE, f"{show_bytes(TIMES * size)} of memory would be taken, and are not free")
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = ADDRESSES + TIMES * size
    less = most != resource.RLIM_INFINITY and most < limit
    resource.setrlimit(resource.RLIMIT_AS, (most if less else limit, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        misfits = find_misfits(trial, place, inputs)
    except (NnlibError, SpecError, OSError, MemoryError) as error:
        return _say(Exit.MACHINE, str(error))
    try:
        misfit = next(misfits, "")
    except OSError as error:
        return _say(Exit.MACHINE, str(error))
    except MemoryError:
        if less:
            return _say(Exit.MACHINE, f"{show_bytes(most)} of addresses are too few")
        misfit = f"models that take more than {show_bytes(limit)} to be read"
    except NnlibError as error:
        misfit = str(error).replace(f"{place}/", "").partition("; ")[0]
    return _say(Exit.BAD_INPUT, misfit) if misfit else 0


def _say(code: int, text: str) -> int:
    print(" ".join(text.split())[:SHOWN])
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
