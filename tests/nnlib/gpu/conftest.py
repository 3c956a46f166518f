"""The GPU backend without a GPU (its launches go to the kernels on the CPU), and on one where `-m gpu` asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nnlib.gpu.backend import Gpu
from nnlib.gpu.runtime import Runtime
from tests.kernels.standin import Cupy


@pytest.fixture
def cupy() -> Iterator[Cupy]:
    """A stand-in for CuPy, whose memory is checked in the end."""
    found = Cupy()
    yield found
    found.check()


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.gpu)])
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu]:
    """A GPU, or what stands in for one."""
    if request.param == "stand-in":
        yield Gpu(request.getfixturevalue("cupy").runtime())
        return
    runtime = Runtime.open()
    with runtime.faults():
        yield Gpu(runtime)
