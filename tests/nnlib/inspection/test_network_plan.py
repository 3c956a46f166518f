"""What a training would take, from data that are there."""

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.data.rows import Dense
from nnlib.data.sets import DataSet
from nnlib.devices import CPU
from nnlib.errors import DataError
from nnlib.inspection.network_plan import describe_network_plan, plan_network
from nnlib.model.examples import examples_of, resolve
from nnlib.spec.network import parse_network
from tests.nnlib.samples import network_of, random_matrix, sets_of

MATRIX = random_matrix(20, 30, 1)
SETS = sets_of(x=MATRIX, y=MATRIX)
INPUT, OUTPUT = {"Name": "I", "N": "auto", "DataSet": "x"}, {"Name": "O", "N": "auto", "DataSet": "y"}
SPEC = network_of({"Layers": [INPUT, {"Name": "H", "N": 4, "Activation": "Relu"}, OUTPUT]}, SETS).spec


def test_data_without_examples_are_refused():
    examples = examples_of(SPEC, SETS, "d.nc").take(np.arange(0))
    with pytest.raises(DataError, match=r"d\.nc: 0 examples are not legal, legal: 1 or more"):
        plan_network(SPEC, examples, TrainSettings(), 1, CPU)


def test_an_update_has_no_more_batches_than_an_epoch():
    examples = examples_of(SPEC, SETS, "d.nc")
    plans = [plan_network(SPEC, examples, TrainSettings(batch=5, accumulate=n), 1, CPU) for n in (4, 100)]
    assert plans[0].costs == plans[1].costs


def test_products_that_are_too_small_for_several_threads_are_told():
    dense = DataSet("x", Dense(np.ones((40, 64), np.float32)))
    sets = {"x": dense, "y": sets_of(y=random_matrix(40, 4, 2))["y"]}
    hidden = [{"Name": name, "N": units, "Activation": "Relu"} for name, units in (("A", 2048), ("B", 8))]
    layers = [INPUT, *hidden, OUTPUT]
    spec = resolve(parse_network({"Layers": layers}, "n"), sets, "d.nc")
    examples = examples_of(spec, sets, "d.nc")

    def told(threads, batch):
        plan = plan_network(spec, examples, TrainSettings(batch=batch), threads, CPU)
        text = " ".join(describe_network_plan(plan, 200).split())
        assert f"float32, {'1 thread' if threads == 1 else '2 threads'}, " in text
        return [f"from {name}: dense products on one thread" in text for name in "IAB"]

    assert told(2, 32) == [False, True, True]  # 32 x 64 x 2,048 products and sums are just enough
    assert told(2, 31) == [True, True, True] and told(1, 31) == [False] * 3


def test_a_network_of_images_is_told_by_its_maps():
    images = DataSet("x", Dense(np.zeros((6, 192), np.uint8)), dimensions=(8, 8, 3))
    sets = {"x": images, "y": sets_of(y=random_matrix(6, 4, 1))["y"]}
    stem = {"Name": "Stem", "Type": "Convolutional", "N": 5, "Kernel": [3, 3], "Activation": "Relu", "pDropout": 0.5}
    pool = {"Name": "Pool", "Type": "Pooling", "Function": "Max", "Kernel": [2, 2], "KernelStride": [2, 2]}
    spec = resolve(parse_network({"Layers": [INPUT, stem | {"DropChannels": True}, pool, OUTPUT]}, "n"), sets, "d.nc")
    plan = plan_network(spec, examples_of(spec, sets, "d.nc"), TrainSettings(batch=3), 1, CPU)
    text = describe_network_plan(plan, 80)
    assert max(map(len, text.split("\n"))) <= 80
    lines = " ".join(text.split())
    for words in (
        "Stem conv 3x3, Relu 8x8x5 140 0.02",
        "Hidden Stem: 320 units (8 x 8 x 5), conv 3x3, Relu, dropout 0.5 of whole maps; the whole layer at once; from "
        "I: kernels over 3 maps of 8 x 8",
        "Hidden Pool: 80 units (4 x 4 x 5), Max 2x2/2; the whole layer at once; from Stem",
        "several GPUs (parallel auto): no layer is cut, each GPU would do all the work the network has layers that are "
        "not fully connected parallel examples would cut its batches",
    ):
        assert words in lines
