"""Convolutions as a GPU does them, unfolded piece by piece and straight, against the reference."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from nnlib.gpu.backend import Gpu
from nnlib.gpu.maps import convolution
from nnlib.gpu.maps.convolution import Convolutions, is_unfolded
from nnlib.gpu.maps.sweeps import Sweeps
from nnlib.ops import convolution as twin
from nnlib.spec.geometry import Sweep, Window
from tests.nnlib.sweeps import sweep_over

EXAMPLES = 7
TOLERANCE = 1e-4
WIDE = Window(6, 3, 1, 1, 1)
SWEEPS = {
    "unfolded": sweep_over((WIDE, Window(5, 3, 2, 0, 1)), 5, 17),
    "unfolded groups": sweep_over((WIDE, WIDE), 8, 34, groups=2),
    "a row": sweep_over((Window(20, 3, 2, 1, 1),), 20, 20),
    "few maps": sweep_over((WIDE, WIDE), 3, 5),
    "many groups": sweep_over((Window(5, 2, 1, 1, 0),), 18, 18, groups=9),
    "depthwise": sweep_over((WIDE, Window(5, 3, 2, 1, 1)), 9, 9, groups=9),
    "wide filters of few maps": sweep_over((Window(4, 3, 1, 1, 1),), 60, 3),
}
UNFOLDED = ("unfolded", "unfolded groups", "a row")


def made(gpu: Gpu, sweep: Sweep) -> tuple[Any, Convolutions]:
    runtime = gpu._runtime
    multiply = partial(runtime.multiply, scale=1.0, precision="float32")

    def rounded(*args: Any, rounded: bool = True, **keys: Any) -> None:
        multiply(*args, **keys)

    return runtime, Convolutions(runtime, rounded, Sweeps(runtime), [sweep], EXAMPLES, True, "float32")


def arrays(sweep: Sweep, examples: int) -> list[np.ndarray]:
    random = np.random.default_rng(1)
    shapes = (examples, sweep.source.units), (sweep.target.channels, sweep.fan_in), (examples, sweep.target.units)
    return [random.standard_normal(shape, np.float32) for shape in (*shapes, (sweep.target.channels,))]


@pytest.mark.parametrize("room", [16 << 20, 2500], ids=["at once", "in pieces"])
@pytest.mark.parametrize("examples", [EXAMPLES, 2])
@pytest.mark.parametrize("name", SWEEPS)
def test_all_three(gpu, name, examples, room, monkeypatch):
    sweep = SWEEPS[name]
    monkeypatch.setattr(convolution, "ROOM", max(room, sweep.source.channels * sweep.volume * sweep.target.area + 3000))
    require_all_three(gpu, sweep, examples)


def require_all_three(gpu: Gpu, sweep: Sweep, examples: int) -> None:
    """Assert that what goes forward and both gradients are the reference's, set and added."""
    runtime, convolutions = made(gpu, sweep)
    hosts = arrays(sweep, examples)
    x, w, delta, bias = hosts
    places = [runtime.zeros(host.shape) for host in hosts]

    def sent() -> list[Any]:
        for place, host in zip(places, hosts, strict=True):
            runtime.upload(place, host)
        return places

    for add in (False, True):
        on_x, on_w, on_delta, on_bias = sent()
        convolutions.forward(on_x, on_w, on_bias, on_delta, sweep, add=add, rounded=True)
        wanted = twin.forward(x, w, sweep) + np.repeat(bias, sweep.target.area) + add * delta
        np.testing.assert_allclose(runtime.download(on_delta), wanted, atol=TOLERANCE, rtol=0)
        on_x, on_w, on_delta, on_bias = sent()
        convolutions.input_gradient(on_delta, on_w, on_x, sweep, add=add)
        wanted = twin.input_gradient(delta, w, sweep) + add * x
        np.testing.assert_allclose(runtime.download(on_x), wanted, atol=TOLERANCE, rtol=0)
        on_x, on_w, on_delta, on_bias = sent()
        convolutions.weight_gradient(on_x, on_delta, on_w, sweep, add=add)
        wanted = twin.weight_gradient(x, delta, sweep) + add * w
        np.testing.assert_allclose(runtime.download(on_w), wanted, atol=TOLERANCE, rtol=0)


def of_maps(side: int, kernel: int, channels: int, targets: int, groups: int = 1) -> Sweep:
    window = Window(side, kernel, 1, kernel // 2, kernel // 2)
    return sweep_over((window, window), channels, targets, groups=groups)


@pytest.mark.parametrize(
    ("sweep", "most"),
    [(of_maps(32, 7, 3, 8), 256), (of_maps(8, 3, 50, 50, 10), 256), (of_maps(28, 3, 1, 32), 700)],
    ids=["few maps", "groups", "grey"],
)
def test_the_parts_of_a_weight_gradient_have_room_in_every_batch(cupy, sweep, most):
    runtime = Gpu(cupy.runtime())._runtime
    room = Convolutions(runtime, None, Sweeps(runtime), [sweep], most, True, "float32")._parts.size  # type: ignore[arg-type]
    weights = sweep.target.channels * sweep.fan_in
    needed = [convolution._parts(sweep, size)[0] * weights for size in range(1, most + 1)]
    assert convolution._has_parts(sweep) and max(needed) == room > needed[-1]
    assert not Convolutions(runtime, None, Sweeps(runtime), [sweep], most, False, "float32")._parts.size  # type: ignore[arg-type]


def test_a_block_counts_the_steps_of_its_sum_in_an_int():
    sweep = sweep_over((Window(331, 1), Window(151, 1)), 1, 8)  # 2^31 - 2 is a multiple of these places
    _, each = convolution._parts(sweep, 1 << 26)
    depth = each * sweep.target.area
    assert depth > (1 << 31) - (1 << 17) and -(-depth // 16) * 16 < 1 << 31


def test_what_is_unfolded(monkeypatch):
    assert [name for name, sweep in SWEEPS.items() if is_unfolded(sweep)] == list(UNFOLDED)
    sweep = SWEEPS["unfolded"]
    one = sweep.source.channels * sweep.volume * sweep.target.area + sweep.target.units
    monkeypatch.setattr(convolution, "ROOM", one)
    assert is_unfolded(sweep)
    monkeypatch.setattr(convolution, "ROOM", one - 1)
    assert not is_unfolded(sweep), "one example must fit"


def test_pieces_are_multiples_of_eight_examples_where_they_can_be(monkeypatch):
    sweep = SWEEPS["unfolded"]
    one = sweep.source.channels * sweep.volume * sweep.target.area + sweep.target.units
    for room, wanted in [(20 * one, [(0, 16), (16, 4)]), (7 * one, [(0, 7), (7, 7), (14, 6)]), (99 * one, [(0, 20)])]:
        monkeypatch.setattr(convolution, "ROOM", room)
        assert list(convolution._pieces(sweep, 20)) == wanted
