"""A network as the JSON that `network.parse_network` reads. Standard library only."""

from __future__ import annotations

import json
from typing import Any

from nnlib.spec.types import (
    Activation,
    Augmentation,
    FineTuning,
    Layer,
    LayerKind,
    LayerType,
    LocalResponse,
    NetworkSpec,
    SharedWeights,
    Sparseness,
    WeightInit,
)

VERSION = 0.9
Json = dict[str, Any]


def network_text(spec: NetworkSpec) -> str:
    """Return the text of a network's file, a layer a line."""
    raw = network_to_json(spec)
    layers = ",\n".join(f"  {json.dumps(layer, ensure_ascii=False)}" for layer in raw.pop("Layers"))
    head = json.dumps(raw, indent=1, ensure_ascii=False).removesuffix("\n}")
    return f'{head},\n "Layers": [\n{layers}\n ]\n}}\n'


def network_to_json(spec: NetworkSpec) -> Json:
    """Return what a network's file holds: what is as it would be without being said is left out."""
    usual = NetworkSpec(())
    raw: Json = {"Version": VERSION, "Name": spec.name, "Kind": spec.kind, "ErrorFunction": spec.error.value}
    if not spec.shuffle:
        raw["ShuffleIndices"] = False
    if spec.local_response != usual.local_response:
        raw["LocalResponseNormalization"] = _response(spec.local_response)
    if spec.maxout != usual.maxout:
        raw["Maxout"] = {"k": spec.maxout}
    if spec.sparseness != usual.sparseness:
        raw["SparsenessPenalty"] = _sparseness(spec.sparseness)
    if spec.denoising:
        raw["Denoising"] = {"p": spec.denoising}
    if spec.boost != usual.boost:
        raw["DeltaBoost"] = {"one": spec.boost.one, "zero": spec.boost.zero}
    if spec.decay:
        raw["Decay"] = spec.decay
    if spec.marginal != usual.marginal:
        names = ("oneTarget", "zeroTarget", "oneScale", "zeroScale")
        one = spec.marginal
        values = (one.one_target, one.zero_target, one.one_scale, one.zero_scale)
        raw["ScaledMarginalCrossEntropy"] = dict(zip(names, values, strict=True))
    if spec.tuning != usual.tuning:
        raw["FineTuning"] = _tuning(spec.tuning)
    if spec.augmentation != usual.augmentation:
        raw["Augmentation"] = _augmentation(spec.augmentation)
    return {**raw, "Layers": [_layer(layer) for layer in spec.layers]}


def _layer(layer: Layer) -> Json:
    raw: Json = {"Name": layer.name, "Kind": layer.kind.value}
    if layer.type is not LayerType.FULLY_CONNECTED:
        raw["Type"] = layer.type.value
    if layer.function is not None:
        raw["Function"] = layer.function.value
    if layer.kind is LayerKind.INPUT or layer.type is not LayerType.POOLING:
        raw["N"] = _size(layer)
    if layer.data_set:
        raw["DataSet"] = layer.data_set
    if layer.sparse:
        raw["Sparse"] = True
    if layer.dropout:
        raw["pDropout"] = layer.dropout
    return raw if layer.kind is LayerKind.INPUT else raw | _computed(layer)


def _size(layer: Layer) -> object:
    if layer.kind is not LayerKind.INPUT and layer.type is LayerType.CONVOLUTIONAL and layer.dimensions:
        return layer.dimensions[-1]
    if layer.units is None:
        return "auto"
    return list(layer.dimensions) if len(layer.dimensions) > 1 else layer.units


def _computed(layer: Layer) -> Json:
    """Return the keys that an Input has not."""
    usual = Layer("", LayerKind.HIDDEN, None)
    raw: Json = {"Source": list(layer.sources)}
    if layer.skips:
        raw["Skip"] = list(layer.skips)
    raw |= _kernel(layer)
    raw["Activation"] = layer.activation.value
    if layer.activation is Activation.LEAKY_RELU:
        raw["RELUSlope"] = layer.slope
    if layer.activation in (Activation.ELU, Activation.SELU):
        raw["ELUAlpha"] = layer.alpha
    if layer.activation is Activation.SELU:
        raw["SELULambda"] = layer.selu_lambda
    flags = {"BatchNormalization": layer.batch_norm, "DropChannels": layer.drop_channels}
    raw |= {key: True for key, value in flags.items() if value}
    numbers = {"WeightNorm": layer.weight_norm, "DeltaNorm": layer.delta_norm}
    raw |= {key: value for key, value in numbers.items() if value}
    if layer.sparseness != usual.sparseness:
        raw["SparsenessPenalty"] = _sparseness(layer.sparseness)
    if layer.init != usual.init:
        raw["WeightInit"] = _init(layer.init)
    if layer.shared:
        raw["SharedWeights"] = [_shared(one) for one in layer.shared]
    return raw


def _kernel(layer: Layer) -> Json:
    raw: Json = {"Kernel": list(layer.kernel)} if layer.kernel else {}
    if any(one != 1 for one in layer.stride):
        raw["KernelStride"] = list(layer.stride)
    if layer.padding is not None:
        raw["Padding"] = [list(ends) for ends in layer.padding]
    if any(one != 1 for one in layer.dilation):
        raw["Dilation"] = list(layer.dilation)
    if layer.groups != 1:
        raw["Groups"] = layer.groups
    return raw


def _tuning(tuning: FineTuning) -> Json:
    raw: Json = {"Freeze": list(tuning.freeze), "Replace": list(tuning.replace), "Rates": dict(tuning.rates)}
    raw["UnfreezeAt"] = tuning.unfreeze_at
    return {key: value for key, value in raw.items() if value}


def _augmentation(one: Augmentation) -> Json:
    return {"Crop": one.crop, "Flip": one.flip, "Colour": one.colour, "Mixup": one.mixup}


def _shared(one: SharedWeights) -> Json:
    names = {"InputLayer": one.source, "SourceInputLayer": one.owner_source, "SourceOutputLayer": one.owner_target}
    return names | ({"Transposed": True} if one.transposed else {})


def _sparseness(one: Sparseness) -> Json:
    return {"p": one.p, "beta": one.beta}


def _response(one: LocalResponse) -> Json:
    return {"k": one.k, "n": one.n, "alpha": one.alpha, "beta": one.beta}


def _init(one: WeightInit) -> Json:
    return {"Scheme": one.scheme.value, "Scale": one.scale, "Bias": one.bias}
