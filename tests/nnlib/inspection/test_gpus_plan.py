"""What `nnlib inspect` says of several GPUs."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest

from nnlib.contract import TrainSettings
from nnlib.data.file import SetSummary
from nnlib.errors import NnlibError
from nnlib.inspection import gpus_plan
from nnlib.inspection.costs import Entries, Step, count_costs, outline
from nnlib.inspection.gpus_plan import (
    choose_for_several,
    describe_cut,
    describe_efficiency,
    describe_memory,
    predict_from,
    predict_work,
)
from nnlib.inspection.scaling import MACHINES, Matrix, Work, predict_efficiency
from nnlib.shards.plan import Plan
from nnlib.spec.network import parse_network
from nnlib.spec.sizes import resolve_sizes
from nnlib.spec.types import NetworkSpec
from nnlib.util.memory import show_bytes

INPUT = {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x", "Sparse": True}
HIDDEN = {"Name": "H", "Kind": "Hidden", "N": 16, "Activation": "Relu"}
OUTPUT = {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y", "Activation": "Sigmoid"}


def spec(items: int | str, *, weights: str = "") -> NetworkSpec:
    shared = (
        {"SharedWeights": [{"InputLayer": "H", "SourceInputLayer": "I", "SourceOutputLayer": "H", "Transposed": True}]}
        if weights
        else {}
    )
    layers = [INPUT | {"N": items}, HIDDEN, OUTPUT | {"N": items} | shared]
    return parse_network({"Layers": layers, "ErrorFunction": "CrossEntropy"}, "n.json")


def test_which_layers_are_cut_and_why_others_are_not():
    assert list(describe_cut(spec(8192), TrainSettings())) == [
        "several GPUs (parallel auto): wide layers by items, in eight shards",
        "  I: 8,192 units, cut by items",
        "  H: 16 units, whole on each: it has fewer than 8,192 units",
        "  O: 8,192 units, cut by items",
    ]
    assert list(describe_cut(spec(8191), TrainSettings()))[:2] == [
        "several GPUs (parallel auto): no layer is cut, each GPU would do all the work",
        "  I: 8,191 units, whole on each: it has fewer than 8,192 units",
    ]
    assert "it has fewer than 20,001 units" in list(describe_cut(spec(8192), TrainSettings(batch=40_000)))[1]
    assert list(describe_cut(spec(8192, weights="shared"), TrainSettings()))[1].endswith("its weights are shared")
    assert next(describe_cut(spec(4096), TrainSettings(parallel="Items"))).startswith(
        "several GPUs (parallel items): wide"
    )
    assert list(describe_cut(spec(9999), TrainSettings(parallel="none")))[3].endswith("whole on each: parallel is none")
    with pytest.raises(NnlibError, match="parallel: 'items' cuts"):
        list(describe_cut(spec(4095), TrainSettings(parallel="items")))


def test_what_is_predicted():
    entries = {0: Entries(500.0, 400.0), 2: Entries(500.0, 400.0)}
    work = predict_work(spec(10_000), TrainSettings(optimizer="Adam"), 64, entries)
    assert work == Work((Matrix(10_000, 16, True, True, 500.0, 400.0), Matrix(16, 10_000, True, output=True)), 64, 2)
    assert predict_work(spec(10), TrainSettings(), 64, entries) is None
    table = describe_efficiency(work, 80).splitlines()
    assert table[0].split() == ["predicted", "on", "2", "GPUs", "4", "GPUs", "8", "GPUs"]
    assert [line.split("  ")[0] for line in table[1:]] == [
        "H100, NVLink",
        "H100, PCI 5",
        "H100, PCI 4",
        "A10G, host memory",
    ]


def test_what_is_predicted_from_data_that_were_only_looked_at():
    sets = [SetSummary("x", 100, 10_000, 1000), SetSummary("y", 100, 10_000, 1000)]
    found = predict_from(spec("auto"), TrainSettings(batch=64, optimizer="sgd"), sets)
    # Ten entries an example, of which four are of one unit.
    assert found == Work((Matrix(10_000, 16, True, True, 640.0, 160.0), Matrix(16, 10_000, True, output=True)), 64, 0)
    dense = [SetSummary("x", 100, 10_000, 1000, "dense numbers"), sets[1]]
    found = predict_from(spec("auto"), TrainSettings(batch=64, optimizer="sgd"), dense)
    assert found.matrices[0] == Matrix(10_000, 16, False, True)
    assert predict_from(spec("auto"), TrainSettings(), sets[:1]) is None  # no such data
    small = [SetSummary("x", 100, 10, 100), SetSummary("y", 100, 10, 100)]
    assert predict_from(spec("auto"), TrainSettings(), small) is None
    assert predict_from(spec("auto"), TrainSettings(parallel="items"), small) is None


def test_what_each_gpu_keeps():
    """SGD: the gradient of dense weights, no state; the lazy input keeps a word a row for the steps that it missed."""
    network = outline(spec(8192))
    entries = {0: Entries(500.0, 400.0), 2: Entries(500.0, 400.0)}
    found = describe_memory(network, TrainSettings(optimizer="sgd"), 64, entries, 1)
    inputs, hidden, outputs = count_costs(network, entries, Step(64, 0, gpu=True))
    assert inputs.weights == inputs.state == 0
    for ranks in (1, 2, 4, 8):
        shared = inputs.batch + hidden.weights + hidden.state + outputs.weights + outputs.state + outputs.batch
        assert f"{show_bytes(int(shared / ranks + hidden.batch))} on {ranks}" in found


def test_what_is_not_cut_is_on_every_gpu():
    found = describe_memory(
        outline(spec(100)), TrainSettings(), 64, {0: Entries(50.0, 40.0), 2: Entries(50.0, 40.0)}, 1
    )
    sizes = {text.rpartition(" on ")[0].rpartition(": ")[2] for text in found.partition(";")[0].split(", ")}
    assert len(sizes) == 1


def test_by_examples_every_gpu_has_all_weights(monkeypatch):
    monkeypatch.setattr(gpus_plan, "plan_of", lambda *_: Plan("examples"))
    network, entries = outline(spec(100)), {0: Entries(50.0, 40.0), 2: Entries(50.0, 40.0)}
    whole, each, alone = describe_cut(network.spec, TrainSettings())
    assert whole.endswith("each batch by examples, in eight shards")
    assert each == "  each has all weights, updates a slice of them, and keeps the optimizer's state of it"
    assert alone.startswith("  one GPU alone runs all eight shards, one after the other; ")
    work = predict_work(network.spec, TrainSettings(), 64, entries)
    assert work is not None and work.by_examples and not any(matrix.cut for matrix in work.matrices)
    costs = count_costs(network, entries, Step(8, 2, gpu=True))
    for several in (1, 2):
        found = describe_memory(network, TrainSettings(), 64, entries, several)
        for ranks, gradients in ((1, 3), (2, 3), (4, 2), (8, 1)):  # besides a shard's: branches, and what others give
            more = gradients + (several - 1) / ranks
            taken = sum(cost.weights * (1 + more) + cost.state / ranks + cost.batch for cost in costs)
            assert f"{show_bytes(int(taken))} on {ranks}" in found


def test_layers_that_are_normalized_go_together():
    """All shards of a GPU are in its memory, each with its gradient; frozen layers need nothing of this."""
    layers = [INPUT | {"N": 20, "Sparse": False}, HIDDEN | {"BatchNormalization": True}, OUTPUT | {"N": 9}]
    network = outline(parse_network({"Layers": layers}, "n.json"))
    settings = TrainSettings(parallel="examples")
    _, _, normed, alone = describe_cut(network.spec, settings)
    assert normed == "  1 layer is normalized by the whole batch: two exchanges in a step, of 256 bytes to each other"
    assert alone.startswith("  one GPU alone runs all eight shards, layer by layer; ")
    work = predict_work(network.spec, settings, 64, {})
    assert work is not None and work.normalized == (16,)
    costs, found = count_costs(network, {}, Step(8, 2, gpu=True)), describe_memory(network, settings, 64, {}, 1)
    for ranks in (1, 2, 4, 8):
        gradients = 8 // ranks + (ranks > 1)
        taken = sum(c.weights * (1 + gradients) + c.state / ranks + c.batch * 8 // ranks for c in costs)
        assert f"{show_bytes(int(taken))} on {ranks}" in found
    frozen = parse_network({"Layers": layers, "FineTuning": {"Freeze": ["H"]}}, "n.json")
    assert len(list(describe_cut(frozen, settings))) == 3
    assert predict_work(frozen, settings, 64, {}).normalized == ()


IMAGES = {
    "Layers": [
        {"Name": "I", "Kind": "Input", "N": [12, 10, 3], "DataSet": "x"},
        {"Name": "A", "Kind": "Hidden", "Type": "Convolutional", "N": 8, "Kernel": [3, 3], "Activation": "Relu"},
        {"Name": "B", "Kind": "Hidden", "Type": "Pooling", "Function": "Max", "Kernel": [2, 2], "KernelStride": [2, 2]},
        {"Name": "C", "Kind": "Hidden", "Type": "Convolutional", "N": 6, "Groups": 2, "Kernel": [3, 3]},
        {"Name": "O", "Kind": "Output", "N": 4, "DataSet": "y", "Activation": "SoftMax"},
    ]
}


NORMED = IMAGES | {
    "Layers": [layer | ({"BatchNormalization": True} if layer["Name"] == "A" else {}) for layer in IMAGES["Layers"]]
}


PENALIZED = IMAGES | {
    "Layers": [layer | ({"Sparse": True} if layer["Name"] == "A" else {}) for layer in IMAGES["Layers"]],
    "SparsenessPenalty": {"p": 0.2, "beta": 0.5},
}


def test_auto_cuts_batches_of_jobs_that_ask_for_several_gpus_where_two_are_predicted_to_be_faster():
    images = resolve_sizes(parse_network(IMAGES, "n.json"), "n.json")
    for batch, wanted in ((64, "auto"), (1 << 20, "examples")):
        settings = TrainSettings(parallel="Auto" if wanted == "auto" else "auto", batch=batch)
        found = choose_for_several(images, settings)
        assert found.parallel.lower() == wanted and replace(found, parallel=settings.parallel) == settings
        work = predict_work(images, replace(settings, parallel="examples"), batch, {})
        assert (predict_efficiency(MACHINES[0], work, 2) > 0.5) == (wanted == "examples")
    for parallel in ("none", "examples"):
        settings = TrainSettings(parallel=parallel, batch=1 << 20)
        assert choose_for_several(images, settings) is settings
    penalized, normed = (resolve_sizes(parse_network(raw, "n.json"), "n.json") for raw in (PENALIZED, NORMED))
    for network, batch in ((spec(9000), 64), (spec(100), 1 << 20), (penalized, 1 << 20)):  # by items, and refused
        settings = TrainSettings(batch=batch)
        assert choose_for_several(network, settings) is settings
    assert choose_for_several(normed, TrainSettings(batch=1 << 20)).parallel == "examples"
    assert list(inspect.signature(choose_for_several).parameters) == ["spec", "settings"]  # no ranks, machine or link
    assert list(describe_cut(images, TrainSettings(batch=1 << 20))) == [
        "several GPUs (parallel auto): each batch by examples, in eight shards",
        "  each has all weights, updates a slice of them, and keeps the optimizer's state of it",
        "  one GPU alone runs all eight shards, one after the other; not measured on GPUs yet",
        "  so in jobs that ask for several GPUs: two are predicted to be faster than one (H100, NVLink)",
        "  with one GPU, and for nnlib train, auto cuts nothing of it",
    ]


def test_networks_of_images_are_cut_by_examples():
    network = resolve_sizes(parse_network(IMAGES, "n.json"), "n.json")
    assert list(describe_cut(network, TrainSettings())) == [
        "several GPUs (parallel auto): no layer is cut, each GPU would do all the work",
        "  the network has layers that are not fully connected",
        "  parallel examples would cut its batches",
    ]
    assert predict_work(network, TrainSettings(), 64, {}) is None
    settings = TrainSettings(parallel="examples", optimizer="sgd")
    assert len(list(describe_cut(network, settings))) == 3
    assert predict_work(network, settings, 64, {}) == Work(
        (
            Matrix(27, 8, first=True, places=120),
            Matrix(36, 6, places=30),
            Matrix(180, 4, output=True),
        ),
        64,
        0,
        by_examples=True,
        values=8 * 120 + 8 * 30 + 6 * 30,
    )
