"""What a network is: layers and the edges between them with DSSTNE's names for everything, as frozen dataclasses.

Standard library only, because the manager reads networks too.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property


class LayerKind(enum.StrEnum):
    """Where a layer stands."""

    INPUT = "Input"
    HIDDEN = "Hidden"
    OUTPUT = "Output"


class LayerType(enum.StrEnum):
    """How a layer is computed of its sources."""

    FULLY_CONNECTED = "FullyConnected"
    CONVOLUTIONAL = "Convolutional"
    POOLING = "Pooling"


class Activation(enum.StrEnum):
    """What a unit makes of its weighted sum; `activations` has the formulas. Its name, and its number in model files.

    Those up to 12 are DSSTNE's, which also has a 4 that trains nothing. `kernels/names.cuh` has the same order.
    """

    SIGMOID = "Sigmoid", 0
    TANH = "Tanh", 1
    RELU = "Relu", 2
    LINEAR = "Linear", 3
    LEAKY_RELU = "LeakyRectifiedLinear", 11
    ELU = "ExponentialLinear", 10
    SELU = "ScaledExponentialLinear", 12
    SOFTMAX = "SoftMax", 7
    SOFTPLUS = "SoftPlus", 5
    SOFTSIGN = "SoftSign", 6
    RELU_MAX = "RELUMax", 8
    LINEAR_MAX = "LinearMax", 9
    RELU6 = "Relu6", 13

    code: int

    def __new__(cls, name: str, code: int) -> Activation:
        """Make a member that is its name, and has a number beside it."""
        member = str.__new__(cls, name)
        member._value_, member.code = name, code
        return member


class ErrorFunction(enum.StrEnum):
    """What training minimizes; `losses` has the formulas."""

    L1 = "L1"
    L2 = "L2"
    L2_HINGE = "L2Hinge"
    HINGE = "Hinge"
    CROSS_ENTROPY = "CrossEntropy"
    MARGINAL = "ScaledMarginalCrossEntropy"
    DATA_MARGINAL = "DataScaledMarginalCrossEntropy"


class Scheme(enum.StrEnum):
    """How weights start; `initial_weights.initial_weights` has the formulas."""

    XAVIER = "Xavier"
    CAFFE_XAVIER = "CaffeXavier"
    GAUSSIAN = "Gaussian"
    UNIFORM = "Uniform"
    UNIT_BALL = "UnitBall"
    CONSTANT = "Constant"
    SELU = "SELU"


class PoolingFunction(enum.StrEnum):
    """What a pooling layer computes."""

    MAX = "Max"
    AVERAGE = "Average"
    LRN = "LRN"
    MAXOUT = "Maxout"
    DOT_PRODUCT = "DotProduct"
    COSINE = "Cosine"
    STOCHASTIC = "Stochastic"
    LCN = "LCN"
    GLOBAL_TEMPORAL = "GlobalTemporal"
    SUM = "Sum"
    PRODUCT = "Product"
    CONCATENATE = "Concatenate"
    GLOBAL_MAX = "GlobalMax"
    GLOBAL_AVERAGE = "GlobalAverage"


@dataclass(frozen=True, slots=True)
class WeightInit:
    """How the weights and biases of the edges into a layer start."""

    scheme: Scheme = Scheme.XAVIER
    scale: float = 1.0
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class SharedWeights:
    """The edge from `source` uses the weights of the edge from `owner_source` to `owner_target`; biases are its own."""

    source: str
    owner_source: str
    owner_target: str
    transposed: bool = False


@dataclass(frozen=True, slots=True)
class Sparseness:
    """Pulls the mean activation of each unit towards p with force beta; off when beta is 0."""

    p: float = 0.0
    beta: float = 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer; `units` is None for `"N": "auto"`, which takes the width of the data set, and for convolutional and
    pooling layers, whose size follows from their sources.

    `dimensions` is N as the file has it, (Nx,) up to (Nx, Ny, Nz, Nw), empty for "auto"; their product is `units`
    except for a convolutional layer, whose N is the number of its maps. Once `sizes.resolve_sizes` has been there,
    they are what the layer has, the channels last. Kernel, stride, dilation and padding have the axes x, y, z.
    """

    name: str
    kind: LayerKind
    units: int | None
    type: LayerType = LayerType.FULLY_CONNECTED
    dimensions: tuple[int, ...] = ()
    data_set: str = ""
    sparse: bool = False
    sources: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()
    shared: tuple[SharedWeights, ...] = ()
    activation: Activation = Activation.SIGMOID
    slope: float = 0.01  # of LeakyRectifiedLinear below zero
    alpha: float = 1.0  # of ExponentialLinear and ScaledExponentialLinear
    selu_lambda: float = 1.050701
    dropout: float = 0.0
    batch_norm: bool = False
    sparseness: Sparseness = Sparseness()  # the network's p or beta where its own is 0
    weight_norm: float = 0.0
    delta_norm: float = 0.0
    init: WeightInit = WeightInit()
    function: PoolingFunction | None = None
    kernel: tuple[int, ...] = ()  # empty: 1 on every axis
    stride: tuple[int, ...] = ()
    padding: tuple[tuple[int, int], ...] | None = None  # before and behind each axis; None: DSSTNE's rule
    dilation: tuple[int, ...] = ()
    groups: int = 1  # of channels, each convolved by itself
    drop_channels: bool = False  # dropout takes whole maps


@dataclass(frozen=True, slots=True)
class Marginal:
    """Targets and scales of the marginal cross entropies."""

    one_target: float = 0.9
    zero_target: float = 0.1
    one_scale: float = 1.0
    zero_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Boost:
    """What the error of units with a target other than zero, and of those with zero, is multiplied by."""

    one: float = 1.0
    zero: float = 1.0


@dataclass(frozen=True, slots=True)
class LocalResponse:
    """Constants of local response normalization: y = x / (k + alpha / n sum x^2)^beta."""

    k: float = 2.0
    n: int = 5
    alpha: float = 1e-4
    beta: float = 0.75


@dataclass(frozen=True, slots=True)
class FineTuning:
    """How a network that starts from a trained one is trained, by the names of layers with weights."""

    freeze: tuple[str, ...] = ()  # their weights, biases and batch normalization stay as they are
    rates: tuple[tuple[str, float], ...] = ()  # (layer, what its learning rate is multiplied by)
    replace: tuple[str, ...] = ()  # drawn anew, whatever the trained network has of them
    unfreeze_at: int = 0  # epoch from which frozen layers learn; 0: never

    def frozen(self, epoch: int) -> tuple[str, ...]:
        """Return the layers that do not learn in an epoch, counted from 1."""
        return () if 0 < self.unfreeze_at <= epoch else self.freeze


@dataclass(frozen=True, slots=True)
class Augmentation:
    """How pictures are changed by chance in each step of a training; `model.augmentation` has the formulas."""

    crop: int = 0  # pixels by which a picture is moved at most, to each side
    flip: bool = False  # half of the pictures are mirrored
    colour: float = 0.0  # brightness, contrast and saturation change by this share at most
    mixup: float = 0.0  # alpha: pictures are mixed with others by a share from Beta(alpha, alpha)


NO_AUGMENTATION = Augmentation()


@dataclass(frozen=True, slots=True)
class Edge:
    """A weighted connection between the layers numbered `source` and `target`.

    `owner` is the number of the edge whose weights it uses, its own number unless they are shared.
    """

    number: int
    source: int
    target: int
    owner: int
    transposed: bool = False


@dataclass(frozen=True)
class NetworkSpec:
    """Layers in the order of the file; every name in `sources`, `skips` and `shared` is that of a layer."""

    layers: tuple[Layer, ...]
    name: str = ""
    kind: str = "FeedForward"
    error: ErrorFunction = ErrorFunction.CROSS_ENTROPY
    marginal: Marginal = Marginal()
    boost: Boost = Boost()
    sparseness: Sparseness = Sparseness()
    denoising: float = 0.0
    shuffle: bool = True
    decay: float = 0.0
    local_response: LocalResponse = LocalResponse()
    maxout: int = 2
    compat: bool = False  # reproduce the oddities of DSSTNE (not its defects)
    tuning: FineTuning = FineTuning()  # for the training alone, as is `augmentation`: files of models keep neither
    augmentation: Augmentation = NO_AUGMENTATION

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """All weighted connections: by target in the order of the layers, then by source as the layer lists them."""
        place = self.places
        pairs = [
            (source, layer.name)
            for layer in self.layers
            if layer.type is not LayerType.POOLING
            for source in layer.sources
        ]
        number = {pair: n for n, pair in enumerate(pairs)}
        edges = []
        for n, (source, target) in enumerate(pairs):
            owner, transposed = n, False
            for shared in self.layers[place[target]].shared:
                if shared.source == source:
                    owner = number[shared.owner_source, shared.owner_target]
                    transposed = shared.transposed
            edges.append(Edge(n, place[source], place[target], owner, transposed))
        return tuple(edges)

    @cached_property
    def places(self) -> dict[str, int]:
        """Layer name -> its number."""
        return {layer.name: n for n, layer in enumerate(self.layers)}

    def sparseness_of(self, layer: Layer) -> Sparseness:
        """Return the penalty of a hidden layer marked as sparse: its own p and beta where they are not 0."""
        own = layer.sparseness
        if not layer.sparse or layer.kind is not LayerKind.HIDDEN:
            return Sparseness()
        return Sparseness(own.p or self.sparseness.p, own.beta or self.sparseness.beta)

    def layers_of(self, kind: LayerKind) -> tuple[Layer, ...]:
        """Return the layers of one kind, in the order of the file."""
        return tuple(layer for layer in self.layers if layer.kind is kind)
