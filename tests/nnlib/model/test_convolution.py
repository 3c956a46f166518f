"""Convolutional networks in model files, in warm starts and in the layouts of memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import netCDF4
import numpy as np
import pytest

from nnlib.data.units import Units
from nnlib.errors import DataError
from nnlib.model import network as net
from nnlib.model.file import Model, read_model, write_model
from nnlib.model.fine_tuning import freeze
from nnlib.model.remap_units import remap_units
from nnlib.model.warm_start import apply_initial_weights
from nnlib.spec.network import parse_network
from nnlib.spec.sizes import resolve_sizes
from nnlib.spec.types import Activation

IMAGES = {"Name": "In", "N": [9, 7, 4], "DataSet": "images"}
STEM = {"Name": "Stem", "Type": "Convolutional", "N": 6, "Kernel": [3, 2], "KernelStride": [2, 1], "Activation": "Relu"}
EDGES = {"Padding": [[1, 0], 2], "Dilation": [1, 2], "Groups": 2, "BatchNormalization": True}
POOL = {"Name": "Pool", "Type": "Pooling", "Function": "Max", "Kernel": [2, 2], "KernelStride": [2, 2], "Padding": 1}
TOWER = [
    STEM | EDGES | {"DropChannels": True, "pDropout": 0.25},
    {"Name": "Same", "Type": "Convolutional", "N": 6, "Kernel": [3, 3], "Activation": "Tanh"},
    {"Name": "Sum", "Type": "Pooling", "Function": "Sum", "Source": ["Same", "Stem"], "BatchNormalization": True},
    POOL | {"Activation": "Relu"},
    {"Name": "Wide", "Type": "Convolutional", "N": 3},
    {"Name": "Mean", "Type": "Pooling", "Function": "GlobalAverage", "Source": "Wide"},
    {"Name": "Gate", "N": 3, "Source": "Mean"},
    {"Name": "Gated", "Type": "Pooling", "Function": "Product", "Source": ["Wide", "Gate"]},
    {"Name": "Both", "Type": "Pooling", "Function": "Concatenate", "Source": ["Gated", "Pool"]},
    {"Name": "Most", "Type": "Pooling", "Function": "GlobalMax"},
]
RAW = {"Layers": [IMAGES, *TOWER, {"Name": "Out", "N": 5, "DataSet": "classes"}]}


def network_of(raw, compat=False, seed=1):
    """Return a network of known sizes in which no two numbers are the same."""
    spec = resolve_sizes(parse_network(raw, "n", compat), "n")
    network = net.create(spec, np.random.default_rng(seed))
    draw = np.random.default_rng(seed)
    for _, array in network.arrays():
        array[...] = draw.random(array.shape, np.float32)
    return network


def same(one, other):
    assert one.spec == other.spec
    for (name, wanted), (found, array) in zip(one.arrays(), other.arrays(), strict=True):
        assert name == found
        np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("compat", [False, True])
def test_a_convolutional_model_comes_back_as_it_was_written(tmp_path, compat):
    network = network_of(RAW, compat)
    write_model(tmp_path / "one.nc", Model(network, region="r"))
    again = read_model(tmp_path / "one.nc")
    same(network, again.network)
    write_model(tmp_path / "two.nc", again)
    assert (tmp_path / "one.nc").read_bytes() == (tmp_path / "two.nc").read_bytes()


def test_the_attributes_of_kernels_are_dsstnes(tmp_path):
    network = network_of(RAW)
    write_model(tmp_path / "model.nc", Model(network))
    with netCDF4.Dataset(tmp_path / "model.nc") as file:
        assert (file.layer1_type, file.layer1_Nx, file.layer1_Ny, file.layer1_Nz) == (1, 4, 9, 6)
        assert (file.layer1_dimensions, file.layer1_kernelDimensions) == (3, 2)
        assert (file.layer1_kernelX, file.layer1_kernelY, file.layer1_kernelZ) == (3, 2, 1)
        assert (file.layer1_kernelStrideX, file.layer1_kernelStrideY) == (2, 1)
        assert [file.getncattr(f"layer{n}_kernelPadding{axis}") for n in (1, 2) for axis in "XY"] == [1, 2, 1, 1]
        assert list(file.layer1_nnlib_padding) == [1, 0, 2, 2]
        assert list(file.layer1_nnlib_dilation) == [1, 2]
        assert (file.layer1_nnlib_groups, file.layer1_nnlib_dropChannels) == (2, 1)
        assert not [name for name in file.ncattrs() if name.startswith("layer2_nnlib")]
        assert (file.layer3_poolingfunction, file.layer4_poolingfunction, file.layer4_type) == (10, 1, 2)
        shape = [file.getncattr(f"weight0_{name}") for name in ("width", "height", "length", "depth", "breadth")]
        assert shape == [6, 2, 2, 3, 1]  # maps, channels of a group, y, x
        np.testing.assert_array_equal(file["weight0_weights"][:], network.stores[0].reshape(-1))
        assert file.dimensions["weight0_biasDim"].size == file.dimensions["layer1_bnDim"].size == 6
        assert file.dimensions["layer3_bnDim"].size == 6


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("layer1_nnlib_padding", np.uint32([1, 0, 2]), "legal: 4 whole numbers from 0"),
        ("layer1_nnlib_padding", np.uint64([1, 0, 2**40, 2]), "legal: 4 whole numbers from 0 to 2147483647"),
        ("layer1_nnlib_padding", np.uint32([1, 0, 2**20, 2]), 'Layers[1].Padding of "Stem": 1048576 + 2 on axis y'),
        ("layer4_nnlib_padding", np.uint32([1, 4, 1, 1]), 'Layers[4].Padding of "Pool": 4 would pool nothing'),
        ("layer3_poolingfunction", np.uint32(0), "poolingfunction: 0 is not legal, legal: 1 Max, 2 Average"),
        ("layer1_nnlib_dilation", np.uint32([0, 1]), "legal: 2 whole numbers from 1"),
        ("layer1_nnlib_groups", np.uint32(4), 'Layers[1].Groups of "Stem": 4 do not divide the 6 maps'),
        ("layer2_kernelPaddingX", np.uint32(0), "layer2_kernelPaddingX: 0 is not legal, legal: 1, as the sizes say"),
        (
            "layer2_Nx",
            np.uint32(5),
            'Layers[2].N of "Same": 5 x 9 x 6 is not what its sources give, legal: 6, the number of maps',
        ),
        ("layer4_Nx", np.uint32(9), "layer4_Nx: 9 is not legal, legal: sizes of 3 x 5 x 6, as its sources give"),
        ("layer1_kernelX", np.uint32(99), 'Layers[1].Kernel of "Stem": 99 on axis x'),
    ],
)
def test_models_that_contradict_themselves_are_refused(tmp_path, name, value, words):
    write_model(tmp_path / "model.nc", Model(network_of(RAW)))
    with netCDF4.Dataset(tmp_path / "model.nc", "a") as file:
        file.setncattr(name, value)
    with pytest.raises(DataError) as caught:
        read_model(tmp_path / "model.nc")
    assert words in str(caught.value)


def test_pooling_layers_of_dsstnes_models_have_no_activation(tmp_path):
    write_model(tmp_path / "model.nc", Model(network_of(RAW)))
    with netCDF4.Dataset(tmp_path / "model.nc", "a") as file:
        file.delncattr("nnlib_compat")
    seen = read_model(tmp_path / "model.nc").network.spec
    assert seen.layers[4].activation is Activation.LINEAR
    assert replace(seen.layers[4], activation=Activation.RELU) == network_of(RAW).spec.layers[4]


def test_a_pooling_layer_has_the_activation_it_names_or_none_in_compat():
    layers = [network_of(RAW, compat).spec.layers for compat in (False, True)]
    assert [each[4].activation for each in layers] == [Activation.RELU, Activation.LINEAR]
    assert layers[0][3].activation is Activation.LINEAR


def test_initial_kernels_have_the_spread_of_their_fans():
    wide = {"Type": "Convolutional", "N": 64, "Kernel": [3, 3], "Groups": 4}
    raw = {"Layers": [IMAGES | {"N": [5, 5, 32]}, wide, {"N": 1, "DataSet": "y"}]}
    for scheme, wanted in (("CaffeXavier", np.sqrt(3 / 144)), ("Xavier", np.sqrt(6 / (72 + 144)))):
        raw["Layers"][1]["WeightInit"] = {"Scheme": scheme}
        spec = resolve_sizes(parse_network(raw, "n"), "n")
        store = net.create(spec, np.random.default_rng(0)).stores[0]
        assert store.shape == (64, 72)
        assert store.flags.c_contiguous
        assert 0.99 * wanted < np.abs(store).max() <= wanted


BODY = [
    IMAGES,
    STEM | EDGES,
    {"Name": "Norm", "Type": "Pooling", "Function": "Sum", "BatchNormalization": True},
    {"Name": "Mean", "Type": "Pooling", "Function": "GlobalAverage"},
]
HEAD = {"Name": "Out", "N": 5, "DataSet": "classes"}


def start(raw, old, **tuning):
    return apply_initial_weights(Model(network_of(raw | {"FineTuning": tuning}, seed=2)), Model(old))


def test_kernels_are_taken_over_to_images_of_another_size():
    old = network_of({"Layers": [*BODY, HEAD]})
    large = [BODY[0] | {"N": [17, 13, 4]}, *BODY[1:], HEAD | {"N": 3}]
    found = start({"Layers": large}, old, Freeze=["Stem", "Norm"])
    assert found.summary.startswith(
        "weights of 2 of 3 layers; 0 of 3 units of Out found by number; random: Mean to Out"
    )
    np.testing.assert_array_equal(found.network.stores[0], old.stores[0])
    np.testing.assert_array_equal(found.network.biases[0], old.biases[0])
    for n in (1, 2):
        for name in net.NORM_ARRAYS:
            np.testing.assert_array_equal(getattr(found.network.norms[n], name), getattr(old.norms[n], name))
    assert not np.shares_memory(found.network.stores[0], old.stores[0])
    frozen = freeze(found.network, 1)
    assert (frozen.locked, frozen.fixed) == ({0}, {1, 2})
    assert frozen.layer_of("weights0") == 1


@pytest.mark.parametrize(
    "change",
    [{"Kernel": [3, 3]}, {"Groups": 1}, {"N": 4}, {"Type": "FullyConnected"}],
    ids=["kernel", "groups", "maps", "type"],
)
def test_kernels_of_another_shape_stay_random(change):
    old = network_of({"Layers": [*BODY, HEAD]})
    stem = STEM | EDGES | change
    if "Type" in change:
        stem = {key: value for key, value in stem.items() if key in ("Name", "Type", "N")}
    raw = {"Layers": [IMAGES, stem, HEAD]}
    found = start(raw, old)
    assert "In to Stem" in found.summary.partition("random: ")[2]
    assert not np.isin(found.network.stores[0], old.stores[0]).all()
    with pytest.raises(DataError, match=r'FineTuning.Freeze: "Stem" would stay random'):
        start(raw, old, Freeze="Stem")


def test_units_of_maps_of_another_shape_are_others():
    flat = [IMAGES | {"N": [4, 2, 2]}, {"Type": "Pooling", "Function": "Max", "Kernel": [1, 1]}, HEAD]
    old = network_of({"Layers": [flat[0] | {"N": [2, 2, 4]}, *flat[1:]]})
    assert "random: Hidden1 to Out" in start({"Layers": flat}, old).summary
    assert "random" not in start({"Layers": [flat[0] | {"N": [2, 2, 4]}, *flat[1:]]}, old).summary


@pytest.mark.parametrize(
    ("size", "other", "alike"),
    [
        ([4, 4, 1], 16, True),
        ([4, 4, 1], [4, 4], True),
        ([2, 4, 2], [16], True),
        ([4, 4, 1], [2, 8], False),
        (16, 15, False),
    ],
)
def test_one_size_may_be_spelled_in_several_ways(size, other, alike):
    """Of inputs and of dense layers, whose units have nothing but their numbers."""
    for pair in ((size, other), (other, size)):
        inputs = [[IMAGES | {"N": n}, {"Name": "H", "N": 6}, HEAD] for n in pair]
        hidden = [[IMAGES | {"N": 9}, {"Name": "H", "N": n}, HEAD] for n in pair]
        for old, new in (inputs, hidden):
            summary = start({"Layers": new}, network_of({"Layers": old})).summary
            assert ("random" not in summary) == alike


def test_a_dense_layer_is_no_map_of_the_same_size():
    dense, maps = {"Name": "H", "N": [3, 3, 1]}, {"Name": "H", "Type": "Convolutional", "N": 1, "Kernel": [1, 1]}
    old, new = ([IMAGES | {"N": [3, 3, 4]}, layer, HEAD] for layer in (dense | {"N": 9}, maps))
    for before, after in ((old, new), (new, old)):
        assert "random: In to H, H to Out" in start({"Layers": after}, network_of({"Layers": before})).summary


def test_replaced_layers_keep_the_normalization_they_were_drawn_with():
    old = network_of({"Layers": [*BODY, HEAD]})
    found = start({"Layers": [*BODY, HEAD]}, old, Replace=["Norm", "Out"])
    assert "weights of 1 of 3 layers" in found.summary
    assert not np.array_equal(found.network.norms[2].mean, old.norms[2].mean)
    with pytest.raises(DataError, match=r'"Norm" would stay as it was drawn: .* no batch normalization of this size'):
        start({"Layers": [*BODY, HEAD]}, network_of({"Layers": [*BODY[:2], BODY[3], HEAD]}), Freeze="Norm")


def test_classes_of_images_are_found_again_by_name_and_pixels_are_not():
    network = network_of({"Layers": [*BODY, HEAD]})
    model = Model(network, {4: ("a", "b", "c", "d", "e")})
    units = {"images": Units(252, ()), "classes": Units(3, ("c", "new", "a"))}
    seen = remap_units(model, units).network
    assert seen.stores[0] is network.stores[0]
    np.testing.assert_array_equal(seen.matrix(1)[:, [0, 2]], network.matrix(1)[:, [2, 0]])
    with pytest.raises(DataError, match='"In" has 252 units, 9 x 7 x 4, data set "images" has 63; legal: data of 9'):
        remap_units(model, units | {"images": Units(63, ())})
    named = Model(network, {0: tuple(f"p{n}" for n in range(252))})
    moved = {"images": Units(252, tuple(f"p{n}" for n in range(252))[::-1]), "classes": Units(5, ())}
    with pytest.raises(
        DataError, match=r'the units of "In" have moved, and in layer "Stem" of type Convolutional each'
    ):
        remap_units(named, moved)


def test_large_models_are_written_and_read_without_a_copy(tmp_path):
    wide = [IMAGES | {"N": [16, 16, 8]}, STEM, {"Name": "Full", "N": 4096}, HEAD]
    network = network_of({"Layers": wide})
    size = sum(array.nbytes for _, array in network.arrays())
    tracemalloc.start()
    try:
        write_model(tmp_path / "model.nc", Model(network))
        written = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        model = read_model(tmp_path / "model.nc")
        read = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    same(network, model.network)
    assert written < size / 2
    assert read < 2.1 * size  # netCDF4 asks for as much again as the largest has, which it does not touch
