"""cuBLAS as nnlib calls it, beside CuPy's own declarations; CuPy loads these only where it finds cuBLAS."""

from __future__ import annotations

import re

import pytest

from nnlib.gpu import cublas, runtime
from tests.kernels.played_cublas import PROTOTYPES

THEIRS = {"cublasSgemm_v2": "sgemm", "cublasGemmEx": "gemmEx", "cublasSetMathMode": "setMathMode"}


@pytest.mark.gpu
@pytest.mark.parametrize("name", THEIRS)
def test_what_is_played_takes_what_cupy_gives(name):
    from cupy_backends.cuda.libs import cublas as theirs

    inside = re.search(r"\((.*?)\)", getattr(theirs, THEIRS[name]).__doc__ or "")
    assert inside
    wanted = [part.split()[-1].lower() for part in inside[1].split(",")]
    assert [part.split()[-1].lower() for part in PROTOTYPES[name].split(", ")] == wanted


@pytest.mark.gpu
def test_numbers_are_those_of_cupy():
    import cupy
    from cupy_backends.cuda.libs import cublas as theirs

    cuda = cupy.cuda.runtime
    assert cublas.DEFAULT_MATH == theirs.CUBLAS_DEFAULT_MATH  # it does not have TF32's
    assert (cublas.COMPUTE_32F, cublas.DEFAULT_ALGORITHM) == (theirs.CUBLAS_COMPUTE_32F, theirs.CUBLAS_GEMM_DEFAULT)
    assert (cublas.R_32F, cublas.R_16BF) == (cuda.CUDA_R_32F, cuda.CUDA_R_16BF)
    kinds = (runtime.HOST_TO_DEVICE, runtime.DEVICE_TO_HOST, runtime.DEVICE_TO_DEVICE)
    assert kinds == (cuda.memcpyHostToDevice, cuda.memcpyDeviceToHost, cuda.memcpyDeviceToDevice)
