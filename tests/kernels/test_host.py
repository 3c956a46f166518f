"""Kernels on the CPU: warps and blocks, what CUDA forbids, arguments that do not fit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.kernels.host import poisoned, run
from tests.kernels.library import KernelError, Parameter, compiled, signatures

PORTABLE = ("-DCUDA_HOST_UCONTEXT",)


def small(body: str, parameters: str = "float* x") -> str:
    """Return a text with one kernel, `f`."""
    return f'extern "C" __global__ void f({parameters})\n{{\n{body}\n}}\n'


def test_sums_of_floats_by_atomics_do_not_compile():
    with pytest.raises(KernelError, match="an integer"):
        compiled(small("atomicAdd(x, 1.0f);"))


# What CUDA forbids or leaves undefined, with the message.
FORBIDDEN = {
    "exited": ("if (threadIdx.x == 9) return;\nx[threadIdx.x] = __shfl_sync(~0u, 1.0f, 9);", "lane 9, which is not"),
    "beyond": ("x[threadIdx.x] = __shfl_sync(~0u, 1.0f, 32);", "outside the width"),
    "negative": ("x[threadIdx.x] = __shfl_sync(~0u, 1.0f, -1);", "outside the width"),
    "xor": ("x[threadIdx.x] = __shfl_xor_sync(~0u, 1.0f, 32);", "outside the width"),
    "masked": ("if (threadIdx.x < 8) x[threadIdx.x] = __shfl_sync(255u, 1.0f, 8);", "lane 8, which is not there"),
    "not in the mask": ("x[threadIdx.x] = __shfl_sync(255u, 1.0f, 0);", "without the lane itself"),
    "some lanes": (
        "if (threadIdx.x % 2) x[threadIdx.x] = __shfl_sync(~0u, 1.0f, 0);\nelse __syncthreads();",
        "other lanes do not come",
    ),
    "two barriers": ("if (threadIdx.x < 32) {__syncthreads();}\nelse {\n__syncthreads(); }", "barrier in line"),
    "dynamic": ("extern __shared__ float t[];\nt[threadIdx.x] = 0;", "past the 8 bytes of dynamic"),
}


@pytest.mark.parametrize("flags", [(), PORTABLE])
@pytest.mark.parametrize("case", FORBIDDEN)
def test_what_is_forbidden_ends_the_launch(case, flags):
    body, message = FORBIDDEN[case]
    library = compiled(small(body), flags=flags)
    for _ in range(2):  # the first failure leaves the next launch as it is
        with pytest.raises(KernelError, match=f"f: block .*{message}"):
            run(library, "f", (3,), [poisoned(64)], block=(64,), shared_mem=8)


UNDEFINED = {
    "misaligned": ("reinterpret_cast<float4*>(x + 1)[0] = make_float4(1, 2, 3, 4);", "misaligned"),
    "static": ("__shared__ float t[4];\nt[n] = x[0];\nx[1] = t[0];", "outside the array"),
    "sum": ("x[0] = (float)(n + 2147483647);", "sum too large"),
    "shift": ("x[0] = (float)(1 << (n + 30));", "shift"),
    "product": ("x[0] = (float)(n * 2147483647);", "product too large"),
    "cast": ("x[0] = 1e30f * n;\nx[1] = (float)(int)x[0];", "too large for the integer"),
    "null": ("float* const none = n ? 0 : x;\nnone[0] = 1;", "null"),
}


@pytest.mark.parametrize("case", UNDEFINED)
def test_what_is_undefined_ends_a_sanitized_launch(case):
    body, message = UNDEFINED[case]
    library = compiled(small(body, "float* x, int n"), sanitize=True)
    with pytest.raises(KernelError, match=f"f: block .*{message}"):
        run(library, "f", (1,), [np.ones(8, np.float32), np.int32(4)], block=(1,))


def test_the_environment_asks_for_sanitized_launches(monkeypatch):
    monkeypatch.setenv("KERNELS_SANITIZE", "1")
    with pytest.raises(KernelError, match="sum too large"):
        run(compiled(small("x[0] = n + 2147483647;", "int* x, int n")), "f", (1,), [np.zeros(1, np.int32), np.int32(1)])


POISONED = {
    "static": "__shared__ float t[64];\nif (threadIdx.x < 40) t[threadIdx.x] = 1;\n__syncthreads();\n"
    "x[blockIdx.x * 64 + threadIdx.x] = t[threadIdx.x];",
    "dynamic": "extern __shared__ float t[];\nif (threadIdx.x < 40) t[threadIdx.x] = 1;\n__syncthreads();\n"
    "x[blockIdx.x * 64 + threadIdx.x] = t[threadIdx.x];",
    "one": "__shared__ float t;\nif (x[0] == 5) t = 1;\nx[blockIdx.x * 64 + threadIdx.x] = threadIdx.x < 40 ? 1 : t;",
    "never written": "__shared__ float t[2];\nx[blockIdx.x * 64 + threadIdx.x] = threadIdx.x < 40 ? 1 : t[1];",
}


@pytest.mark.parametrize("case", POISONED)
def test_shared_memory_is_poisoned_before_every_block(case):
    [x] = run(compiled(small(POISONED[case])), "f", (2,), [np.zeros(128, np.float32)], block=(64,), shared_mem=256)
    np.testing.assert_array_equal(x, np.tile(np.where(np.arange(64) < 40, 1, np.nan), 2))


EXCHANGES = small(
    """
    const int t = threadIdx.x, at = blockIdx.x * blockDim.x + t;
    float sum = t, below = __shfl_up_sync(~0u, sum, 1);
    for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    const unsigned int odd = __ballot_sync(~0u, t & 1);
    const double last = __shfl_sync(~0u, (double)t, 7, 8), next = __shfl_down_sync(~0u, (double)t, 1);
    __syncwarp();
    if (t % 32 < 8) { __syncwarp(0xffu); below += __shfl_sync(0xffu, 100.0f, 3); }
    __syncthreads();
    x[at] = sum;
    y[at] = below;
    bits[at] = odd;
    z[at] = last * 1000 + next;
    """,
    "float* x, float* y, unsigned int* bits, double* z",
)


@pytest.mark.parametrize("flags", [(), PORTABLE])
@pytest.mark.parametrize("sanitize", [False, True])
def test_warps_exchange_values(flags, sanitize):
    library = compiled(EXCHANGES, sanitize, flags)
    shape = (2, 3, 32)
    arrays = [poisoned(shape), poisoned(shape), poisoned(shape, np.uint32), poisoned(shape, np.float64)]
    sums, below, odd, ends = run(library, "f", (2,), arrays, block=(96,))
    t = np.broadcast_to(np.arange(96).reshape(3, 32), shape)
    lane = t % 32
    np.testing.assert_array_equal(sums, np.broadcast_to(t.sum(axis=2, keepdims=True), shape))
    np.testing.assert_array_equal(below, np.where(lane > 0, t - 1, t) + np.where(lane < 8, 100, 0))
    np.testing.assert_array_equal(odd, np.full(shape, 0xAAAAAAAA))
    np.testing.assert_array_equal(ends, (t // 8 * 8 + 7) * 1000 + np.where(lane < 31, t + 1, t))


def test_blocks_and_threads_in_three_dimensions():
    text = small(
        "const int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);\n"
        "const int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);\n"
        "x[b * blockDim.x * blockDim.y * blockDim.z + t] = b * 1000 + t;",
        "int* x",
    )
    [x] = run(compiled(text), "f", (2, 3, 2), [poisoned((12, 24), np.int32)], block=(3, 4, 2))
    np.testing.assert_array_equal(x, np.arange(12)[:, None] * 1000 + np.arange(24))


ARGUMENTS = "const float* x, int* items, long long n, float c, float* const* arrays"


def test_arguments_are_checked_against_the_signature():
    kernel = compiled(small("", ARGUMENTS)).kernel("f")
    x, items, table = np.zeros(3, np.float32), np.zeros(3, np.int32), np.zeros(1, np.uint64)
    right = [x, items, np.int64(3), np.float32(1), table]
    kernel((1,), (1,), right)
    kernel((1,), (1,), [None, None, *right[2:4], None])
    frozen = items.copy()
    frozen.flags.writeable = False
    wrong = {
        "x": (x.astype(np.float64), np.zeros(6, np.float32)[::2], 3, np.float32(1), b"x"),
        "items": (items.astype(np.int64), frozen, x),
        "n": (3, np.int32(3), np.float64(3), None, items),
        "c": (1.0, np.float64(1), np.int32(1), True),
        "arrays": (x, np.zeros(1, np.float32)),
    }
    for place, (parameter, values) in enumerate(wrong.items()):
        for value in values:
            with pytest.raises(TypeError, match=f"f, parameter {parameter}: "):
                kernel((1,), (1,), [*right[:place], value, *right[place + 1 :]])
    for args in (right[:-1], [*right, x], []):
        with pytest.raises(TypeError, match=f"f: {len(args)} arguments for 5 parameters"):
            kernel((1,), (1,), args)


def test_an_object_with_a_pointer_is_an_array():
    class Array:
        def __init__(self, held: np.ndarray) -> None:
            self.dtype, self.ctypes_pointer = held.dtype, held.ctypes.data

    x = np.zeros(3, np.float32)
    kernel = compiled(small("x[threadIdx.x] += 1;")).kernel("f")
    kernel((2,), (3,), [Array(x)])
    np.testing.assert_array_equal(x, 2)
    with pytest.raises(TypeError, match="needs an array of float32"):
        kernel((1,), (3,), [Array(np.zeros(3, np.int32))])


@pytest.mark.parametrize(
    ("grid", "block"),
    [((0,), (1,)), ((1, 0), (1,)), ((1, 1 << 16), (1,)), ((1,), (1025,)), ((1,), (64, 32)), ((1,), (0,)), ((), (1,))],
)
def test_launches_that_cuda_refuses(grid, block):
    with pytest.raises(KernelError, match=r"f: a (grid|block) of"):
        run(compiled(small("")), "f", grid, [None], block=block)


def test_more_shared_memory_than_there_is():
    with pytest.raises(KernelError, match="bytes of shared memory"):
        run(compiled(small("")), "f", (1,), [None], shared_mem=49153)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x[-1] *= 2;", "writes outside of x"),
        ("x[1000] = 1;", "writes outside of x"),
        ("const_cast<float*>(y)[0] = 3;", "writes to y, which is const"),
        ("x[0] = y[1000];", "depends on"),
        ("x[0] = threadIdx.x;", "f depends on the order"),
        ("x[0] = blockIdx.x;", "f depends on the order"),
    ],
)
def test_arrays_are_guarded(body, message):
    with pytest.raises(KernelError, match=message):
        arrays = [np.ones(1000, np.float32), np.ones(1000, np.float32)]
        run(compiled(small(body, "float* x, const float* y")), "f", (2,), arrays)


def test_run_leaves_its_arguments_and_knows_them_again():
    x = np.zeros(8, np.float32)
    text = small("if (threadIdx.x == 0) x[0] = y[1] + (z ? 1 : 0), y[2] = 7;", "float* x, float* y, float* z")
    first, second, third = run(compiled(text), "f", (1,), [x, x, None])
    assert first is second
    assert first[2] == 7
    assert third is None
    assert not x.any()


def test_signatures_are_read():
    text = """// extern "C" __global__ void gone(int x) {}
extern "C" __global__ void __launch_bounds__(256) f(const float* __restrict__ x, float* const* y,
    unsigned long long key, /* of all */ const int n)
"""
    assert signatures(text) == {
        "f": [
            Parameter("x", "const float *", "float", pointer=True, constant=True),
            Parameter("y", "float * const *", "float*", pointer=True, constant=False),
            Parameter("key", "unsigned long long", "unsigned long long", pointer=False, constant=False),
            Parameter("n", "const int", "int", pointer=False, constant=False),
        ]
    }


def test_a_text_that_does_not_compile():
    with pytest.raises(KernelError, match=r"kernels:3.*nothing"):
        compiled(small("nothing;"))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # 75 s of a processor, which others want, too
def test_nothing_undefined_happens_in_the_tests_of_all_kernels():
    here = Path(__file__)
    others = [f"--ignore={here.with_name(name)}" for name in (here.name, "test_compile.py")]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *others, here.parent]
    done = subprocess.run(
        [str(word) for word in words],
        env={**os.environ, "KERNELS_SANITIZE": "1"},
        cwd=here.parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=1700,
    )
    assert done.returncode == 0, done.stdout[-3000:]
