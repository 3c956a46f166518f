"""The gradients of a network against finite differences of its loss, in double precision.

The loss is what training minimizes on a batch: the mean error and the sparseness penalty, with masks of dropout and
noise of denoising held fixed. Biases are first moved a little, since a sum of exactly zero lies on the kink of a
rectifier. A difference is (L(p + h) - L(p - h)) / 2 h; where it is far from the gradient for one step h, others are
tried, as a unit may have a kink between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.devices import make_probe
from nnlib.engines import Probe
from nnlib.errors import NnlibError
from nnlib.model.batches import WEIGHTS, generator_for
from nnlib.model.examples import Examples
from nnlib.model.fine_tuning import freeze
from nnlib.model.network import Layout, Network, block_width, count_units, create, layout_of
from nnlib.ops.losses import OPEN, error_of
from nnlib.spec.json_section import show
from nnlib.spec.types import ErrorFunction, LayerKind, NetworkSpec

Floats = NDArray[np.float64]

STEPS = (1e-5, 1e-6, 1e-4)
TOLERANCE = 1e-5
FLOOR = 1e-5  # of the loss: gradients smaller than this are lost in the rounding of their differences
SHIFT = 0.05  # of biases


@dataclass(frozen=True, slots=True)
class ParameterCheck:
    """One array of parameters: how many were checked, and the worst of them."""

    name: str
    parameters: int
    difference: float  # relative: |gradient - numeric| / (|gradient| + |numeric|)
    place: tuple[int, ...]
    gradient: float
    numeric: float


def check_gradients(
    spec: NetworkSpec, examples: Examples, parameters: int = 50, seed: int = 1, tolerance: float = TOLERANCE
) -> list[ParameterCheck]:
    """Return what each array of parameters has, of which up to `parameters` are checked.

    Half of them are drawn from those with a gradient other than zero; layers that are frozen in the first epoch have
    none. Raises NnlibError for a network whose training follows something else than a gradient.
    """
    _refuse(spec, examples)
    random = generator_for(seed, WEIGHTS, 1)
    network = freeze(create(spec, generator_for(seed, WEIGHTS), np.float64), 1)
    for bias in network.biases:
        bias += random.uniform(-SHIFT, SHIFT, bias.shape)
    probe = make_probe(network, examples, seed)
    gradients = probe.gradients()
    floor = FLOOR * abs(probe.loss())
    checked = []
    for name, array in network.arrays():
        if name.endswith(("_mean", "_variance")):
            continue  # statistics, not parameters
        if spec.layers[network.layer_of(name)].name in spec.tuning.frozen(1):
            continue
        gradient = gradients[name].reshape(-1)
        worst: tuple[float, int, float] = (-1.0, 0, 0.0)
        places = _draw(gradient, parameters, random)
        for place in places:
            difference, numeric = _compare(probe, array.reshape(-1), place, float(gradient[place]), floor, tolerance)
            worst = max(worst, (difference, place, numeric))
        title, at = _title(network, name), _place(network, name, np.unravel_index(worst[1], array.shape))
        checked.append(ParameterCheck(title, len(places), worst[0], at, float(gradient[worst[1]]), worst[2]))
    return checked


def _compare(
    probe: Probe, flat: Floats, place: int, gradient: float, floor: float, tolerance: float
) -> tuple[float, float]:
    """Return how far the gradient of one parameter is from its difference, relatively, and that difference."""
    best = (np.inf, 0.0)
    for step in STEPS:
        numeric = _difference(probe, flat, place, step)
        size = max(floor, abs(numeric) + abs(gradient), np.finfo(float).tiny)
        best = min(best, (abs(numeric - gradient) / size, numeric))
        if best[0] <= tolerance:
            break
    return best


def _difference(probe: Probe, flat: Floats, place: int, step: float) -> float:
    kept = flat[place]
    flat[place] = kept + step
    above = probe.loss()
    flat[place] = kept - step
    below = probe.loss()
    flat[place] = kept
    return (above - below) / (2 * step)


def _refuse(spec: NetworkSpec, examples: Examples) -> None:
    """Raise NnlibError where training follows, as in DSSTNE, what is no gradient of the loss."""
    if spec.compat:
        raise NnlibError("with compat dsstne training follows what DSSTNE does, which is not a gradient everywhere")
    for n, layer in enumerate(spec.layers):
        if layer.delta_norm:
            raise NnlibError(
                f"layer {show(layer.name)}: DeltaNorm {layer.delta_norm:g} limits what training follows, then no "
                "gradient; legal: DeltaNorm 0 for the check"
            )
        if layer.kind is not LayerKind.OUTPUT or not error_of(spec, layer).softmax:
            continue
        if spec.error is ErrorFunction.MARGINAL and spec.marginal != OPEN:
            raise NnlibError(
                f"layer {show(layer.name)}: gates and scales of a SoftMax make of its gradient something else; legal "
                "for the check: ScaledMarginalCrossEntropy with oneTarget 1, zeroTarget 0 and both scales 1"
            )
        if examples.sets[n].ignore_zero and spec.error is ErrorFunction.MARGINAL:
            raise NnlibError(
                f"layer {show(layer.name)}: the margins of a SoftMax whose zeros are ignored follow part of its "
                f"gradient; legal for the check: data set {show(layer.data_set)} without SparseIgnoreZero"
            )


def _draw(gradient: Floats, count: int, random: np.random.Generator) -> list[int]:
    some = np.flatnonzero(gradient)
    chosen = random.choice(some, min(len(some), -(-count // 2)), replace=False)
    left = np.setdiff1d(np.arange(gradient.size), chosen)
    more = random.choice(left, min(len(left), count - len(chosen)), replace=False)
    return sorted([*chosen.tolist(), *more.tolist()])


def _title(network: Network, name: str) -> str:
    """Return an array's name for people, such as `weights Input0 -> Hidden1`."""
    spec = network.spec
    kind = name.rstrip("0123456789") if "norm" not in name else "norm"
    if kind == "norm":
        number, _, what = name.removeprefix("norm").partition("_")
        return f"batch norm {what} {spec.layers[int(number)].name}"
    edge = spec.edges[int(name.removeprefix(kind))]
    source, target = spec.layers[edge.source].name, spec.layers[edge.target].name
    return f"{'weights' if kind == 'weights' else 'biases'} {source} -> {target}"


def _place(network: Network, name: str, index: Sequence[Any]) -> tuple[int, ...]:
    """Return where a number of an array is: the unit, or the unit of the source and that of the target."""
    if not name.startswith("weights"):
        return (int(index[0]),)
    spec = network.spec
    edge = spec.edges[int(name.removeprefix("weights"))]
    row, column = int(index[0]), int(index[1])
    layout = layout_of(spec, edge)
    if layout is Layout.BLOCKED:
        block, row = divmod(row, count_units(spec, edge.source))
        return row, column + block * block_width(count_units(spec, edge.target))
    return (column, row) if layout is Layout.BY_OUTPUT else (row, column)
