"""Convolutional and pooling layers against finite differences, in every combination that a network may have."""

from __future__ import annotations

import pytest

from nnlib.data.sets import as_data_set
from nnlib.model.examples import examples_of, resolve
from nnlib.spec.network import parse_network
from nnlib.spec.types import Activation
from nnlib.training.gradient_check import TOLERANCE, check_gradients
from tests.nnlib.image_cases import CASES, case, classes, conv, image_network, pixels, pooled

pytestmark = pytest.mark.slow


def check(raw, x, y):
    data = {"x": as_data_set("x", x), "y": as_data_set("y", y)}
    spec = resolve(parse_network(raw, "test"), data, "data")
    for found in check_gradients(spec, examples_of(spec, data, "data"), 8):
        assert found.difference <= TOLERANCE, found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("backend")
def test_layers(name):
    check(*case(name))


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("keys", [{}, {"BatchNormalization": True, "pDropout": 0.3}], ids=["plain", "all"])
def test_activations(activation, keys):
    layers = conv("A", 3, Activation=str(activation), **keys), pooled("B", "Sum", Activation=str(activation), **keys)
    check(image_network(*layers), pixels(), classes())
