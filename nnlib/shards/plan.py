"""Which layers of a network are cut, and how: by the network and the batch alone.

Not by how many ranks there are, on which device or over which link: the plan decides the order of sums, so that a
model's bits are those of its plan, wherever it is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nnlib.errors import NnlibError
from nnlib.model.network import BLOCK, count_units, is_blocked, is_sparse_input
from nnlib.shards.tree import SHARDS
from nnlib.spec.geometry import is_computed
from nnlib.spec.types import LayerKind, NetworkSpec

ITEMS, EXAMPLES, WHOLE = "items", "examples", "none"
LEAST = SHARDS * BLOCK  # units of a layer that is cut: a block for each shard
WIDE = 8192  # units from which `auto` cuts
PART = 0.5  # ... and by how much of the batch they must be more
MOST_NAMED = 3  # layers in one message


@dataclass(frozen=True, slots=True)
class Plan:
    """What is cut: layers by `items`, with their numbers, ascending; batches by `examples`; or `none`."""

    kind: str = WHOLE
    wide: tuple[int, ...] = ()

    @property
    def is_cut(self) -> bool:
        """Whether there are shards, and so something that ranks can share."""
        return self.kind != WHOLE


def plan_of(spec: NetworkSpec, batch: int, parallel: str = "auto") -> Plan:
    """Return the plan of a training: `spec` has all its units, `parallel` is the setting of that name; NnlibError.

    `auto` cuts the layers by items that are wide and can be, `items` those of 4,096 units or more, at least one.
    `examples` cuts batches, for which one device pays: `auto` comes to it in jobs of several GPUs alone, by
    `choose_for_several` of `inspection.gpus_plan`.
    Networks that convolve or pool are cut by examples alone.
    """
    wanted = parallel.lower()
    if wanted == WHOLE:
        return Plan()
    if wanted == EXAMPLES:
        _require_alone(spec)
        return Plan(EXAMPLES)
    if any(is_computed(layer) for layer in spec.layers):
        if wanted != "auto":
            raise NnlibError(_refuse_maps(spec, parallel))
        return Plan()
    reasons = why_whole(spec, batch, parallel)
    found = tuple(n for n, why in reasons.items() if not why)
    if not found and wanted == ITEMS:
        raise NnlibError(
            f"parallel: {parallel!r} cuts sparse inputs and output layers of at least {LEAST:,} units, and here is none"
            f"{''.join(_name_uncut(spec, reasons))}; legal: auto, {'' if _whys_together(spec) else 'examples, '}none"
        )
    return Plan(ITEMS, found) if found else Plan()


def why_whole(spec: NetworkSpec, batch: int, parallel: str = "auto") -> dict[int, str]:
    """Return by the number of each layer why it is not cut; empty for those that are."""
    wanted = parallel.lower()
    if wanted in (EXAMPLES, WHOLE):
        return dict.fromkeys(range(len(spec.layers)), f"parallel is {wanted}")
    if any(is_computed(layer) for layer in spec.layers):
        return dict.fromkeys(range(len(spec.layers)), "the network has layers that are not fully connected")
    least = max(WIDE, int(PART * batch) + 1) if wanted == "auto" else LEAST
    reasons = {}
    for n in range(len(spec.layers)):
        small = f"it has fewer than {least:,} units" if count_units(spec, n) < least else ""
        reasons[n] = small or next(_obstacles(spec, n), "")
    return reasons


def normalized_by_batch(spec: NetworkSpec) -> tuple[int, ...]:
    """Return the numbers of the layers whose batch normalization learns, in some epoch at least.

    By examples ranks merge their statistics, in one exchange of each layer forward, and one back.
    """
    fixed = () if spec.tuning.unfreeze_at else spec.tuning.freeze
    return tuple(n for n, layer in enumerate(spec.layers) if layer.batch_norm and layer.name not in fixed)


def _name_uncut(spec: NetworkSpec, reasons: Mapping[int, str]) -> Iterator[str]:
    """Yield why wide layers are whole, and how many units the inputs and outputs have that are not wide."""
    for n, why in reasons.items():
        layer, units = spec.layers[n], count_units(spec, n)
        if units >= LEAST:
            yield f"; {layer.name}: {why}"
        elif layer.kind is not LayerKind.HIDDEN:
            yield f"; {layer.name} has {units:,} units"


def _refuse_maps(spec: NetworkSpec, parallel: str) -> str:
    others = [layer for layer in spec.layers if is_computed(layer)]
    named = ", ".join(f"{layer.name} is {layer.function or layer.type}" for layer in others[:MOST_NAMED])
    more = f" and {len(others) - MOST_NAMED} more are not" if len(others) > MOST_NAMED else ""
    return (
        f"parallel: {parallel!r} is for networks whose layers are all fully connected; {named}{more}; legal: auto, "
        "examples, none"
    )


def _require_alone(spec: NetworkSpec) -> None:
    """Raise NnlibError unless each example is computed without the others of its batch, but for its normalization."""
    found = _whys_together(spec)
    if found:
        more = f"; {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        others = "auto, none" if any(is_computed(layer) for layer in spec.layers) else "auto, items, none"
        raise NnlibError(
            "parallel: 'examples' is for dense data and layers that compute each example alone; "
            f"{'; '.join(found[:MOST_NAMED])}{more}; legal: {others}"
        )


def _whys_together(spec: NetworkSpec) -> list[str]:
    """Return what keeps the examples of a batch from being computed apart."""
    found = []
    for layer in spec.layers:
        if is_sparse_input(layer):
            found.append(f"{layer.name}: its data are sparse")
        if spec.sparseness_of(layer).beta:
            found.append(f"{layer.name}: the sparseness penalty is over the whole batch")
    return found


def _obstacles(spec: NetworkSpec, number: int) -> Iterator[str]:
    """Yield why a wide layer cannot be cut by items."""
    layer = spec.layers[number]
    edges = [edge for edge in spec.edges if number in (edge.source, edge.target)]
    owners = {edge.owner for edge in edges}
    if any(edge.owner != edge.number for edge in edges) or any(
        edge.owner in owners for edge in spec.edges if edge not in edges
    ):
        yield "its weights are shared"
    if layer.kind is LayerKind.INPUT:
        if not is_sparse_input(layer):
            yield "its data are dense"
        if any(layer.name in other.skips for other in spec.layers):
            yield "another layer skips from it"
        for target in (spec.layers[edge.target] for edge in edges):
            if target.weight_norm:
                yield f"WeightNorm of {target.name} is over all its units"
            if is_blocked(spec, target):
                yield f"it leads to the output layer {target.name} without a layer between"
    elif not is_blocked(spec, layer):
        yield "it is hidden" if layer.kind is LayerKind.HIDDEN else "all its units are needed at once"
    elif any(is_sparse_input(spec.layers[edge.source]) for edge in edges):
        yield "a sparse input leads to it without a layer between"
