"""What is looked for in the data of all regions before a run is made."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from nnlib.data.file import write_data
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import Data, DataSet
from regiondag.config.data_check import check_data
from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from regiondag.generate.fresh_data import refresh_data
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.node.test_network_among_families import write_dated
from tests.workflows.shop import STUDY as SHOP
from tests.workflows.shop import write_shop


def test_buying_again_is_for_data_in_which_it_counts(tmp_path):
    study = write_shop(tmp_path, SHOP.replace("[ease, knn, blend]", "[again]"))
    refresh_data(study)
    words = (
        f"families: again: it ranks what customers have, which {tmp_path}/data/avon.train.nc leaves out; legal where"
    )
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        check_data(load_config(study))
    assert len(caught.value.problems) == 1  # and not once for each file
    study.write_text(study.read_text().replace("shop.csv}", "shop.csv, split: {repeats: true}}"))
    refresh_data(study)
    assert {summary.repeats for summary in check_data(load_config(study)).values()} == {True}


@pytest.mark.parametrize("init", ["champion", "neighbour", "pooled"])
def test_what_trainings_start_from_does_not_know_the_days_that_they_are_asked_about(tmp_path, init):
    study = write_study(tmp_path, STUDY.replace("germany.nc}", f"germany.nc, init: {init}}}"))
    check_data(load_config(study))  # without days nobody can say
    write_dated(tmp_path / "data", "germany", 0)
    if init == "pooled":
        check_data(load_config(study))
        return
    words = f"region 'Germany': init: {init}: such a model has learned from the days on which trials are judged, those "
    with pytest.raises(ConfigError, match=re.escape(words) + "from 2011-01-26 on"):
        check_data(load_config(study))


def load_told_by_inputs(folder, study):
    """A study whose regions have dense inputs and classes."""
    written = write_study(folder, study)
    for path in (folder / "data").glob("*.nc"):
        pixels, classes = Dense(np.zeros((5, 40), np.uint8)), from_rows([[n % 2] for n in range(5)], 40)
        write_data(path, Data((DataSet("input", pixels), DataSet("output", classes))))
    return load_config(written)


NO_HISTORY = "data set 'input' is dense, so that there are no histories to learn from, as knn, ease would; legal: "


def test_families_that_learn_from_histories_are_refused_where_inputs_are_dense(tmp_path):
    config = load_told_by_inputs(tmp_path, f"{STUDY}families: [network, knn, ease, blend]\n")
    with pytest.raises(ConfigError) as caught:
        check_data(config)
    assert [one for one in caught.value.problems if "is dense" in one] == [
        f"region {name!r}: {tmp_path}/data/{stem}.train.nc: {NO_HISTORY}families: [network]"
        for name, stem in (("United Kingdom", "uk"), ("Germany", "germany"))
    ]


@pytest.mark.parametrize("scope", ["region", "all"])
def test_they_are_refused_without_a_network_too_and_where_they_learn_of_all_regions(tmp_path, scope):
    study = f"study: tiny\nregions: {{from: data/*.nc}}\nfamilies: [knn, ease]\nsearch: {{rounds: 1, scope: {scope}}}\n"
    with pytest.raises(ConfigError) as caught:
        check_data(load_told_by_inputs(tmp_path, study))
    told = [one for one in caught.value.problems if NO_HISTORY in one]
    assert [one.partition(":")[0] for one in told] == ["region 'germany'", "region 'uk'"]


@pytest.mark.parametrize("families", ["[network]", "[popularity, network]"])
def test_families_that_can_be_fitted_to_classes_are_not(tmp_path, families):
    assert check_data(load_told_by_inputs(tmp_path, f"{STUDY}families: {families}\n"))


def write_images(folder, dimensions=(4, 3, 2)):
    """Write a study of two regions whose examples are images of two classes."""
    study = write_study(folder)
    network = json.loads((folder / "network.json").read_text())
    network["Layers"][0] = {"Name": "Images", "Kind": "Input", "N": "auto", "DataSet": "images"}
    network["Layers"][1] |= {"Type": "Convolutional", "Kernel": [3, 3], "Padding": 0}
    (folder / "network.json").write_text(json.dumps(network))
    for path in (folder / "data").glob("*.nc"):
        images = DataSet("images", Dense(np.zeros((5, 24), np.uint8)), dimensions=dimensions)
        write_data(path, Data((images, DataSet("output", from_rows([[n % 2] for n in range(5)], 2)))))
    return study, network


def test_images_fit_a_network_that_convolves_them(tmp_path):
    study, network = write_images(tmp_path)
    assert len(check_data(load_config(study))) == 8
    network["Layers"][1]["Kernel"] = [3, 4]
    (tmp_path / "network.json").write_text(json.dumps(network))
    with pytest.raises(ConfigError) as caught:
        check_data(load_config(study))
    words = 'uk.train.nc: network.json: Layers[1].Kernel of "Hidden": 4 on axis y'
    wrong = [problem for problem in caught.value.problems if words in problem]
    assert len(wrong) == 1 and "legal: a kernel of up to 3" in wrong[0]


@pytest.mark.parametrize("train", ["parallel: examples", ""])
def test_batches_are_cut_where_each_example_is_computed_alone(tmp_path, train):
    study, network = write_images(tmp_path)
    text = study.read_text()
    if train:
        text = text.replace("train: {", f"train: {{{train}, ")
    else:
        text = text.replace("  space:\n", "  space:\n    parallel: {choice: [none, examples]}\n")
    study.write_text(text)
    check_data(load_config(study))
    network["Layers"][1]["BatchNormalization"] = True
    (tmp_path / "network.json").write_text(json.dumps(network))
    check_data(load_config(study))
    network["Layers"][1]["Sparse"], network["SparsenessPenalty"] = True, {"p": 0.2, "beta": 0.5}
    (tmp_path / "network.json").write_text(json.dumps(network))
    with pytest.raises(ConfigError) as caught:
        check_data(load_config(study))
    words = "Hidden: the sparseness penalty is over the whole batch; legal: auto, none"
    assert len(caught.value.problems) == 2 and all(words in problem for problem in caught.value.problems)
    assert caught.value.problems[0].startswith("region 'United Kingdom': network.json: parallel: 'examples' is for ")


@pytest.mark.parametrize("train", ["parallel: items", ""])
def test_layers_are_cut_where_there_is_a_wide_one(tmp_path, train):
    text = STUDY.replace("train: {", f"train: {{{train}, ") if train else STUDY
    text = text if train else text.replace("  space:\n", "  space:\n    parallel: {choice: [auto, items]}\n")
    study = write_study(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        check_data(load_config(study))
    words = (
        "network.json: parallel: 'items' cuts sparse inputs and output layers of at least 4,096 units, and here is "
        "none; Input has 12 units; Output has 12 units; legal: auto, none"
    )
    assert caught.value.problems == [f"region {name!r}: {words}" for name in ("United Kingdom", "Germany")]
    network = json.loads((tmp_path / "network.json").read_text())
    wide = from_rows([[n, 4000 + n] for n in range(5)], 4096)
    for path in (tmp_path / "data").glob("*.nc"):
        write_data(path, Data((DataSet("input", wide), DataSet("output", wide))))
    assert len(check_data(load_config(study))) == 8
    network["Layers"][-1]["Source"] = ["Input"]
    del network["Layers"][1]
    (tmp_path / "network.json").write_text(json.dumps(network))
    study.write_text(study.read_text().replace("    hidden: {int: [2, 8], log: true}\n", ""))
    with pytest.raises(ConfigError) as caught:
        check_data(load_config(study))
    assert (
        "here is none; Input: it leads to the output layer Output without a layer between; Output: a sparse input"
        in (caught.value.problems[0])
    )


def test_an_output_of_maps_has_as_many_units_as_its_data(tmp_path):
    study, network = write_images(tmp_path)
    network["Layers"][-1] |= {"Type": "Convolutional", "N": 3}
    (tmp_path / "network.json").write_text(json.dumps(network))
    with pytest.raises(ConfigError) as caught:
        check_data(load_config(study))
    words = "network.json: layer 'Output': its sources give 6 units, data set 'output' has width 2; legal: 6"
    wanted = [f"region {name!r}: {words}" for name in ("United Kingdom", "Germany")]  # and not once for each file
    assert caught.value.problems == wanted


def test_data_that_are_no_images_are_named_before_anything_is_trained(tmp_path):
    study, network = write_images(tmp_path, ())
    with pytest.raises(ConfigError, match=r'"Images" has 24 units and no maps, legal: a data set with width, height'):
        check_data(load_config(study))
    network["Layers"][0]["DataSet"] = "output"
    (tmp_path / "network.json").write_text(json.dumps(network))
    words = "network.json: layer Hidden: of type Convolutional, takes Images, whose data set 'output' is sparse; "
    with pytest.raises(ConfigError, match=re.escape(words)):
        check_data(load_config(study))
