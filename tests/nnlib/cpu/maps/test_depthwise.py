"""Convolutions of each channel by itself against the reference, and what they read and write: nothing beside maps."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.compiled import loops
from nnlib.cpu.maps.convolution import Unfolded
from nnlib.cpu.maps.depthwise import Depthwise
from nnlib.ops import convolution
from nnlib.spec.geometry import Sweep, Window
from nnlib.util.arrays import Floats
from nnlib.util.threads import Each, map_in_turn, workers
from tests.nnlib.sweeps import arrays_of, sweep_over

GUARDED = """
import ctypes, mmap
import numpy as np
from nnlib.compiled import loops
from nnlib.cpu.maps.convolution import Unfolded
from nnlib.cpu.maps.depthwise import Depthwise
from nnlib.spec.geometry import Maps, Sweep, Window
from nnlib.util.threads import map_in_turn

PAGE, libc, maps = mmap.PAGESIZE, ctypes.CDLL(None, use_errno=True), []

def between_pages_that_nobody_may_read(shape, at_end):
    size = 4 * int(np.prod(shape))
    room = -(-size // PAGE) * PAGE
    memory = mmap.mmap(-1, room + 2 * PAGE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (begin, begin + PAGE + room):
        assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
    maps.append(memory)
    offset = PAGE + (room - size if at_end else 0)
    array = np.frombuffer(memory, np.float32, size // 4, offset).reshape(shape)
    array[...] = 1
    return array

kind = Depthwise(loops, Unfolded())
cases = [(3, 1, 7, 1), (3, 2, 9, 1), (5, 1, 16, 2), (5, 2, 33, 0), (7, 2, 8, 3), (3, 2, 3, 0)]
for kernel, stride, size, padding in cases:
    window = Window(size, kernel, stride, padding, padding)
    sweep = Sweep(Maps(2, (size, size)), Maps(2, (window.out, window.out)), (window, window), 2)
    for at_end in (False, True):
        x, w, delta = (
            between_pages_that_nobody_may_read(shape, at_end)
            for shape in ((2, sweep.source.units), (2, kernel * kernel), (2, sweep.target.units))
        )
        kind.forward(x, w, sweep, map_in_turn)
        kind.input_gradient(delta, w, sweep, map_in_turn)
        kind.weight_gradient(x, delta, sweep, map_in_turn)
print("as it should be")
"""


class Nobody:
    """What is not asked."""

    def forward(self, x: Floats, w: Floats, sweep: Sweep, each: Each) -> Floats:
        raise AssertionError("asked")

    input_gradient = weight_gradient = forward


@st.composite
def depthwise(draw: st.DrawFn, stride: int = 2) -> Sweep:
    """Give sweeps of square kernels of one channel each: rows of any stride, narrow and wide, uneven padding."""
    kernel = draw(st.sampled_from([3, 5, 7]))
    windows = []
    for most, strides, sizes in ((7, min(3, 2 * stride - 1), 9), (stride, stride, 70)):
        dilation, low, high = draw(st.integers(1, 3)), draw(st.integers(0, 4)), draw(st.integers(0, 4))
        least = max(1, dilation * (kernel - 1) + 1 - low - high)
        size = least + draw(st.integers(0, sizes))
        windows.append(Window(size, kernel, draw(st.integers(1, min(most, strides))), low, high, dilation))
    channels = draw(st.integers(2, 5))
    return sweep_over(tuple(windows), channels, channels, channels)


def parts(kind: Depthwise, sweep: Sweep, arrays: tuple[Floats, Floats, Floats], each: Each = map_in_turn):
    x, w, delta = arrays
    found = {"forward": kind.forward(x, w, sweep, each), "weights": kind.weight_gradient(x, delta, sweep, each)}
    if all(window.stride == 1 for window in sweep.windows):
        found["input"] = kind.input_gradient(delta, w, sweep, each)
    return found


def reference(sweep: Sweep, arrays: tuple[Floats, Floats, Floats]):
    x, w, delta = (array.astype(np.float64) for array in arrays)
    return {
        "forward": convolution.forward(x, w, sweep),
        "weights": convolution.weight_gradient(x, delta, sweep),
        "input": convolution.input_gradient(delta, w, sweep),
    }


@settings(deadline=None)
@given(sweep=depthwise(), examples=st.integers(0, 3))
def test_it_is_the_reference(sweep, examples):
    arrays = arrays_of(sweep, examples, dtype=np.float32)
    wanted = reference(sweep, arrays)
    for name, found in parts(Depthwise(loops, Nobody()), sweep, arrays).items():
        scale = max(1, np.abs(wanted[name]).max(initial=0))
        np.testing.assert_allclose(found, wanted[name], rtol=0, atol=3e-6 * scale)
        assert found.dtype == np.float32


@settings(deadline=None)
@given(sweep=depthwise(stride=1), examples=st.integers(1, 3))
def test_the_gradient_of_a_source_with_strides_of_one(sweep, examples):
    arrays = arrays_of(sweep, examples, dtype=np.float32)
    found, wanted = parts(Depthwise(loops, Nobody()), sweep, arrays), reference(sweep, arrays)
    np.testing.assert_allclose(found["input"], wanted["input"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("channels", [2, 9, 40])
@pytest.mark.parametrize("stride", [1, 2])
def test_threads_do_not_change_the_bits(channels, stride):
    sweep = sweep_over((Window(19, 3, stride, 1, 1),) * 2, channels, channels, channels)
    arrays = arrays_of(sweep, 19, dtype=np.float32)
    found = []
    for threads in (1, 2, 3, 8):
        with workers(threads) as each:
            results = parts(Depthwise(loops, Unfolded()), sweep, arrays, each)
            found.append({name: part.tobytes() for name, part in results.items()})
    assert all(other == found[0] for other in found)


@settings(deadline=None, max_examples=30)
@given(sweep=depthwise())
def test_what_lies_beside_the_maps_is_neither_used_nor_written(sweep):
    arrays = arrays_of(sweep, 2, dtype=np.float32)
    wanted = parts(Depthwise(loops, Nobody()), sweep, arrays)
    framed = []
    for array in arrays:
        wide = np.full((len(array) + 2, array.shape[1]), np.nan, np.float32)
        wide[1:-1] = array
        framed.append(wide[1:-1])
    found = parts(Depthwise(loops, Nobody()), sweep, tuple(framed))
    assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)
    assert np.isnan(framed[0].base[0]).all() and np.isnan(framed[0].base[-1]).all()


def test_a_maps_neighbours_keep_what_they_have():
    seen = []

    class Framed:
        LANES = loops.LANES

        def sweep_maps(self, x, w, maps, way, bits, numbers, out):
            wide = np.full((len(out) + 2, out.shape[1]), 7, np.float32)
            loops.sweep_maps(x, w, maps, way, bits, numbers, wide[1:-1])
            assert (wide[[0, -1]] == 7).all()
            assert (wide[1 : 1 + maps[0]] == 7).all() and (wide[1 + maps[1] :] == 7).all()
            seen.append(maps)

    sweep = sweep_over((Window(13, 3, 1, 1, 1),) * 2, 5, 5, 5)
    x, w, _ = arrays_of(sweep, 4, dtype=np.float32)
    Depthwise(Framed(), Nobody()).forward(x, w, sweep, map_in_turn)  # type: ignore[arg-type]
    assert len(seen) == 8 and [low for low, _ in seen[1:]] == [high for _, high in seen[:-1]]


def test_nothing_is_read_where_there_is_no_memory():
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "as it should be\n"), done.stderr


@pytest.mark.parametrize(
    "sweep",
    [
        sweep_over((Window(9, 3), Window(9, 3)), 6, 6, 3),
        sweep_over((Window(9, 3), Window(9, 3)), 6, 12, 6),
        sweep_over((Window(9, 3), Window(9, 3)), 1, 1),
        sweep_over((Window(9, 4), Window(9, 4)), 6, 6, 6),
        sweep_over((Window(9, 3), Window(9, 5)), 6, 6, 6),
        sweep_over((Window(9, 3), Window(9, 3, 3)), 6, 6, 6),
        sweep_over((Window(9, 3),), 6, 6, 6),
        sweep_over((Window(9, 3),) * 3, 6, 6, 6),
    ],
)
def test_others_compute_what_is_not_of_one_channel_and_square(sweep):
    arrays = arrays_of(sweep, 2, dtype=np.float32)
    with pytest.raises(AssertionError, match="asked"):
        parts(Depthwise(loops, Nobody()), sweep, arrays)
    found, wanted = parts(Depthwise(loops, Unfolded()), sweep, arrays), parts(Unfolded(), sweep, arrays)
    assert all(found[name].tobytes() == wanted[name].tobytes() for name in wanted)
