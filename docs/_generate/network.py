"""The keys of a network's JSON. What is legal is asked of the reader itself, by handing it what never is.

Meanings stand here, as the code has none; a key without one, or one too many, fails the build.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from typing import Any

from docs._generate.markdown import code, escape, table
from nnlib.spec.json_section import SpecError
from nnlib.spec.layers import LAYER_KEYS
from nnlib.spec.network import NETWORK_KEYS, parse_network
from nnlib.spec.types import LayerKind

ILLEGAL: Any = [[]]  # no key takes an array of arrays
UNKNOWN = "?"  # nor is there one of this name
LAYERS = {
    LayerKind.INPUT: {"Kind": "Input", "DataSet": "in"},
    LayerKind.HIDDEN: {"Kind": "Hidden"},
    LayerKind.OUTPUT: {"Kind": "Output", "DataSet": "out"},
}
CONVOLVED = {"Type": "Convolutional", "Kernel": 3}  # what layers are that may have these
OF_MAPS = ("KernelStride", "Padding", "Dilation", "Groups", "DropChannels")
HEADINGS = ("key", "legal", "default", "meaning")

# key -> the field of NetworkSpec or Layer that has its value, and what it means; no field: nothing keeps it.
NETWORK = {
    "Version": ("", "of the format"),
    "Name": ("name", "of the network"),
    "Kind": ("kind", "nothing follows from it"),
    "WeightsData": ("", "accepted and ignored, as in DSSTNE"),
    "ShuffleIndices": ("shuffle", "whether every epoch goes over the examples in another order"),
    "ErrorFunction": ("error", "what training minimizes"),
    "Layers": ("", "the layers, from the inputs to the outputs"),
    "LocalResponseNormalization": ("", "y = x / (k + alpha / n sum x^2)^beta, in layers with that function"),
    "LocalResponseNormalization.k": ("local_response.k", ""),
    "LocalResponseNormalization.n": ("local_response.n", ""),
    "LocalResponseNormalization.alpha": ("local_response.alpha", ""),
    "LocalResponseNormalization.beta": ("local_response.beta", ""),
    "Maxout": ("", "layers with that function"),
    "Maxout.k": ("maxout", "how many units the largest is taken of"),
    "SparsenessPenalty": ("", "pulls the mean activation of each unit of sparse hidden layers"),
    "SparsenessPenalty.p": ("sparseness.p", "towards this"),
    "SparsenessPenalty.beta": ("sparseness.beta", "with this force; 0: not at all"),
    "Denoising": ("", "leaves entries of sparse inputs out"),
    "Denoising.p": ("denoising", "their share, drawn anew in each step"),
    "DeltaBoost": ("", "multiplies the error of units"),
    "DeltaBoost.one": ("boost.one", "with a target other than zero"),
    "DeltaBoost.zero": ("boost.zero", "with a target of zero"),
    "Decay": ("decay", "the learning rate of step n is divided by 1 + Decay (n - 1)"),
    "ScaledMarginalCrossEntropy": ("", "the marginal cross entropies"),
    "ScaledMarginalCrossEntropy.oneTarget": (
        "marginal.one_target",
        "from where on a target counts as met",
    ),
    "ScaledMarginalCrossEntropy.zeroTarget": ("marginal.zero_target", "up to where no target does"),
    "ScaledMarginalCrossEntropy.oneScale": ("marginal.one_scale", "weight of targets"),
    "ScaledMarginalCrossEntropy.zeroScale": ("marginal.zero_scale", "weight of the others"),
    "RELUSlope": ("", "that of layers which give none"),
    "ELUAlpha": ("", "that of layers which give none"),
    "SELULambda": ("", "that of layers which give none"),
    "FineTuning": ("", "how layers are trained that start from a model, by their names; not in DSSTNE"),
    "FineTuning.Freeze": ("", "their weights, biases and batch normalization stay as they are"),
    "FineTuning.Rates": ("", "what the learning rate of a layer is multiplied by"),
    "FineTuning.Replace": ("", "are drawn anew, whatever the model has of them"),
    "FineTuning.UnfreezeAt": ("tuning.unfreeze_at", "the epoch from which frozen layers learn; 0: never"),
    "Augmentation": ("", "changes pictures by chance in each step of a training; not in DSSTNE"),
    "Augmentation.Crop": (
        "augmentation.crop",
        "moves them by so many pixels at most; behind the edge they are mirrored",
    ),
    "Augmentation.Flip": ("augmentation.flip", "mirrors half of them"),
    "Augmentation.Colour": (
        "augmentation.colour",
        "changes brightness, contrast and saturation by this share at most",
    ),
    "Augmentation.Mixup": (
        "augmentation.mixup",
        "mixes them and their targets with others, by a share from Beta(a, a)",
    ),
}
LAYER = {
    "Kind": ("", "where the layer stands; first Input, last Output, else Hidden"),
    "Type": ("type", "how it is computed of its sources; of an Input nothing follows from it"),
    "Name": ("", "what other layers call it by; if absent its kind and number"),
    "N": ("", "how many units it has, in up to four dimensions; of a convolution how many maps"),
    "Sparse": (
        "sparse",
        "hidden layers: takes the sparseness penalty; inputs say so by their data",
    ),
    "pDropout": ("dropout", "the share of units that each step leaves out"),
    "DataSet": ("", "the data set that it reads, or whose values are its targets"),
    "Source": ("", "the layers that feed it; if absent the one before"),
    "Skip": ("", "layers of as many units whose values are added to its own"),
    "Kernel": ("", "of convolutional, Max and Average layers: its size on the axes x, y, z; 1 on all if absent"),
    "KernelStride": ("", "how far it moves on each axis; a number alone is that of x; 1 where nothing is said"),
    "Padding": (
        "",
        "zeros around the maps (Max and Average leave them out): one number for all sides, or an entry for each "
        "axis; if absent, DSSTNE's rule; not in DSSTNE",
    ),
    "Dilation": ("", "how far a kernel's values are apart: one number for all axes, or one each; not in DSSTNE"),
    "Groups": ("groups", "in how many groups channels are convolved, each by itself; not in DSSTNE"),
    "DropChannels": ("drop_channels", "whether pDropout leaves out whole maps; not in DSSTNE"),
    "Function": ("", "what a pooling layer computes"),
    "Activation": ("activation", "what a unit makes of its weighted sum; of a pooling layer Linear if absent"),
    "RELUSlope": ("slope", "of LeakyRectifiedLinear below zero"),
    "ELUAlpha": ("alpha", "of ExponentialLinear; of ScaledExponentialLinear 1.6733 if absent"),
    "SELULambda": ("selu_lambda", "of ScaledExponentialLinear"),
    "WeightNorm": ("weight_norm", "the largest norm of a unit's weights; 0: any"),
    "DeltaNorm": ("delta_norm", "the largest norm of an example's delta; 0: any"),
    "WeightInit": ("", "how weights and biases start"),
    "WeightInit.Scheme": ("init.scheme", "the distribution of weights"),
    "WeightInit.Scale": ("init.scale", "multiplies them"),
    "WeightInit.Bias": ("init.bias", "the value of biases"),
    "SharedWeights": ("", "edges into this layer that use the weights of another edge"),
    "SharedWeights.InputLayer": ("", "from this layer"),
    "SharedWeights.SourceInputLayer": ("", "with the weights that lead from this layer"),
    "SharedWeights.SourceOutputLayer": ("", "to this one"),
    "SharedWeights.Transposed": ("", "turned around"),
    "BatchNormalization": ("batch_norm", "whether values are normalized over the batch, those of maps by map"),
    "SparsenessPenalty": ("", "the layer's own where the network's is not to hold"),
    "SparsenessPenalty.p": ("sparseness.p", ""),
    "SparsenessPenalty.beta": ("sparseness.beta", ""),
}


def render_network() -> str:
    """Return a table of the network's keys and one for each kind of layer; KeyError for a key without a meaning."""
    spec = parse_network(_network({}), "network")
    parts = ["## The network", _table(NETWORK_KEYS, NETWORK, _network, spec)]
    met = set()
    for kind, keys in LAYER_KEYS.items():
        rows = _table(keys, LAYER, partial(_network_with, kind), spec.layers_of(kind)[0])
        parts += [f"## {kind} layers", rows]
        met |= set(keys)
    unknown = {key.split(".")[0] for key in LAYER} - met | {key.split(".")[0] for key in NETWORK} - set(NETWORK_KEYS)
    if unknown:
        raise KeyError(f"no longer keys of networks: {unknown}")
    return "\n\n".join(parts)


def _network(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network with more values of its own."""
    return {"Layers": [*LAYERS.values()], **values}


def _network_with(kind: LayerKind, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a network whose layer of a kind has more values."""
    return {"Layers": [{**layer, **(values if each is kind else {})} for each, layer in LAYERS.items()]}


def _table(
    keys: tuple[str, ...], meanings: Mapping[str, tuple[str, str]], made: Callable[[Any], Any], owner: Any
) -> str:
    rows = []
    for key, value in _probes(keys, made):
        field, meaning = meanings[key]
        default = reduce(getattr, field.split("."), owner) if field else ""
        rows.append((code(key), escape(_legal(made(value), key)), code(_as_json(default)), escape(meaning)))
    return table(HEADINGS, rows)


def _probes(keys: tuple[str, ...], made: Callable[[Any], Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each key, and those inside of its object, with values in which it alone is not legal."""
    for key in keys:
        yield key, {**(CONVOLVED if key in OF_MAPS else {}), key: 0 if key == "Layers" else ILLEGAL}
        if "an object" in _legal(made({key: ILLEGAL}), key):
            for inner in _legal(made({key: {UNKNOWN: 0}}), UNKNOWN).split(", "):
                yield f"{key}.{inner}", {key: {inner: ILLEGAL}}


def _legal(network: Any, key: str) -> str:
    """Return what the reader says is legal for a key of a network in which it is not."""
    try:
        parse_network(network, "network")
    except SpecError as error:
        for problem in error.problems:
            place, _, text = problem.removeprefix("network: ").partition(": ")
            if place.endswith(key):
                return text.partition(", legal: ")[2]
    return ""


def _as_json(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
