"""What a training wants of GPUs; `tests/workflows/config/test_sections.py` has HTCondor evaluate it."""

from __future__ import annotations

import doctest

import pytest

from regiondag.study import gpus
from regiondag.study.gpus import GpuWish, require_capability, require_runtime


def test_doctests():
    assert doctest.testmod(gpus).failed == 0


@pytest.mark.parametrize("bad", ["", ">= 8 && true", "8.05", "100", "= 8", ">= 8,", ">=", "8 9"])
def test_bounds_that_are_none(bad):
    with pytest.raises(ValueError):
        require_capability(bad)


@pytest.mark.parametrize("bad", ["", "12", "12.4.1", "x.1", "12,4", "12.4 || true"])
def test_versions_that_are_none(bad):
    with pytest.raises(ValueError):
        require_runtime(bad)


def test_either_may_say_nothing():
    assert GpuWish(1, 1).require("") == "" and GpuWish(1, 1).require("a || b") == "a || b"
    assert GpuWish(1, 1, "x").require("") == "x"
