"""What a training writes is never more than what was said before: files of real models and checkpoints, measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS, Recipe, TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.data.file import check_data_file, write_data
from nnlib.data.rows import Dense
from nnlib.data.sets import Data, as_data_set
from nnlib.errors import DivergedError
from nnlib.families.family import Size
from nnlib.families.fit import fit_recipe
from nnlib.families.legal import LEGAL, Range, complete_recipe
from nnlib.families.model_file import write_recipe_model
from nnlib.inspection.output_bound import ARRAYS, FILE, bound_network, bound_recipe
from nnlib.model.examples import examples_of, resolve
from nnlib.model.file import model_of, write_model
from nnlib.model.network import create
from nnlib.spec.network import parse_network
from nnlib.training import checkpoint, loop
from nnlib.util.threads import workers
from tests.nnlib.families.few import few_events
from tests.nnlib.image_cases import CASES, case
from tests.nnlib.training.test_loop import NOISY, PLAIN, SETS

pytestmark = pytest.mark.slow

SMALL = {"k", "vectors", "dims"}  # of which the largest that is legal would take hours of a test
LARGE, FEW, NAME = 300, 3, 5  # their upper end here; rounds of those that learn; bytes of an item's name
ROUNDS = {"epochs": FEW, "sweeps": FEW, "batch": 16}
DATA = {
    "few customers": few_events(20, 90, density=0.3),
    "few items": few_events(400, 12, density=0.6),
    "many regions": few_events(150, 60, regions=tuple(f"region {n}" for n in range(50))),
}
DATA = {name: replace(one, inputs=Dense(np.eye(one.customers, 70, dtype=np.uint8))) for name, one in DATA.items()}


def ends(family):
    """Yield recipes at either end of each hyperparameter, the others being as usual, and at all upper ends."""
    legal = {name: may for name, may in LEGAL[family].items() if name not in ROUNDS}
    rounds = {name: value for name, value in ROUNDS.items() if name in LEGAL[family]}
    highest = {
        name: min(may.high, LARGE) if name in SMALL else may.high
        for name, may in legal.items()
        if isinstance(may, Range)
    }
    tried = [{}, {name: highest[name] for name in highest if name in SMALL | {"own_weight", "bias", "own"}}]
    for name, may in legal.items():
        found = (may.low, highest[name]) if isinstance(may, Range) else may
        tried += [{name: int(value) if isinstance(may, Range) and may.whole else value} for value in found]
    return [Recipe(family, {**rounds, **some}) for some in tried]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("family", ARRAYS)
def test_a_family_s_model_is_no_larger(family, data, tmp_path):
    history, fitted = DATA[data], 0
    size = Size(history.customers, history.bought.width, history.bought.nonzeros, history.inputs.width)
    for recipe in ends(family):
        try:
            with np.errstate(all="ignore"):  # as when all purchases are older than a thousand half-lives
                model = fit_recipe(recipe, history)
        except DivergedError:
            continue
        fitted += 1
        most = bound_recipe(recipe, size)
        assert sum(array.nbytes for array in model.fitted.arrays().values()) <= most - FILE, recipe
        write_recipe_model(tmp_path / "model.nc", model)
        names = sum(map(len, (*model.items, *model.regions)))
        assert (tmp_path / "model.nc").stat().st_size <= most + names, recipe
    assert fitted > 2


def test_a_blend_s_model_is_no_larger_than_its_members_together(tmp_path):
    history = DATA["many regions"]
    size = Size(history.customers, history.bought.width, history.bought.nonzeros)
    members = tuple(Recipe(family, {"epochs": FEW} if family == "elsa" else {}) for family in ("ease", "knn", "elsa"))
    recipe = complete_recipe(Recipe("blend", {}, 1, members, (1.0, 0.5, 0.25)))
    write_recipe_model(tmp_path / "model.nc", fit_recipe(recipe, history))
    assert (tmp_path / "model.nc").stat().st_size <= bound_recipe(recipe, size)
    assert bound_recipe(recipe, size) == sum(bound_recipe(member, size) for member in members)


def test_of_a_family_that_nobody_counted_nothing_is_known():
    size = Size(10, 10, 10)
    assert bound_recipe(Recipe("new"), size) is None
    assert bound_recipe(Recipe("blend", {}, 1, (Recipe("ease"), Recipe("new")), (1.0, 1.0)), size) is None


def test_items_grow_with_their_square_where_they_do():
    ease = [bound_recipe(Recipe("ease"), Size(1000, items, 5000)) for items in (10_000, 20_000)]
    assert ease[0] == pytest.approx(4e8, rel=0.02) and ease[1] == pytest.approx(16e8, rel=0.02)
    elsa = [bound_recipe(Recipe("elsa", {"dims": 128}), Size(1000, items, 5000)) for items in (10_000, 20_000)]
    assert elsa[1] < 2 * elsa[0] < 2e7


def networks():
    """Yield networks with their data, those of purchases and those of pictures."""
    for name, raw in (("purchases", PLAIN), ("noisy", NOISY)):
        yield pytest.param(raw, SETS, id=name)
    for name in CASES:
        raw, x, y = case(name)
        yield pytest.param(raw, {"x": as_data_set("x", x), "y": as_data_set("y", y)}, id=name)


@pytest.mark.parametrize(("raw", "sets"), list(networks()))
def test_a_network_s_model_and_checkpoint_are_no_larger(raw, sets, tmp_path):
    """Each optimizer is tried, with a mean of the weights and the best epoch's kept: all that a checkpoint can have."""
    spec = resolve(parse_network(raw, "test"), sets, "test")
    write_data(tmp_path / "data.nc", Data(tuple(sets.values())))
    model, saved = bound_network(parse_network(raw, "test"), check_data_file(tmp_path / "data.nc").sets)
    for optimizer in OPTIMIZERS:
        network = create(spec, np.random.default_rng(1))
        given = TrainSettings(optimizer=optimizer, epochs=2, batch=1000, learning_rate=1e-4, ema=0.9)
        (tmp_path / optimizer).mkdir()
        keeper = Keeping(tmp_path / optimizer)
        with workers(1) as each:
            examples = examples_of(spec, sets, "test")
            loop.fit(network, examples, given, Cpu(each), lambda _: None, lambda _: 1.0, keeper=keeper)
        assert keeper.numbers <= saved - FILE and keeper.size <= saved
        write_model(tmp_path / "model.nc", model_of(network, sets, "somewhere"))
        assert sum(array.nbytes for _, array in network.arrays()) <= model - FILE
        names = sum(len(name) for one in sets.values() for name in one.features)
        assert (tmp_path / "model.nc").stat().st_size <= model + names
        assert keeper.best, "the last one was saved after the first epoch"


class Keeping(checkpoint.Checkpoints):
    """Saves after each batch, and knows how large that was."""

    def __init__(self, folder):
        super().__init__(folder, "this one")
        self.numbers, self.size, self.best = 0, 0, False

    def after_batch(self, training):
        self.save(training)
        arrays, _ = training.state()
        self.best = self.best or any(name.startswith("best_") for name in arrays)
        self.numbers = max(self.numbers, sum(array.nbytes for array in arrays.values()))
        self.size = max(self.size, self.path.stat().st_size)


def test_a_network_that_does_not_fit_its_data_is_not_known(tmp_path):
    raw, x, y = case(next(iter(CASES)))
    write_data(tmp_path / "data.nc", Data((as_data_set("other", x), as_data_set("y", y))))
    spec = parse_network(
        {**raw, "Layers": [{**layer, "N": "auto"} if layer["Kind"] == "Input" else layer for layer in raw["Layers"]]},
        "test",
    )
    assert bound_network(spec, check_data_file(tmp_path / "data.nc").sets) is None
