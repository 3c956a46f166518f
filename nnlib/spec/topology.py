"""What the layers of a network mean to each other: their order, and what cannot be.

Pure, standard library only. Sizes are compared where they are known; `"N": "auto"` and computed sizes are not, so a
network is to be checked again when all units are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from nnlib.spec.json_section import Problems, SpecError, nearest, show
from nnlib.spec.types import (
    Activation,
    ErrorFunction,
    Layer,
    LayerKind,
    LayerType,
    NetworkSpec,
    PoolingFunction,
    SharedWeights,
)

MOST_SOURCES = 4  # of a fully connected layer in DSSTNE
MOST_NAMED = 12  # names in one message
OUTPUTS = {
    ErrorFunction.CROSS_ENTROPY: (Activation.SIGMOID, Activation.SOFTMAX),
    ErrorFunction.MARGINAL: (Activation.SIGMOID, Activation.SOFTMAX),
    ErrorFunction.DATA_MARGINAL: (Activation.SIGMOID,),
}
COMPARING = (PoolingFunction.DOT_PRODUCT, PoolingFunction.COSINE)
SINGLE = (  # functions of one source
    *(PoolingFunction.MAX, PoolingFunction.AVERAGE, PoolingFunction.LRN),
    *(PoolingFunction.GLOBAL_MAX, PoolingFunction.GLOBAL_AVERAGE),
)


def order(spec: NetworkSpec) -> tuple[int, ...]:
    """Return the layers' numbers by longest distance from an Input, then by number: each after all it is made of."""
    distances = _distances(spec)
    if len(distances) < len(spec.layers):
        raise ValueError("the layers feed each other in a circle")
    return tuple(sorted(distances, key=lambda n: (distances[n], n)))


def check_topology(spec: NetworkSpec, file: str) -> None:
    """Raise SpecError with everything that layers, each legal by itself, have wrong with each other."""
    problems = Problems(file)
    for n, layer in enumerate(spec.layers):
        if spec.places[layer.name] != n:
            problems.add(f"Layers[{n}].Name", f"{show(layer.name)} is the name of another layer too")
        _check_names(spec, n, layer, problems)
    for kind in (LayerKind.INPUT, LayerKind.OUTPUT):
        if not spec.layers_of(kind):
            problems.add("Layers", f"no layer of kind {kind}, legal: one or more")
    if not problems.found:
        _check_circle(spec, problems)
        if all(layer.kind is LayerKind.INPUT or layer.type is LayerType.POOLING for layer in spec.layers):
            problems.add("Layers", "no layer has weights, legal: one or more of type FullyConnected or Convolutional")
    if not problems.found:
        for n, layer in enumerate(spec.layers):
            _check_layer(spec, n, layer, problems)
    if problems.found:
        raise SpecError(problems.found)


def _distances(spec: NetworkSpec) -> dict[int, int]:
    """Return the longest distance of layers from an Input; those in a circle, and those behind it, are left out."""
    below = [[spec.places[name] for name in (*layer.sources, *layer.skips)] for layer in spec.layers]
    above: list[list[int]] = [[] for _ in spec.layers]
    for n, sources in enumerate(below):
        for source in sources:
            above[source].append(n)
    waiting = [len(sources) for sources in below]
    ready = [n for n, count in enumerate(waiting) if not count]
    distances: dict[int, int] = {}
    while ready:
        n = ready.pop()
        distances[n] = max((distances[source] + 1 for source in below[n]), default=0)
        for target in above[n]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return distances


def _check_names(spec: NetworkSpec, n: int, layer: Layer, problems: Problems) -> None:
    named = [("Source", name) for name in layer.sources] + [("Skip", name) for name in layer.skips]
    for i, shared in enumerate(layer.shared):
        named.append((f"SharedWeights[{i}].InputLayer", shared.source))
        named.append((f"SharedWeights[{i}].SourceInputLayer", shared.owner_source))
        named.append((f"SharedWeights[{i}].SourceOutputLayer", shared.owner_target))
    for key, name in named:
        if name not in spec.places:
            legal = [show(place) for place in spec.places]
            more = f" and {len(legal) - MOST_NAMED} more" if len(legal) > MOST_NAMED else ""
            hint = nearest(name, spec.places) or f", legal: {', '.join(legal[:MOST_NAMED])}{more}"
            problems.add(f"Layers[{n}].{key}", f"{show(name)} is not the name of a layer{hint}")
    for key, names in (("Source", layer.sources), ("Skip", layer.skips)):
        for name, count in Counter(names).items():
            if count > 1:
                problems.add(f"Layers[{n}].{key}", f"{show(name)} is named twice, legal: every name once")
    if layer.kind is LayerKind.INPUT and (layer.sources or layer.skips):
        problems.add(f"Layers[{n}].Source", "an Input layer has no sources, its data set is one")
    if layer.kind is not LayerKind.INPUT and not layer.sources:
        problems.add(f"Layers[{n}].Source", f"is missing in a layer of kind {layer.kind}, legal: the name of a layer")


def _check_circle(spec: NetworkSpec, problems: Problems) -> None:
    """Name the layers of a circle: each of those left has a source that is left too, so walking down must meet one."""
    left = set(range(len(spec.layers))) - set(_distances(spec))
    if not left:
        return
    way = [min(left)]
    while way[-1] not in way[:-1]:
        layer = spec.layers[way[-1]]
        way.append(next(p for name in (*layer.sources, *layer.skips) if (p := spec.places[name]) in left))
    circle = way[way.index(way[-1]) :]
    names = " <- ".join(show(spec.layers[n].name) for n in circle)
    problems.add(f"Layers[{circle[0]}].Source", f"the layers feed each other in a circle: {names}")


def _check_layer(spec: NetworkSpec, n: int, layer: Layer, problems: Problems) -> None:
    for path, text in (*_sources(layer), *_skips(spec, layer), *_weights(spec, layer), *_output(spec, layer)):
        problems.add(f"Layers[{n}].{path}", text)


def _sources(layer: Layer) -> Iterator[tuple[str, str]]:
    count = len(layer.sources)
    if layer.type is LayerType.FULLY_CONNECTED and count > MOST_SOURCES:
        yield "Source", f"{count} sources, legal in a layer of type {layer.type}: up to {MOST_SOURCES}"
    if layer.type is LayerType.POOLING and layer.function in COMPARING and count < 2:
        yield "Source", f"1 source, legal with Function {layer.function}: two or more, of the same size"
    if layer.type is LayerType.POOLING and layer.function in SINGLE and count > 1:
        legal = "one, such as a Pooling layer with Function Sum or Concatenate of these"
        yield "Source", f"{count} sources, legal with Function {layer.function}: {legal}"


def _skips(spec: NetworkSpec, layer: Layer) -> Iterator[tuple[str, str]]:
    for name in layer.skips:
        units = spec.layers[spec.places[name]].units
        if None not in (units, layer.units) and units != layer.units:
            yield "Skip", f"{show(name)} has {units} units, legal: {layer.units}, as many as {show(layer.name)}"
    if layer.type is LayerType.POOLING and layer.function in (*COMPARING, PoolingFunction.MAXOUT):
        sizes = {name: spec.layers[spec.places[name]].units for name in layer.sources}
        if len(set(sizes.values()) - {None}) > 1:
            seen = ", ".join(f"{show(name)} {units}" for name, units in sizes.items())
            yield "Source", f"sources of different sizes: {seen}, legal with Function {layer.function}: one size"


def _weights(spec: NetworkSpec, layer: Layer) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the shared weights of a layer."""
    for i, shared in enumerate(layer.shared):
        path = f"SharedWeights[{i}]"
        if shared.source not in layer.sources or layer.type is LayerType.POOLING:
            legal = ", ".join(map(show, layer.sources)) if layer.type is not LayerType.POOLING else "none, it pools"
            text = f"no weights lead from {show(shared.source)} to {show(layer.name)}, legal: {legal}"
            yield f"{path}.InputLayer", text
        elif shared.source in [other.source for other in layer.shared[:i]]:
            yield f"{path}.InputLayer", f"{show(shared.source)} shares weights twice, legal: once"
        else:
            text = _owner(spec, layer, shared)
            if text:
                yield path, text


def _owner(spec: NetworkSpec, layer: Layer, shared: SharedWeights) -> str:
    """Return what keeps the weights from `shared.source` to `layer` from being those of the owner, or nothing."""
    source, owner_source, owner = (
        spec.layers[spec.places[name]] for name in (shared.source, shared.owner_source, shared.owner_target)
    )
    pair = f"{show(owner_source.name)} to {show(owner.name)}"
    if owner_source.name not in owner.sources or owner.type is LayerType.POOLING:
        return f"no weights lead from {pair}, legal: a layer and one of its sources"
    if (owner_source, owner) == (source, layer):
        return f"the weights from {pair} cannot be shared with themselves"
    for other in owner.shared:
        if other.source == owner_source.name:
            theirs = f"{show(other.owner_source)} to {show(other.owner_target)}"
            return f"the weights from {pair} are shared themselves, legal: their owner, {theirs}"
    if owner.type is not layer.type:
        return f"the weights from {pair} are {owner.type}, legal: {layer.type}"
    if layer.type is LayerType.CONVOLUTIONAL:
        return ""  # maps of other sizes may have the same kernels: see `sizes`
    wanted, seen = (source.units, layer.units), (owner_source.units, owner.units)
    wanted = wanted[::-1] if shared.transposed else wanted
    if any(None not in sizes and sizes[0] != sizes[1] for sizes in zip(wanted, seen, strict=True)):
        wish, have = (" x ".join("?" if size is None else str(size) for size in sizes) for sizes in (wanted, seen))
        turned = " as they are shared transposed" if shared.transposed else ""
        return f"the weights from {pair} are {have}, legal{turned}: {wish}"
    return ""


def _output(spec: NetworkSpec, layer: Layer) -> Iterator[tuple[str, str]]:
    if layer.kind is not LayerKind.HIDDEN and not layer.data_set:
        yield "DataSet", f"is missing in a layer of kind {layer.kind}, legal: the name of a data set"
    if layer.kind is not LayerKind.HIDDEN and layer.batch_norm:
        yield "BatchNormalization", f"is on in a layer of kind {layer.kind}, legal: only in Hidden"
    softmax = layer.kind is LayerKind.OUTPUT and layer.activation is Activation.SOFTMAX
    if softmax and layer.dropout and spec.error in OUTPUTS:
        yield "pDropout", f"{layer.dropout:g} would drop outputs of a SoftMax, legal: 0, or pDropout in layers before"
    legal = OUTPUTS.get(spec.error)
    if layer.kind is LayerKind.OUTPUT and legal and layer.activation not in legal:
        names = ", ".join(legal)
        text = f"{layer.activation} has no {spec.error} error, legal with it in an Output layer: {names}"
        if spec.compat and layer.type is LayerType.POOLING:
            dense = f"{LayerType.FULLY_CONNECTED} or {LayerType.CONVOLUTIONAL}"
            text = f"with compat a Pooling layer has none, and {text}, of type {dense}; or no compat"
        yield "Activation", text
