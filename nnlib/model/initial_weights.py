"""How weights start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnlib.spec.types import Scheme, WeightInit


def initial_weights(
    init: WeightInit,
    shape: tuple[int, int],
    random: np.random.Generator,
    compat: bool = False,
    fans: tuple[int, int] | None = None,
) -> NDArray[np.float32]:
    """Return weights of `shape` for a scheme of DSSTNE, with S = Scale and `fans` (in, out), the shape unless given.

    Xavier: uniform in +-S sqrt(6 / (in + out)), as Glorot and Bengio (2010) have it; CaffeXavier: uniform in
    +-S sqrt(3 / out); Uniform: uniform in +-S; Gaussian: S times a standard normal; UnitBall: uniform in (0, S];
    SELU: a normal of variance 1 / in (Klambauer et al. 2017); Constant: S.

    With `compat`, as DSSTNE has it: half of Xavier, SELU with a standard deviation of 1 / in, Constant -S.
    """
    inputs, outputs = fans or shape
    scale = np.float32(init.scale)
    if init.scheme is Scheme.CONSTANT:
        return np.full(shape, -scale if compat else scale)
    if init.scheme in (Scheme.GAUSSIAN, Scheme.SELU):
        normal = random.standard_normal(shape, dtype=np.float32)
        if init.scheme is Scheme.SELU:
            scale = np.float32(1 / inputs if compat else inputs**-0.5)
        normal *= scale
        return normal
    uniform = random.random(shape, dtype=np.float32)  # in [0, 1)
    if init.scheme is Scheme.UNIT_BALL:
        np.subtract(1, uniform, out=uniform)
        uniform *= scale
        return uniform
    span = {
        Scheme.XAVIER: np.sqrt(6 / (inputs + outputs)) / (2 if compat else 1),
        Scheme.CAFFE_XAVIER: np.sqrt(3 / outputs),
        Scheme.UNIFORM: 1.0,
    }[init.scheme]
    uniform *= 2
    uniform -= 1
    uniform *= scale * np.float32(span)
    return uniform
