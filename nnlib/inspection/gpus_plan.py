"""What several GPUs would do for a training, in words: which layers are cut, why others are not, what that brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nnlib.contract import TrainSettings
from nnlib.data.file import SetSummary
from nnlib.errors import NnlibError
from nnlib.inspection.costs import Entries, Step, count_costs
from nnlib.inspection.scaling import COUNTS, MACHINES, Work, predict_efficiency, work_of
from nnlib.inspection.shapes import has_maps
from nnlib.model.network import Network, is_lazy
from nnlib.optim.rules import RULES
from nnlib.shards.plan import EXAMPLES, ITEMS, WHOLE, plan_of, why_whole
from nnlib.spec.types import LayerKind, NetworkSpec
from nnlib.util.columns import Narrow, format_fitted
from nnlib.util.memory import show_bytes

HOW = {
    ITEMS: "wide layers by items, in eight shards",
    EXAMPLES: "each batch by examples, in eight shards, so far on processors alone",
    WHOLE: "no layer is cut, each GPU would do all the work",
}
REPEATED = 4  # entries of a batch that are of one unit, on average: in MovieLens-20M, by batches of 256 examples
MEANING = (
    "efficiency, T(1) / (R T(R)), of one training on R GPUs: what a model says, not measured "
    "(docs/concepts/level3.md); "
    "trials side by side have 1.00"
)
HEADINGS = ("predicted on", *(f"{count} GPUs" for count in COUNTS))


def describe_cut(spec: NetworkSpec, settings: TrainSettings) -> Iterator[str]:
    """Yield a line on the whole, and one on each layer; NnlibError as `plan_of` raises it."""
    asked = (spec, settings.batch, settings.parallel)
    plan, reasons = plan_of(*asked), why_whole(*asked)
    yield f"several GPUs (parallel {settings.parallel.lower()}): {HOW[plan.kind]}"
    if plan.kind == EXAMPLES:
        yield "  each has all weights, updates its rows of them, and keeps the optimizer's state of these"
        return
    if has_maps(spec):
        yield f"  {next(iter(reasons.values()))}"
        return
    for n, why in reasons.items():
        layer = spec.layers[n]
        yield f"  {layer.name}: {layer.units:,} units, {f'whole on each: {why}' if why else 'cut by items'}"


def predict_work(spec: NetworkSpec, settings: TrainSettings, batch: int, entries: Mapping[int, Entries]) -> Work | None:
    """Return what the model of several GPUs is asked about, for batches of so many; None where nothing is cut."""
    plan = plan_of(spec, settings.batch, settings.parallel)
    if not plan.is_cut:
        return None
    lazy = [edge.number for edge in spec.edges if is_lazy(spec, edge)]
    found = {n: (one.count, one.touched) for n, one in entries.items()}
    work = work_of(spec, batch, RULES[settings.optimizer.lower()].states, plan.wide, found, lazy)
    return replace(work, by_examples=plan.kind == EXAMPLES)


def predict_from(spec: NetworkSpec, settings: TrainSettings, sets: Sequence[SetSummary]) -> Work | None:
    """Return the same of a network that was not resolved yet, from what is known of its data sets.

    None where nothing is cut, or where the network does not fit the data.
    """
    known, layers, entries = {one.name: one for one in sets}, [], {}
    for n, layer in enumerate(spec.layers):
        found = known.get(layer.data_set)
        if found is None:
            if layer.units is None:
                return None
            layers.append(layer)
            continue
        sparse = "sparse" in found.kind
        layers.append(
            replace(layer, units=found.width, sparse=sparse if layer.kind is LayerKind.INPUT else layer.sparse)
        )
        if layer.kind is LayerKind.INPUT and sparse:
            count = settings.batch * found.nonzeros / max(found.examples, 1)
            entries[n] = Entries(count, min(float(found.width), count / REPEATED))
    try:
        return predict_work(replace(spec, layers=tuple(layers)), settings, settings.batch, entries)
    except NnlibError:  # parallel: items, and nothing to cut
        return None


def describe_memory(
    network: Network, settings: TrainSettings, batch: int, entries: Mapping[int, Entries], several: int
) -> str:
    """Return what a training takes of each GPU: what belongs to cut layers is shared, all else is on every one.

    By examples a GPU has all weights, and its part of the batch and of the optimizer's state.
    """
    spec, states = network.spec, RULES[settings.optimizer.lower()].states
    plan = plan_of(spec, settings.batch, settings.parallel)
    by_examples = plan.kind == EXAMPLES
    costs = {
        cost.name: cost for cost in count_costs(network, entries, Step(batch, states, gpu=True, accumulate=several))
    }
    sizes = []
    for ranks in (1, *COUNTS):
        taken = 0.0
        for n, layer in enumerate(spec.layers):
            cost = costs[layer.name]
            own = n in plan.wide or any(edge.source in plan.wide for edge in spec.edges if edge.target == n)
            taken += cost.weights / (ranks if own else 1) + cost.state / (ranks if own or by_examples else 1)
            taken += cost.batch / (ranks if n in plan.wide or by_examples else 1)
        sizes.append(f"{show_bytes(int(taken))} on {ranks}")
    return f"memory of each GPU: {', '.join(sizes)}; with validation the best epoch's weights besides"


def describe_efficiency(work: Work, room: int) -> str:
    """Return a table of predicted efficiencies, and what they are."""
    rows = [
        (machine.name, *(f"{predict_efficiency(machine, work, count):.2f}" for count in COUNTS)) for machine in MACHINES
    ]
    return format_fitted(HEADINGS, rows, [False, *(True for _ in COUNTS)], Narrow(), room)
