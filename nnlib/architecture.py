"""What a network is: a chain of layers with DSSTNE's names for everything, as frozen dataclasses.

Standard library only, because the manager reads networks too.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class LayerKind(enum.StrEnum):
    """Where a layer stands."""

    INPUT = "Input"
    HIDDEN = "Hidden"
    OUTPUT = "Output"


class Activation(enum.StrEnum):
    """What a unit makes of its weighted sum."""

    SIGMOID = "Sigmoid"
    TANH = "Tanh"
    RELU = "Relu"
    LINEAR = "Linear"
    SOFTMAX = "SoftMax"


class ErrorFunction(enum.StrEnum):
    """What training minimizes."""

    CROSS_ENTROPY = "CrossEntropy"
    MARGINAL = "ScaledMarginalCrossEntropy"


class Scheme(enum.StrEnum):
    """How weights start; `ops.initial_weights` has the formulas."""

    XAVIER = "Xavier"
    CAFFE_XAVIER = "CaffeXavier"
    GAUSSIAN = "Gaussian"
    UNIFORM = "Uniform"
    UNIT_BALL = "UnitBall"
    CONSTANT = "Constant"


@dataclass(frozen=True, slots=True)
class WeightInit:
    """How the weights and biases of the edge into a layer start."""

    scheme: Scheme = Scheme.XAVIER
    scale: float = 1.0
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; `units` is None for `"N": "auto"`, which takes the width of the data set."""

    name: str
    kind: LayerKind
    units: int | None
    data_set: str = ""
    sparse: bool = False
    activation: Activation = Activation.SIGMOID
    dropout: float = 0.0
    init: WeightInit = WeightInit()


@dataclass(frozen=True, slots=True)
class Marginal:
    """Targets and scales of ScaledMarginalCrossEntropy."""

    one_target: float = 0.9
    zero_target: float = 0.1
    one_scale: float = 1.0
    zero_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A chain of layers: one Input, at least one Hidden, one Output."""

    layers: tuple[Layer, ...]
    name: str = ""
    kind: str = "FeedForward"
    error: ErrorFunction = ErrorFunction.CROSS_ENTROPY
    marginal: Marginal = Marginal()
    denoising: float = 0.0
    shuffle: bool = True
