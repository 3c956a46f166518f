"""A model is held against the trial that it was trained for: its network, its recipe, its data."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from nnlib.contract import Exit, Metric, Recipe, Role, TrainSettings, Trial, trial_to_json
from nnlib.data.file import write_data
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.errors import DataError
from nnlib.inspection import brought_models
from nnlib.inspection.brought_models import find_misfits
from nnlib.model.file import model_of, write_model
from nnlib.worker.rivals import write_recipe
from tests.nnlib.model.test_convolution import RAW, network_of

TRIAL = Trial("r_final", "r", -1, Role.FINAL, "network.json", {}, TrainSettings(), Metric(), ("data.nc",))
BOUGHT = replace(TRIAL, network="", recipe=Recipe("popularity"))


@pytest.fixture
def images(tmp_path):
    """Return a folder with images, a convolutional network, and a model of it."""
    pictures = Dense(np.zeros((2, 252), np.float32))
    sets = DataSet("images", pictures, dimensions=(9, 7, 4)), DataSet("classes", from_rows([[0], [4]], 5))
    write_data(tmp_path / "data.nc", Data(sets))
    (tmp_path / "network.json").write_text(json.dumps(RAW))
    write_model(tmp_path / "model.nc", model_of(network_of(RAW), {}, ""))
    return tmp_path


@pytest.fixture
def bought(tmp_path):
    """Return a folder with data, and the model of a recipe that was fitted to them."""
    rows = from_rows([[0, 1], [1, 2]], 3)
    write_data(tmp_path / "data.nc", Data((DataSet("input", rows, ("a", "b", "c")),)))
    write_recipe(BOUGHT.recipe, tmp_path / "data.nc", tmp_path / "model.nc")
    return tmp_path


def test_a_convolutional_network_fits(images):
    assert list(find_misfits(TRIAL, images, images)) == []


def test_a_trial_may_name_settings_of_the_training_and_layers_that_it_does_not_start_from(images):
    (images / "network.json").write_text(json.dumps({**RAW, "FineTuning": {"Replace": ["Out"]}}))
    trial = replace(TRIAL, hyperparameters={"learning_rate": 0.1, "batch": 4})
    assert list(find_misfits(trial, images, images)) == []


@pytest.mark.parametrize("change", [('"N": 3', '"N": 6'), ('"Tanh"', '"Relu"'), ('"Groups": 2', '"Groups": 1')])
def test_another_network_does_not(images, change):
    text = json.dumps(RAW)
    assert change[0] in text
    (images / "network.json").write_text(text.replace(*change))
    assert "as the trial's network has it" in next(find_misfits(TRIAL, images, images))


def test_names_that_are_not_the_datas_do_not(images):
    network = network_of(RAW)
    names = {"classes": DataSet("classes", from_rows([[0]], 5), tuple("abcde"))}
    write_model(images / "model.nc", model_of(network, names, ""))
    text = 'model.nc: the names of the units of "Out" are not those of the data'
    assert list(find_misfits(TRIAL, images, images)) == [text]


def test_a_recipe_fits(bought):
    assert list(find_misfits(BOUGHT, bought, bought)) == []
    other = replace(BOUGHT, recipe=Recipe("popularity", {"half_life": 3.0}))
    assert "model.nc: it is of another recipe" in next(find_misfits(other, bought, bought))


def test_other_items_do_not(bought):
    write_data(bought / "data.nc", Data((DataSet("input", from_rows([[0]], 3), ("a", "b", "x")),)))
    assert list(find_misfits(BOUGHT, bought, bought)) == ["model.nc: its 3 items are not those of the data"]


def test_whatever_a_reader_stumbles_over_is_said_of_the_file(bought, monkeypatch):
    monkeypatch.setattr(brought_models, "read_recipe_model", lambda path: {}[path.name])
    with pytest.raises(DataError, match="cannot be read: KeyError"):
        list(find_misfits(BOUGHT, bought, bought))


@pytest.mark.parametrize("free", [0, 1 << 40])
def test_what_takes_more_memory_than_there_is_is_not_read(bought, monkeypatch, capsys, free):
    (bought / "trial.json").write_text(trial_to_json(BOUGHT))
    limits = []
    monkeypatch.setattr(brought_models, "available_bytes", lambda: free)
    monkeypatch.setattr(brought_models.resource, "setrlimit", lambda *words: limits.append(words))
    assert brought_models.main([str(bought), str(bought)]) == (0 if free else Exit.MACHINE)
    assert ("of memory would be taken" in capsys.readouterr().out) == (not free) and bool(limits) == bool(free)
