"""What a model file says about a network beside its weights: a `NetworkSpec` as DSSTNE's attributes, and back.

Attributes of the layer numbered i start with `layer<i>_`. Beyond the format: `nnlib_compat`, ignored by DSSTNE.
"""

from __future__ import annotations

import numpy as np

from nnlib.model.attributes import Attributes
from nnlib.model.size_attributes import size_attributes, with_sizes
from nnlib.spec.json_section import MOST_UNITS
from nnlib.spec.types import (
    Activation,
    Boost,
    ErrorFunction,
    Layer,
    LayerKind,
    LayerType,
    LocalResponse,
    Marginal,
    NetworkSpec,
    PoolingFunction,
    Scheme,
    Sparseness,
    WeightInit,
)
from nnlib.util import netcdf

FORMAT_VERSION = 0.9
KINDS = {"FeedForward": 0, "AutoEncoder": 1}
ERRORS = {
    ErrorFunction.L1: 0,
    ErrorFunction.L2: 1,
    ErrorFunction.CROSS_ENTROPY: 2,
    ErrorFunction.MARGINAL: 3,
    ErrorFunction.DATA_MARGINAL: 4,
    ErrorFunction.HINGE: 5,
    ErrorFunction.L2_HINGE: 6,
}
LAYER_KINDS = {LayerKind.INPUT: 0, LayerKind.HIDDEN: 1, LayerKind.OUTPUT: 2}
TYPES = {LayerType.FULLY_CONNECTED: 0, LayerType.CONVOLUTIONAL: 1, LayerType.POOLING: 2}
FUNCTIONS = {
    None: 0,
    PoolingFunction.MAX: 1,
    PoolingFunction.AVERAGE: 2,
    PoolingFunction.LRN: 3,
    PoolingFunction.MAXOUT: 4,
    PoolingFunction.DOT_PRODUCT: 5,
    PoolingFunction.COSINE: 6,  # and 7 to 9 are DSSTNE's that compute nothing
    PoolingFunction.SUM: 10,
    PoolingFunction.PRODUCT: 11,
    PoolingFunction.CONCATENATE: 12,
    PoolingFunction.GLOBAL_MAX: 13,
    PoolingFunction.GLOBAL_AVERAGE: 14,
}
ACTIVATIONS = {activation: activation.code for activation in Activation}
SCHEMES = {
    Scheme.XAVIER: 0,
    Scheme.CAFFE_XAVIER: 1,
    Scheme.GAUSSIAN: 2,
    Scheme.UNIFORM: 3,
    Scheme.UNIT_BALL: 4,
    Scheme.CONSTANT: 5,
    Scheme.SELU: 6,
}
SPARSE, DENOISING, BATCH_NORM = 1, 2, 4  # bits of layer<i>_attributes
COMPAT = "nnlib_compat"


def network_attributes(spec: NetworkSpec) -> dict[str, netcdf.Attribute]:
    """Return the attributes of the network and of all of its layers."""
    values: dict[str, netcdf.Attribute] = {
        "version": np.float32(FORMAT_VERSION),
        "name": spec.name,
        "kind": np.uint32(KINDS[spec.kind]),
        "errorFunction": np.uint32(ERRORS[spec.error]),
        "maxout_k": np.int32(spec.maxout),
        "decay": np.float32(spec.decay),
        "LRN_k": np.float32(spec.local_response.k),
        "LRN_n": np.int32(spec.local_response.n),
        "LRN_alpha": np.float32(spec.local_response.alpha),
        "LRN_beta": np.float32(spec.local_response.beta),
        "bSparsenessPenalty": np.uint32(spec.sparseness.beta > 0),
        "sparsenessPenalty_p": np.float32(spec.sparseness.p),
        "sparsenessPenalty_beta": np.float32(spec.sparseness.beta),
        "bDenoising": np.uint32(spec.denoising > 0),
        "denoising_p": np.float32(spec.denoising),
        "deltaBoost_one": np.float32(spec.boost.one),
        "deltaBoost_zero": np.float32(spec.boost.zero),
        "SMCE_oneScale": np.float32(spec.marginal.one_scale),
        "SMCE_zeroScale": np.float32(spec.marginal.zero_scale),
        "SMCE_oneTarget": np.float32(spec.marginal.one_target),
        "SMCE_zeroTarget": np.float32(spec.marginal.zero_target),
        "ShuffleIndices": np.uint32(spec.shuffle),
        "layers": np.uint32(len(spec.layers)),
        COMPAT: np.uint32(spec.compat),
    }
    for n, layer in enumerate(spec.layers):
        denoised = layer.kind is LayerKind.INPUT and layer.sparse and spec.denoising > 0
        bits = layer.sparse * SPARSE | denoised * DENOISING | layer.batch_norm * BATCH_NORM
        own = {**_layer_attributes(layer), **size_attributes(spec, n), "attributes": np.uint32(bits)}
        values |= {f"layer{n}_{key}": value for key, value in own.items()}
    return values


def _layer_attributes(layer: Layer) -> dict[str, netcdf.Attribute]:
    return {
        "name": layer.name,
        "kind": np.uint32(LAYER_KINDS[layer.kind]),
        "type": np.uint32(TYPES[layer.type]),
        "poolingfunction": np.uint32(FUNCTIONS[layer.function]),
        "dataSet": layer.data_set,
        "pDropout": np.float32(layer.dropout),
        "weightInit": np.uint32(SCHEMES[layer.init.scheme]),
        "weightInitScale": np.float32(layer.init.scale),
        "biasInit": np.float32(layer.init.bias),
        "weightNorm": np.float32(layer.weight_norm),
        "deltaNorm": np.float32(layer.delta_norm),
        "activation": np.uint32(ACTIVATIONS[layer.activation]),
        "sparsenessPenalty_p": np.float32(layer.sparseness.p),
        "sparsenessPenalty_beta": np.float32(layer.sparseness.beta),
        "RELUSlope": np.float32(layer.slope),
        "ELUAlpha": np.float32(layer.alpha),
        "SELULambda": np.float32(layer.selu_lambda),
        "sources": np.uint32(len(layer.sources)),
        **{f"source{i}": name for i, name in enumerate(layer.sources)},
        "skips": np.uint32(len(layer.skips)),
        **{f"skip{i}": name for i, name in enumerate(layer.skips)},
    }


def read_network_spec(attributes: Attributes) -> NetworkSpec:
    """Return the network; its layers share no weights yet, as that is not said here."""
    a = attributes
    sparse, denoised = a.flag("bSparsenessPenalty"), a.flag("bDenoising")
    beta, noise = a.real("sparsenessPenalty_beta", 0), a.real("denoising_p", 0, 1, closed=False)
    layers = []
    for n in range(a.count("layers", 1, MOST_UNITS)):  # a count that is too high ends at the first layer missing
        layers.append(_layer(a, f"layer{n}_"))
    return NetworkSpec(
        layers=tuple(layers),
        name=a.text("name"),
        kind=a.decode("kind", KINDS),
        error=a.decode("errorFunction", ERRORS),
        marginal=Marginal(
            one_target=a.real("SMCE_oneTarget", 0, 1),
            zero_target=a.real("SMCE_zeroTarget", 0, 1),
            one_scale=a.real("SMCE_oneScale", 0),
            zero_scale=a.real("SMCE_zeroScale", 0),
        ),
        boost=Boost(one=a.real("deltaBoost_one", 0), zero=a.real("deltaBoost_zero", 0)),
        sparseness=Sparseness(p=a.real("sparsenessPenalty_p", 0, 1), beta=beta if sparse else 0.0),
        denoising=noise if denoised else 0.0,
        shuffle=a.flag("ShuffleIndices"),
        decay=a.real("decay", 0, default=0.0),
        local_response=LocalResponse(
            k=a.real("LRN_k"), n=a.count("LRN_n", 1), alpha=a.real("LRN_alpha"), beta=a.real("LRN_beta")
        ),
        maxout=a.count("maxout_k", 1),
        compat=a.count(COMPAT, default=0) != 0,
    )


def _layer(a: Attributes, at: str) -> Layer:
    kind, type_ = a.decode(f"{at}kind", LAYER_KINDS), a.decode(f"{at}type", TYPES)
    pools = type_ is LayerType.POOLING
    functions = {function: code for function, code in FUNCTIONS.items() if function or not pools}
    function = a.decode(f"{at}poolingfunction", functions, None if pools else 0)
    activation = a.decode(f"{at}activation", ACTIVATIONS)
    if pools and COMPAT not in a.values:
        activation = Activation.LINEAR  # whatever DSSTNE writes, it computes none
    bits = a.count(f"{at}attributes")
    layer = Layer(
        name=a.text(f"{at}name"),
        kind=kind,
        units=None,
        type=type_,
        data_set=a.text(f"{at}dataSet"),
        sparse=bool(bits & SPARSE),
        sources=tuple(a.text(f"{at}source{i}") for i in range(a.count(f"{at}sources"))),
        skips=tuple(a.text(f"{at}skip{i}") for i in range(a.count(f"{at}skips"))),
        activation=activation,
        slope=a.real(f"{at}RELUSlope"),
        alpha=a.real(f"{at}ELUAlpha"),
        selu_lambda=a.real(f"{at}SELULambda"),
        dropout=a.real(f"{at}pDropout", 0, 1, closed=False, default=0.0),
        batch_norm=bool(bits & BATCH_NORM),
        sparseness=Sparseness(
            p=a.real(f"{at}sparsenessPenalty_p", 0, 1), beta=a.real(f"{at}sparsenessPenalty_beta", 0)
        ),
        weight_norm=a.real(f"{at}weightNorm", 0, default=0.0),
        delta_norm=a.real(f"{at}deltaNorm", 0, default=0.0),
        init=WeightInit(
            scheme=a.decode(f"{at}weightInit", SCHEMES, SCHEMES[Scheme.XAVIER]),
            scale=a.real(f"{at}weightInitScale", default=1.0),
            bias=a.real(f"{at}biasInit", default=0.0),
        ),
        function=function,
    )
    return with_sizes(a, at, layer)
