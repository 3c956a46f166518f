"""Rows so far apart that the number of an entry does not fit into 32 bits: the self-check's cases, moved apart.

The memory is asked for without being reserved, and few pages of it are touched, so that tens of GB cost nothing.
"""

from __future__ import annotations

import mmap
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnlib.gpu.kernels import read_signatures
from nnlib.gpu.runtime import SCALARS
from nnlib.gpu.selfcheck.case import Case
from nnlib.gpu.selfcheck.run import cases
from tests.kernels.library import family

MOST = 1 << 31  # entries that an int can count
NO_RESERVE = 0x4000  # MAP_NORESERVE of mmap(2)
# The matrices whose rows are `ld` floats apart, of every kernel that has such.
APART = {
    "add_bias": ("z",),
    "batch_norm_inference": ("z",),
    "column_sums": ("x",),
    "compare_rows": ("a",),
    "compare_rows_backward": ("delta",),
    "copy_rows": ("from",),
    "exp_parts": ("z",),
    "gather": ("z",),
    "limit_delta": ("delta",),
    "log_sum_exp": ("z",),
    "output_dense": ("z",),
    "output_sparse": ("z",),
    "rowwise_activation": ("z",),
    "rowwise_backward": ("delta", "a"),
    "skip_add": ("z",),
    "softmax": ("z",),
    "to_bf16": ("x",),
    "top": ("scores",),
    "touched_add": ("delta",),
    "touched_squares": ("delta",),
    "touched_update": ("delta",),
}
FLAT = {
    "update": "count",
    "sum_squares": "count",
    "sum_squares_of_rows": "rows",
    "tree_sum": "n",
    "limit_rows": "rows",
    "column_squares": "rows",
    "settle": "rows",
    "max_pool": "rows",
    "average_pool": "rows",
    "max_pool_backward": "rows",
    "average_pool_backward": "rows",
    "response_norm": "count",
    "response_norm_backward": "count",
    "map_norm": "rows",
    "map_norm_inference": "rows",
    "map_norm_backward": "rows",
    "drop_maps": "rows",
    "drop_maps_backward": "rows",
    "mul_maps": "rows",
    "sum_maps": "rows",
    "copy_rows": "rows",
    "maximum": "n",
    "maxout_backward": "n",
}


def far_apart(rows: int, width: int, dtype: Any = np.float32) -> tuple[np.ndarray, int]:
    """Return a matrix of zeros whose last rows start beyond MOST entries, and how far apart its rows are."""
    apart = -(-MOST // (rows - 1) // 4) * 4 + 4
    room = mmap.mmap(-1, rows * apart * 4, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    whole: np.ndarray = np.frombuffer(room, dtype).reshape(rows, apart)
    return whole[:, :width], apart


def launch(case: Case) -> None:
    signature = read_signatures()[case.kernel]
    pairs = zip(signature.parameters, case.ordered, strict=True)
    values = [_pointer(value) if kind.endswith("*") else SCALARS[kind](value) for (_, kind), value in pairs]
    family(signature.family).kernel(case.kernel)(case.grid, (256,), values)


def _pointer(array: np.ndarray | None) -> Any:
    return None if array is None else SimpleNamespace(ctypes_pointer=array.ctypes.data, dtype=array.dtype)


def moved(case: Case, names: tuple[str, ...], stride: str) -> Case:
    """Return a case whose arrays of these names have rows far apart."""
    given = dict(case.arguments)
    for name in names:
        place, given[stride] = far_apart(*case.arguments[name].shape)
        place[...] = case.arguments[name]
        given[name] = place
    wanted = {name: values if name not in names else np.asarray(values) for name, values in case.wanted.items()}
    return replace(case, arguments=given, wanted=wanted)


def copied(case: Case) -> Case:
    """Return a case whose arrays a launch may write to."""
    arrays = {name: np.array(value) for name, value in case.arguments.items() if isinstance(value, np.ndarray)}
    return replace(case, arguments={**case.arguments, **arrays})


CASES = list(cases())


def first_of(kernel: str) -> Case:
    return copied(next(case for case in CASES if case.kernel == kernel))


def test_every_kernel_with_rows_apart_is_here():
    found = {name for name, one in read_signatures().items() if ("ld", "int") in one.parameters}
    assert found == set(APART)


@pytest.mark.parametrize("kernel", APART)
def test_rows_beyond_the_reach_of_an_int(kernel):
    case = moved(first_of(kernel), APART[kernel], "ld")
    launch(case)
    assert case.differences(case.arguments) == []


@pytest.mark.parametrize(("kernel", "name"), [("gather", "w"), ("touched_add", "gradient")])
def test_weights_beyond_the_reach_of_an_int(kernel, name):
    case = moved(first_of(kernel), (name,), "row_stride")
    launch(case)
    assert case.differences(case.arguments) == []


@pytest.mark.parametrize("kernel", ["touched_update", "settle"])
def test_touched_rows_beyond_the_reach_of_an_int(kernel):
    """The batch touches rows behind MOST weights, which nobody else has."""
    case = next(case for case in CASES if case.kernel == kernel and case.arguments["state1"] is not None)
    given = case.arguments
    units, n = given["w"].shape
    before = MOST // n + 1
    batch = given["batch"].copy()
    start, count = batch[given["rows_at"]], batch[given["count_at"]]
    batch[start : start + count] += before
    arrays = {}
    for name in ("w", "state0", "state1", "last"):
        width = n if given[name].ndim == 2 else 1
        room = mmap.mmap(-1, (before + units) * width * 4, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
        whole: np.ndarray = np.frombuffer(room, given[name].dtype)
        whole[before * width :] = given[name].ravel()
        arrays[name] = whole
    moved_away = {**given, **arrays, "batch": batch}
    if "rows" in given:
        moved_away["rows"] = before + units
    launch(replace(case, arguments=moved_away))
    found = {name: whole[-given[name].size :].reshape(given[name].shape) for name, whole in arrays.items()}
    assert case.differences({**given, **found}) == []


def test_counts_of_whole_arrays_have_64_bits():
    elementwise = {name: "n" for name, one in read_signatures().items() if one.family == "elementwise"}
    for kernel, name in {**FLAT, **elementwise}.items():
        if kernel != "multi_mul_c":  # it has an array of sizes
            assert (name, "long long") in read_signatures()[kernel].parameters, kernel
