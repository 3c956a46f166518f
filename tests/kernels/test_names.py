"""The numbers by which nnlib calls the kernels' kinds: C and Python have the same order."""

import re

import pytest

from nnlib.gpu.kernels import source
from nnlib.gpu.optimizer import RULE_NAMES
from nnlib.spec.types import Activation, ErrorFunction


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Activation", [kind.name for kind in Activation]),
        ("ErrorFunction", [kind.name for kind in ErrorFunction]),
        ("Rule", [name.upper() for name in RULE_NAMES]),
    ],
)
def test_kernels_count_as_python_does(name, wanted):
    [inside] = re.findall(rf"enum {name} {{([^}}]*)}};", source("update"))
    assert re.findall(r"\w+", inside) == wanted, f"enum {name} of kernels/names.cuh"
