"""Maps and windows: how kernels move, by hand and by counting."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nnlib.model.network import create
from nnlib.spec.geometry import Maps, Window, sweep_of, usual_window
from nnlib.spec.network import parse_network
from nnlib.spec.sizes import resolve_sizes

SMALL = st.integers(1, 9)


def count_places(window):
    """Count the starts of the kernel that leave it inside of the padded axis, one by one."""
    starts, start = 0, -window.low
    while start + window.dilation * (window.kernel - 1) < window.size + window.high:
        starts, start = starts + 1, start + window.stride
    return starts


@given(st.builds(Window, SMALL, SMALL, SMALL, st.integers(0, 5), st.integers(0, 5), st.integers(1, 3)))
def test_a_window_has_as_many_places_as_are_counted(window):
    assert max(window.out, 0) == count_places(window)


@given(SMALL, SMALL, SMALL)
def test_windows_without_padding_are_dsstnes(size, kernel, stride):
    window = usual_window(size, kernel, stride)
    wanted = 1 if size <= kernel else size if stride == 1 else (size - kernel) // stride + 1
    low = (kernel - size + 1) // 2 if size <= kernel else kernel // 2 if stride == 1 else 0
    assert (window.out, window.low) == (wanted, low)
    assert window.out == count_places(window)


def test_axes_of_a_kernel_are_x_first_in_the_layer_and_last_in_the_sweep():
    raw = {"Layers": [{"N": [9, 5, 2], "DataSet": "a"}, None, {"N": 1, "DataSet": "b"}]}
    raw["Layers"][1] = {"Type": "Convolutional", "N": 4, "Kernel": [3, 1], "KernelStride": [2, 1], "Padding": [[1, 0]]}
    spec = resolve_sizes(parse_network(raw, "n"), "n")
    sweep = sweep_of(spec, 0, 1)
    assert sweep.windows == (Window(5, 1, 1, 0, 0), Window(9, 3, 2, 1, 0))
    assert (sweep.target, spec.layers[1].dimensions) == (Maps(4, (5, 4)), (4, 5, 4))


def test_parameters_of_a_convolutional_network():
    raw = {"Layers": [{"N": [6, 6], "DataSet": "a"}, None, {"N": 3, "DataSet": "b"}]}
    raw["Layers"][1] = {"Type": "Convolutional", "N": 4, "Kernel": [3, 3], "BatchNormalization": True}
    network = create(resolve_sizes(parse_network(raw, "n"), "n"), np.random.default_rng(1))
    assert [network.stores[n].shape for n in (0, 1)] == [(4, 9), (3, 144)]
    assert (network.biases[0].shape, network.norms[1].scale.shape) == ((4,), (4,))
    assert network.parameters == 4 * 9 + 4 + 8 + 144 * 3 + 3
