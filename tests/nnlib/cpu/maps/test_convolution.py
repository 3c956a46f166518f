"""Fast convolutions against the reference, and the same bits on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.compiled import loops
from nnlib.cpu.maps import convolution as fast
from nnlib.cpu.maps.convolution import Convolutions, Unfolded, bands
from nnlib.cpu.maps.depthwise import Depthwise
from nnlib.cpu.maps.tiled import Tiled
from nnlib.ops import convolution
from nnlib.spec.geometry import Maps, Sweep, Window
from nnlib.util.threads import map_in_turn, workers
from tests.nnlib.sweeps import arrays_of, sweep_over, sweeps

KINDS = {"numpy": Unfolded(), "tiles": Tiled(loops), "chosen": fast.convolutions_of(np.float32)}


def square(size: int, kernel: int, stride: int = 1, padding: int = 0) -> tuple[Window, Window]:
    return (Window(size, kernel, stride, padding, padding),) * 2


LARGER = {
    "images": sweep_over(square(70, 7, 2, 3), 3, 40),
    "small maps": sweep_over(square(7, 3, 1, 1), 70, 90),
    "rows of 13": sweep_over(square(13, 3, 1, 1), 40, 64),
    "of two groups": sweep_over(square(15, 3, 2, 1), 64, 128, groups=2),
    "a volume of many": sweep_over((Window(3, 2), *square(14, 3, 1, 1)), 26, 60),
    "places alone": sweep_over(square(14, 1), 64, 72),
    "as they are": sweep_over(square(28, 1), 70, 72),
    "every other place": sweep_over(square(14, 1, 2), 64, 24),
    "of each channel": sweep_over(square(19, 3, 1, 1), 48, 48, groups=48),
    "of some": sweep_over(square(19, 3, 2, 1), 24, 48, groups=6),
    "a signal": sweep_over((Window(3000, 9, 1, 8, 0, 2),), 5, 9),
    "a volume": sweep_over((Window(6, 3, 1, 1, 1), *square(11, 3, 2, 1)), 6, 10),
    "no maps": Sweep(Maps(70, ()), Maps(50, ()), ()),
}


def results(kind: Convolutions, sweep: Sweep, arrays: tuple[np.ndarray, ...], each=map_in_turn) -> list[np.ndarray]:
    x, w, delta = arrays
    return [
        kind.forward(x, w, sweep, each),
        kind.input_gradient(delta, w, sweep, each),
        kind.weight_gradient(x, delta, sweep, each),
    ]


def results_on(threads: int, kind: Convolutions, sweep: Sweep, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    with workers(threads) as each:
        return results(kind, sweep, arrays, each)


def reference(sweep: Sweep, arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    x, w, delta = (array.astype(np.float64) for array in arrays)
    return [
        convolution.forward(x, w, sweep),
        convolution.input_gradient(delta, w, sweep),
        convolution.weight_gradient(x, delta, sweep),
    ]


def assert_rounded(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    """Within some roundings of float32 of the largest number."""
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == np.float32
        np.testing.assert_allclose(one, other, rtol=0, atol=3e-6 * max(1, np.abs(other).max(initial=0)))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(deadline=None)
@given(sweep=sweeps(), examples=st.sampled_from([1, 2, 3, 5]))
def test_it_is_the_reference(kind, sweep, examples):
    arrays = arrays_of(sweep, examples, dtype=np.float32)
    assert_rounded(results(kind, sweep, arrays), reference(sweep, arrays))


@pytest.mark.parametrize("sweep", LARGER.values(), ids=LARGER)
@pytest.mark.parametrize("examples", [1, 5, 19])
def test_larger_ones_are_the_reference_on_any_number_of_threads(sweep, examples):
    arrays = arrays_of(sweep, examples, dtype=np.float32)
    wanted = reference(sweep, arrays)
    for name, kind in KINDS.items():
        if name == "chosen" and sweep.groups == 1:
            continue  # these are the tiles
        first, *others = (results_on(threads, kind, sweep, arrays) for threads in (1, 2, 3, 8))
        assert_rounded(first, wanted)
        assert all(
            one.tobytes() == other.tobytes() for found in others for one, other in zip(first, found, strict=True)
        )


@settings(deadline=None)
@given(sweep=sweeps())
def test_bands_are_the_whole(sweep):
    arrays = arrays_of(sweep, 2, dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast, "UNFOLDED", 40)
        bands.cache_clear()
        found = results(Unfolded(), sweep, arrays)
    bands.cache_clear()
    assert_rounded(found, reference(sweep, arrays))


@given(st.sampled_from(list(LARGER.values())))
def test_double_precision_stays(sweep):
    arrays = arrays_of(sweep, 1)
    both = results(fast.convolutions_of(np.float64), sweep, arrays), reference(sweep, arrays)
    for found, wanted in zip(*both, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


def test_without_numba_numpy_computes(monkeypatch):
    monkeypatch.setattr(loops, "MASKED", True)
    assert isinstance(fast.convolutions_of(np.float32), Depthwise)
    monkeypatch.setattr(loops, "MASKED", False)
    assert isinstance(fast.convolutions_of(np.float32), Tiled)
    assert isinstance(fast.convolutions_of(np.float64), Unfolded)
    monkeypatch.setattr(fast, "LOOPS", None)
    assert isinstance(fast.convolutions_of(np.float32), Unfolded)
