"""Specifications and settings survive their way through JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from nnlib.contract import TrainSettings
from nnlib.parallel.records import of_plain, to_plain
from nnlib.spec.types import (
    Activation,
    ErrorFunction,
    FineTuning,
    Layer,
    LayerKind,
    NetworkSpec,
    PoolingFunction,
    Scheme,
    SharedWeights,
    Sparseness,
    WeightInit,
)


def test_a_network_with_all_that_it_may_have_is_the_same_afterwards():
    spec = NetworkSpec(
        (
            Layer("in", LayerKind.INPUT, 9, data_set="x", sparse=True),
            Layer(
                "hidden",
                LayerKind.HIDDEN,
                None,
                dimensions=(3, 4),
                sources=("in",),
                shared=(SharedWeights("in", "hidden", "out", True),),
                activation=Activation.SELU,
                sparseness=Sparseness(0.1, 2.0),
                init=WeightInit(Scheme.GAUSSIAN, 0.1, -0.3),
                function=PoolingFunction.MAXOUT,
            ),
            Layer("out", LayerKind.OUTPUT, 9, data_set="x", sources=("hidden",), skips=("in",)),
        ),
        error=ErrorFunction.DATA_MARGINAL,
        denoising=0.1,
        tuning=FineTuning(("hidden",), (("out", 0.5),), (), 3),
    )
    found = of_plain(NetworkSpec, json.loads(json.dumps(to_plain(spec))))
    assert found == spec
    assert found.edges == spec.edges
    assert found.layers[1].activation.code == Activation.SELU.code


def test_settings_keep_every_digit():
    settings = replace(TrainSettings(), learning_rate=0.1 + 0.2, clip=1e-300, seed=2**32 - 1, optimizer="rmsprop")
    assert of_plain(TrainSettings, json.loads(json.dumps(to_plain(settings)))) == settings
