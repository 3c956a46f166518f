"""The table of a network's layers, against what was published of networks that everybody knows."""

from __future__ import annotations

import pytest

from nnlib.inspection.contents import describe_file
from nnlib.inspection.costs import Entries, Step, count_costs, outline
from nnlib.inspection.diff import find_differences
from nnlib.inspection.shapes import count_forward_flops, count_parameters, describe_shapes
from nnlib.model.file import Model, write_model
from nnlib.model.network import norm_count
from nnlib.spec.network import parse_network
from nnlib.spec.sizes import resolve_sizes
from tests.nnlib.model.test_convolution import RAW, network_of
from tests.nnlib.spec.image_networks import mobilenet2, resnet50, vgg16

# Parameters and products for one example as torchvision's documentation has them (VGG16 138357544 and 15.47
# GFLOPS, ResNet50 25557032 and 4.09, MobileNetV2 3504872 and .30).
PUBLISHED = [(vgg16, 138_357_544, 15_470_264_320), (resnet50, 25_557_032, 4_089_184_256)]
PUBLISHED += [(mobilenet2, 3_504_872, 300_774_272)]


def spec_of(raw):
    return resolve_sizes(parse_network(raw, "n"), "n")


@pytest.mark.parametrize(("made", "parameters", "products"), PUBLISHED)
def test_parameters_and_flops_are_those_published(made, parameters, products):
    spec = spec_of(made())
    numbers = range(len(spec.layers))
    biases = sum(norm_count(spec, n) for n in numbers if spec.layers[n].batch_norm)  # theirs have none before a norm
    assert sum(count_parameters(spec, n) for n in numbers) == parameters + biases == outline(spec).parameters
    assert sum(count_forward_flops(spec, n) for n in numbers) == 2 * products


def test_the_table_fits_a_terminal():
    lines = describe_shapes(spec_of(resnet50()), 80)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["layer", "computed", "as", "from", "N", "parameters", "MFLOP"]
    assert [line.split() for line in lines[1:5]] == [
        ["In", "data", "'images'", "224x224x3", "-", "-"],
        ["stem", "conv", "7x7/2,", "norm,", "Relu", "112x112x64", "9,600", "236.03"],
        ["start", "Max", "3x3/2", "56x56x64", "-", "-"],
        ["s1b0a", "conv", "1x1,", "norm,", "Relu", "56x56x64", "4,288", "25.69"],
    ]
    assert lines[10].split() == ["s1b1b", "conv", "3x3,", "norm,", "Relu", "56x56x64", "37,056", "231.21"]
    assert lines[7].split() == ["s1b0d", "conv", "1x1,", "norm", "start", "56x56x256", "17,152", "102.76"]
    assert lines[-2].startswith("25,583,592 parameters; 8.18 GFLOP an example, forwards: products alone")


def test_a_convolutional_model_is_told_as_a_table(tmp_path):
    network = network_of(RAW)
    write_model(tmp_path / "model.nc", Model(network, region="r"))
    lines = describe_file(tmp_path / "model.nc").splitlines()
    assert lines[0] == "model '', CrossEntropy, region 'r'"
    assert lines[1:-2] == describe_shapes(network.spec, 80)[:-2]
    assert lines[-2].startswith("515 parameters; 0.03 MFLOP an example")


def test_kernels_that_differ_are_told_by_map_channel_and_place(tmp_path):
    one, other = network_of(RAW), network_of(RAW)
    other.stores[0][4, 2 * 3 + 1 * 3 + 2] += 1  # map 4, channel 1 of its group, y 1, x 2: rows of (channels, 2, 3)
    for name, network in (("one", one), ("other", other)):
        write_model(tmp_path / f"{name}.nc", Model(network))
    [line] = find_differences(tmp_path / "one.nc", tmp_path / "other.nc")
    assert line.startswith("weights In -> Stem: 1 of 72 numbers differ, by up to 1 (at 4, 1, 1, 2)")


def test_what_a_step_of_a_convolution_takes_by_hand():
    spec = spec_of(
        {
            "Layers": [
                {"Name": "In", "N": [6, 6, 2], "DataSet": "x"},
                {"Type": "Convolutional", "N": 4, "Kernel": [3, 3], "Groups": 2, "BatchNormalization": True},
                {"Type": "Pooling", "Function": "Max", "Kernel": [2, 2], "KernelStride": [2, 2]},
                {"Type": "Convolutional", "N": 5, "Kernel": [2, 2], "KernelStride": [2, 2]},
                {"Name": "Out", "N": 3, "DataSet": "y"},
            ]
        }
    )
    _, first, pool, second, _ = count_costs(outline(spec), {4: Entries(9, 3)}, Step(batch=10, states=2, gpu=False))
    assert first.parameters == 4 * 9 + 4 + 2 * 4
    assert first.weights == 4 * (first.parameters + 2 * 4)
    assert first.flops == 2 * (2 * 10 * 4 * 9 * 36)  # forwards and weights
    assert first.moved == 4 * 4 * 9 * (2 + 4)
    assert first.batch == 4 * 10 * 4 * 36 * 3  # values, deltas, and what was normalized
    assert (pool.parameters, pool.flops, pool.batch) == (0, 0, 4 * 10 * 4 * 9 * 2)
    assert second.flops == 3 * (2 * 10 * 5 * 16)
