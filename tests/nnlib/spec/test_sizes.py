"""The sizes of networks: published ones, those by hand, and what is said of those that cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.model.network import weight_shape
from nnlib.spec.geometry import Maps, Window, maps_of, sweep_of
from nnlib.spec.json_section import SpecError
from nnlib.spec.network import parse_network, substitute
from nnlib.spec.sizes import fit_data, nearest_divisors, resolve_sizes
from tests.nnlib.spec.image_networks import resnet50, vgg16
from tests.nnlib.spec.test_topology import ALEXNET, CIFAR

SMALL = st.integers(1, 9)


def resolved(raw, *dimensions, classes=10):
    """Return a network whose "auto" are given: of images x first, and of classes."""
    layers = [dict(layer) for layer in raw["Layers"]]
    layers[0]["N"], layers[-1]["N"] = list(dimensions), classes
    spec = parse_network(raw | {"Layers": layers}, "n.json")
    return resolve_sizes(spec, "n.json")


ALEXNETS = [(55, 55, 96), (27, 27, 96), (27, 27, 256), (13, 13, 256), (13, 13, 384), (13, 13, 256), (6, 6, 256)]


def test_sizes_of_alexnet():
    spec = resolved(ALEXNET, 227, 227, 3, classes=1000)
    sizes = [layer.dimensions for layer in spec.layers]
    assert sizes[0] == (227, 227, 3)
    assert [sizes[n] for n in (1, 3, 4, 6, 7, 9, 10)] == ALEXNETS
    assert [layer.units for layer in spec.layers[11:]] == [4096, 4096, 1000]
    assert sizes[2] == sizes[1]
    assert sizes[5] == sizes[4]
    assert weight_shape(spec, spec.edges[0]) == (11 * 11 * 3, 96)
    assert weight_shape(spec, spec.edges[5]) == (6 * 6 * 256, 4096)
    assert sum(below * above for below, above in (weight_shape(spec, edge) for edge in spec.edges)) == 62_367_776


def test_sizes_of_cifar():
    spec = resolved(CIFAR, 32, 32, 3, classes=100)
    assert [maps_of(spec, n) for n in (0, 1, 3, 4, 6)] == [
        *(Maps(3, (32, 32)), Maps(96, (32, 32)), Maps(96, (15, 15)), Maps(192, (15, 15)), Maps(192, (7, 7)))
    ]
    sweep = sweep_of(spec, 2, 3)
    assert (sweep.volume, sweep.fan_in, sweep.windows) == (9, 864, (Window(32, 3, 2), Window(32, 3, 2)))


RESNET = {"stem": (112, 112, 64), "start": (56, 56, 64), "s1b2": (56, 56, 256), "s2b0": (28, 28, 512)}
RESNET |= {"s3b5": (14, 14, 1024), "s4b2": (7, 7, 2048), "mean": (1, 1, 2048)}
VGG = {f"pool{n}": (112 >> n - 1, 112 >> n - 1, maps) for n, maps in enumerate((64, 128, 256, 512, 512), start=1)}


@pytest.mark.parametrize(("made", "sizes"), [(resnet50, RESNET), (vgg16, VGG)])
def test_sizes_of_published_networks(made, sizes):
    spec = resolve_sizes(parse_network(made(), "n"), "n")
    assert {name: spec.layers[spec.places[name]].dimensions for name in sizes} == sizes
    assert resolve_sizes(spec, "n") == spec


def net(*layers, n=(8, 6, 4)):
    """Images, layers, an output."""
    return {"Layers": [{"Name": "In", "N": list(n), "DataSet": "x"}, *layers, {"Name": "Out", "DataSet": "y"}]}


def convolution(maps=6, kernel=(3, 3), **more):
    return {"Name": "C", "Kind": "Hidden", "Type": "Convolutional", "N": maps, "Kernel": list(kernel)} | more


def pooling(function, *sources, **more):
    return {"Name": "P", "Kind": "Hidden", "Type": "Pooling", "Function": function, "Source": list(sources)} | more


def dense(name, *n):
    return {"Name": name, "N": list(n), "Source": "In"}


SHARED = {"InputLayer": "In", "SourceInputLayer": "In", "SourceOutputLayer": "C"}
WRONG = {
    "Padding that is shorter than the kernel": (
        net(convolution(kernel=(12, 3), Padding=1)),
        'Layers[1].Kernel of "C": 12 on axis x covers 12 of the 10 that "In" has there with its padding (8 + 1 + 1), '
        "legal: a "
        "kernel of up to 10, or Padding of 4 or more together",
    ),
    "dilation": (
        net(convolution(Dilation=[4], Padding=0)),
        'Layers[1].Kernel of "C": 3 with Dilation 4 on axis x covers 9 of the 8 that "In" has there with its padding '
        "(8 + 0 + "
        "0), legal: a kernel of up to 2, or Padding of 1 or more together",
    ),
    "groups of channels": (
        net(convolution(Groups=3)),
        'Layers[1].Groups of "C": 3 do not divide the 4 channels of "In", legal: 2',
    ),
    "groups of maps": (
        net(convolution(maps=9, Groups=2)),
        'Layers[1].Groups of "C": 2 do not divide the 9 maps of "C", legal: 1',
    ),
    "axes": (
        net(convolution(kernel=(3,))),
        'Layers[1].Kernel of "C": [3] has 1, "In" has 8 x 6 x 4, legal: 2 numbers, such as [3, 3]',
    ),
    "no maps": (
        net(convolution(), n=(192,)),
        'Layers[1].Source of "C": "In" has 192 units and no maps, legal: a data set with width, height and channels, '
        "or N of "
        '"In" such as [28, 28, 1] for images of one channel: width, height, channels',
    ),
    "N of maps": (
        net(convolution(N=[8, 8, 6])),
        'Layers[1].N of "C": 8 x 8 x 6 is not what its sources give, legal: 6, the number of maps, or 8 x 6 x 6',
    ),
    "sources": (
        net(pooling("Max", "In", Kernel=[2, 2], KernelStride=[2, 2]), convolution(Source=["In", "P"])),
        'Layers[2].Source of "C": maps of different sizes from "In" 8 x 6, "P" 4 x 1, legal: sources of one size',
    ),
    "sum": (
        net(dense("A", 4, 3, 4), pooling("Sum", "In", "A")),
        'Layers[2].Source of "P": sources of different sizes: "In" 8 x 6 x 4, "A" 4 x 3 x 4, legal with Function Sum: '
        "one size",
    ),
    "sum of turned maps": (
        net(dense("A", 6, 8, 4), pooling("Sum", "In", "A")),
        'Layers[2].Source of "P": sources of different sizes: "In" 8 x 6 x 4, "A" 6 x 8 x 4, legal with Function Sum: '
        "one size",
    ),
    "product": (
        net(dense("A", 8), pooling("Product", "In", "A")),
        'Layers[2].Source of "P": sources of different sizes: "In" 8 x 6 x 4, "A" 8, legal with Function Product: 8 '
        "x 6 x 4, "
        "or 4, one value a channel",
    ),
    "concatenation": (
        net(dense("A", 8, 3, 8), pooling("Concatenate", "In", "A")),
        'Layers[2].Source of "P": maps of different sizes: "In" 8 x 6 x 4, "A" 8 x 3 x 8, legal with Function '
        "Concatenate: "
        "one size, any channels",
    ),
    "several": (
        net(dense("A", 8, 6, 4), pooling("GlobalMax", "In", "A")),
        "Layers[2].Source: 2 sources, legal with Function GlobalMax: one, such as a Pooling layer with Function Sum or "
        "Concatenate of these",
    ),
    "skip": (
        net(dense("A", 6, 8, 4), convolution(maps=4, Source="In", Skip="A")),
        'Layers[2].Skip of "C": "A" has 6 x 8 x 4 units, legal: 8 x 6 x 4, as "C" has',
    ),
    "units": (
        net(convolution(maps=2**27, kernel=(1, 1))),
        'Layers[1].N of "C": 8 x 6 x 134217728 are 6,442,450,944 units, legal: up to 2,147,483,647',
    ),
    "Padding of more axes": (
        net(convolution(Padding=[1, 1, 1])),
        "Layers[1].Padding: [1, 1, 1] has more entries than Kernel, legal: 2 of them",
    ),
    "Padding of more ends": (
        net(convolution(Padding=[[1, 1, 1]])),
        "Layers[1].Padding: [[1, 1, 1]] is not legal, legal: a whole number from 0, or an array of one for each axis "
        "of Kernel, each a number or [before, behind]",
    ),
    "Padding of pools": (
        net(pooling("Average", "In", Kernel=[2, 3], Padding=[1, [0, 3]])),
        'Layers[1].Padding of "P": 3 would pool nothing but padding, legal: less than Kernel, here 3',
    ),
    "a kernel of zeros": (
        net(convolution(kernel=(3, 2**31 - 1))),
        'Layers[1].Kernel of "C": 2147483647 on axis y covers 2147483647, where "In" has 6, legal: a kernel that '
        "covers up to "
        "542",
    ),
    "a dilation of zeros": (
        net({"Type": "Convolutional", "N": 2, "Kernel": [3], "Dilation": 2**31 - 1}, n=(28, 1)),
        'Layers[1].Kernel of "Hidden1": 3 with Dilation 2147483647 on axis x covers 4294967295, where "In" has 28, '
        "legal: a kernel "
        "that covers up to 1164",
    ),
    "a pool of nothing": (
        net(pooling("Max", "In", Kernel=[2**31 - 1, 1])),
        'Layers[1].Kernel of "P": 2147483647 on axis x covers 2147483647, where "In" has 8, legal: a kernel that '
        "covers up to "
        "552",
    ),
    "Padding of zeros": (
        net(convolution(Padding=[2**20, 1], Dilation=[2**20, 1])),
        'Layers[1].Padding of "C": 1048576 + 1048576 on axis x, where "In" has 8, legal: up to 544 together',
    ),
    "Dilation of more axes": (
        net(convolution(Dilation=[1, 2, 3])),
        "Layers[1].Dilation: [1, 2, 3] has more numbers than Kernel, legal: 2 of them",
    ),
    "a stride of no kernel": (
        net({"Name": "C", "Type": "Convolutional", "N": 2, "KernelStride": 2}),
        "Layers[1].KernelStride: says how Kernel is moved, which is missing, legal: both or none",
    ),
    "Groups of pools": (
        net(pooling("Max", "In", Kernel=[2, 2], Groups=2)),
        "Layers[1].Groups: not a key of a layer of type Pooling with Function Max, legal: only with Type Convolutional",
    ),
    "Padding of sums": (
        net(pooling("Sum", "In", Padding=2)),
        "Layers[1].Padding: not a key of a layer of type Pooling with Function Sum, legal: only with Type "
        "Convolutional, and with Function Max or Average",
    ),
    "DropChannels": (
        net(dense("A", 2) | {"DropChannels": True}),
        "Layers[1].DropChannels: not a key of a layer of type FullyConnected, legal: with Type Convolutional or "
        "Pooling",
    ),
    "shared kernels": (
        net(
            convolution(),
            convolution(maps=5, Source="In", SharedWeights=SHARED) | {"Name": "D"},
        ),
        'Layers[2].SharedWeights[0] of "D": the weights from "In" to "C" are 6 x 4 x 3 x 3, legal: 5 x 4 x 3 x 3 '
        "(maps, "
        "channels, kernel)",
    ),
    "turned kernels": (
        net(
            convolution(),
            convolution(Source="In", SharedWeights=SHARED | {"Transposed": True}) | {"Name": "D"},
        ),
        'Layers[2].SharedWeights[0].Transposed of "D": true is not legal for a layer of type Convolutional, legal: '
        "false",
    ),
}


@pytest.mark.parametrize(("raw", "problem"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_named_with_the_sizes_seen_and_what_is_legal(raw, problem):
    with pytest.raises(SpecError) as caught:
        parse_network(raw, "n.json")
    assert caught.value.problems == [f"n.json: {problem}"]


@pytest.mark.parametrize("one", [[4, 4], [2, 8], [4, 4, 1], 16])
@pytest.mark.parametrize("other", [[4, 4], [2, 8], [4, 4, 1], 16])
def test_dense_layers_skip_unit_by_unit(one, other):
    """However the number of their units is spelled; a model file keeps it as it was."""
    layers = dense("A") | {"N": one}, dense("B") | {"N": other, "Skip": "A"}
    parse_network(net(*layers), "n.json")
    with pytest.raises(SpecError, match='Skip: "A" has 16 units, legal: 17'):
        parse_network(net(layers[0], layers[1] | {"N": 17}), "n.json")


@given(SMALL, SMALL, st.integers(0, 3), st.integers(0, 3), st.integers(1, 3))
def test_the_nearest_kernel_and_padding_are_legal(size, kernel, low, high, dilation):
    def problems(kernel, padding):
        layer = convolution(kernel=(kernel,), Padding=[list(padding)], Dilation=dilation)
        try:
            resolve_sizes(parse_network(net(layer, n=(size, 2)), "n"), "n")
        except SpecError as error:
            return error.problems
        return []

    found = problems(kernel, (low, high))
    assert bool(found) == (Window(size, kernel, 1, low, high, dilation).out < 1)
    if found:
        words = found[0].split("legal: a kernel of up to ")[1]
        most, least = int(words.split(",")[0]), int(words.split("Padding of ")[1].split()[0])
        assert not problems(most, (low, high)) and problems(most + 1, (low, high))
        assert not problems(kernel, (0, least)) and problems(kernel, (0, least - 1))


@given(st.integers(1, 60), st.integers(1, 60))
def test_the_nearest_divisors_divide(count, wish):
    found = nearest_divisors(count, wish)
    assert found and all(count % one == 0 for one in found)
    nearest = min(abs(one - wish) for one in range(1, count + 1) if count % one == 0)
    assert nearest == min(abs(one - wish) for one in found)


def test_the_divisors_of_many_maps_are_found_at_once():
    assert nearest_divisors(2**30, 3) == [2, 4]
    assert nearest_divisors(36, 6) == [6]


def test_what_networks_look_around_themselves_is_legal():
    """DeepLab's widest dilation, on 33 places, and a signal's of 512, as WaveNet has."""
    for layer, n in ((convolution(Dilation=36, Padding=36), (33, 33, 4)), (convolution(kernel=(2,)), (9, 4))):
        dilation = {} if len(n) == 3 else {"Dilation": 512}
        found = resolve_sizes(parse_network(net(layer | dilation, n=n), "n"), "n").layers[1]
        assert found.units


def test_the_maps_of_an_output_are_as_many_as_its_data_have():
    raw = net()
    raw["Layers"][-1] |= {"Type": "Convolutional", "N": "auto", "Kernel": [3, 3]}
    spec = parse_network(raw, "n")
    assert spec.layers[-1].units is None
    out = fit_data(spec.layers[-1], 96, (8, 6, 2), False)
    assert resolve_sizes(replace(spec, layers=(spec.layers[0], out)), "n").layers[-1].units == 96


def test_shared_kernels_may_move_over_maps_of_other_sizes():
    pool = pooling("Max", "In", Kernel=[2, 2], KernelStride=[2, 2])
    layers = [convolution(Source="In"), pool, convolution(Source="P", SharedWeights=SHARED | {"InputLayer": "P"})]
    layers[2]["Name"] = "D"
    spec = resolve_sizes(parse_network(net(*layers), "n"), "n")
    assert [spec.layers[n].dimensions for n in (1, 3)] == [(8, 6, 6), (4, 1, 6)]
    assert (spec.edges[1].owner, weight_shape(spec, spec.edges[1])) == (0, (36, 6))


@pytest.mark.parametrize(
    ("layers", "dimensions"),
    [
        ([pooling("LRN", "In")], (8, 6, 4)),
        ([pooling("GlobalAverage", "In")], (1, 1, 4)),
        ([dense("A", 8, 6, 5), pooling("Concatenate", "A", "In")], (8, 6, 9)),
        ([dense("A", 3), dense("B", 2), pooling("Concatenate", "A", "B")], (5,)),
        ([dense("A", 192), pooling("Maxout", "A", "In")], (8, 6, 4)),
        ([dense("A", 4), pooling("Product", "A", "In")], (8, 6, 4)),
        ([dense("A", 1, 1, 4), pooling("Product", "A", "In")], (8, 6, 4)),
        ([dense("A", 8, 6, 4), dense("B", 192), pooling("Cosine", "A", "In", "B")], (2,)),
        ([convolution(kernel=(8, 6), KernelStride=[3, 3])], (1, 1, 6)),
        ([convolution() | {"Kernel": [9, 7], "Padding": [[2, 0], 1]}], (2, 2, 6)),
        ([{"Type": "Convolutional", "N": 3}], (8, 6, 3)),
        ([pooling("Average", "In", Kernel=[3, 3], KernelStride=[2, 2], Padding=1)], (4, 3, 4)),
    ],
)
def test_sizes_by_hand(layers, dimensions):
    spec = resolve_sizes(parse_network(net(*layers), "n"), "n")
    assert spec.layers[-2].dimensions == dimensions


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_data_of_as_many_axes_as_the_kernel_are_one_channel(axes):
    raw = net(convolution(kernel=(3,) * axes), n=(8, 6, 4)[:axes])
    spec = resolve_sizes(parse_network(raw, "n"), "n")
    assert spec.layers[0].dimensions == (*(8, 6, 4)[:axes], 1)
    assert spec.layers[1].dimensions == (*(8, 6, 4)[:axes], 6)
    assert sweep_of(spec, 0, 1).source == Maps(1, (8, 6, 4)[:axes][::-1])


def test_hyperparameters_stand_in_every_key_of_kernels():
    layer = convolution() | {"Kernel": ["$k", "$k"], "Padding": "$p", "Dilation": "$d", "Groups": "$g", "N": "$n"}
    raw = substitute(net(layer | {"DropChannels": "$c"}), {"k": 3, "p": 2, "d": 2, "g": 2, "n": 8, "c": True})
    found = parse_network(raw, "n").layers[1]
    assert (found.kernel, found.padding, found.dilation, found.groups) == ((3, 3), ((2, 2), (2, 2)), (2, 2), 2)
    assert (found.dimensions, found.drop_channels) == ((8,), True)
