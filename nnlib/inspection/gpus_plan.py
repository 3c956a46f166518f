"""What several GPUs would do for a training, in words: which layers are cut, why others are not, what that brings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from nnlib.contract import TrainSettings
from nnlib.data.file import SetSummary
from nnlib.errors import NnlibError
from nnlib.inspection.costs import Entries, Step, count_costs
from nnlib.inspection.scaling import COUNTS, MACHINES, WORD, WORTH, Work, predict_efficiency, work_of
from nnlib.inspection.shapes import fit_sets, has_maps
from nnlib.model.network import Network, is_lazy, norm_count
from nnlib.optim.rules import RULES
from nnlib.shards.plan import EXAMPLES, ITEMS, WHOLE, normalized_by_batch, plan_of, why_whole
from nnlib.shards.tree import SHARDS
from nnlib.spec.types import LayerKind, NetworkSpec
from nnlib.util.columns import Narrow, format_fitted
from nnlib.util.memory import show_bytes

HOW = {
    ITEMS: "wide layers by items, in eight shards",
    EXAMPLES: "each batch by examples, in eight shards",
    WHOLE: "no layer is cut, each GPU would do all the work",
}
AUTO = "auto"
JUDGED_ON = MACHINES[0]  # the machine that favours several GPUs most
REPEATED = 4  # entries of a batch that are of one unit, on average: in MovieLens-20M, by batches of 256 examples
MEANING = (
    "efficiency, T(1) / (R T(R)), of one training on R GPUs: what a model says, not measured "
    "(docs/concepts/level3.md); "
    "trials side by side have 1.00"
)
HEADINGS = ("predicted on", *(f"{count} GPUs" for count in COUNTS))


def describe_cut(spec: NetworkSpec, settings: TrainSettings) -> Iterator[str]:
    """Yield a line on the whole, and one on each layer; NnlibError as `plan_of` raises it."""
    chosen = choose_for_several(spec, settings)
    asked = (spec, settings.batch, chosen.parallel)
    plan, reasons = plan_of(*asked), why_whole(*asked)
    yield f"several GPUs (parallel {settings.parallel.lower()}): {HOW[plan.kind]}"
    if plan.kind == EXAMPLES:
        yield "  each has all weights, updates a slice of them, and keeps the optimizer's state of it"
        normalized = normalized_by_batch(spec)
        how = "layer by layer" if normalized else "one after the other"
        if normalized:
            count, sent = len(normalized), 2 * WORD * sum(norm_count(spec, n) for n in normalized)
            layers = "1 layer is" if count == 1 else f"{count} layers are"
            exchanges = f"{2 * count if count > 1 else 'two'} exchanges in a step"
            yield f"  {layers} normalized by the whole batch: {exchanges}, of {show_bytes(2 * sent)} to each other"
        yield f"  one GPU alone runs all eight shards, {how}; not measured on GPUs yet"
        if chosen is not settings:
            yield f"  so in jobs that ask for several GPUs: two are predicted to be faster than one ({JUDGED_ON.name})"
            yield "  with one GPU, and for nnlib train, auto cuts nothing of it"
        return
    if has_maps(spec):
        yield f"  {next(iter(reasons.values()))}"
    else:
        for n, why in reasons.items():
            layer = spec.layers[n]
            yield f"  {layer.name}: {layer.units:,} units, {f'whole on each: {why}' if why else 'cut by items'}"
    if not plan.is_cut and not why_not(spec, EXAMPLES):
        yield "  parallel examples would cut its batches"


def choose_for_several(spec: NetworkSpec, settings: TrainSettings) -> TrainSettings:
    """Return the settings with which a job trains that may have several GPUs; the network has all its units.

    Where `auto` cuts no layer by items, it becomes `examples`, if two GPUs are predicted to be faster than one. That is
    asked of one kind of machine, whatever the job gets: its training has the same bits wherever it goes on.
    """
    if settings.parallel.lower() != AUTO or plan_of(spec, settings.batch).is_cut or why_not(spec, EXAMPLES):
        return settings
    found = replace(settings, parallel=EXAMPLES)
    work = predict_work(spec, found, settings.batch, {})  # without sparse inputs, of which batches have entries
    return found if work and predict_efficiency(JUDGED_ON, work, COUNTS[0]) > WORTH else settings


def why_not(spec: NetworkSpec, parallel: str) -> str:
    """Return why a network cannot be cut by `items`, or by `examples`; empty where it can be."""
    try:
        plan_of(spec, 1, parallel)
    except NnlibError as error:
        return str(error)
    return ""


def predict_work(spec: NetworkSpec, settings: TrainSettings, batch: int, entries: Mapping[int, Entries]) -> Work | None:
    """Return what the model of several GPUs is asked about, for batches of so many; None where nothing is cut."""
    plan = plan_of(spec, settings.batch, settings.parallel)
    if not plan.is_cut:
        return None
    lazy = [edge.number for edge in spec.edges if is_lazy(spec, edge)]
    found = {n: (one.count, one.touched) for n, one in entries.items()}
    work = work_of(spec, batch, RULES[settings.optimizer.lower()].states, plan.wide, found, lazy)
    if plan.kind != EXAMPLES:
        return work
    return replace(work, by_examples=True, normalized=tuple(norm_count(spec, n) for n in normalized_by_batch(spec)))


def predict_from(spec: NetworkSpec, settings: TrainSettings, sets: Sequence[SetSummary]) -> Work | None:
    """Return the same of a job that asks for several GPUs, from what is known of its data sets.

    None where nothing is cut, or where the network does not fit the data.
    """
    known, entries = {one.name: one for one in sets}, {}
    for n, layer in enumerate(spec.layers):
        found = known.get(layer.data_set)
        if found is not None and layer.kind is LayerKind.INPUT and "sparse" in found.kind:
            count = settings.batch * found.nonzeros / max(found.examples, 1)
            entries[n] = Entries(count, min(float(found.width), count / REPEATED))
    resolved = fit_sets(spec, sets)
    if resolved is None:
        return None
    try:
        return predict_work(resolved, choose_for_several(resolved, settings), settings.batch, entries)
    except NnlibError:  # there is nothing to cut
        return None


def describe_memory(
    network: Network, settings: TrainSettings, batch: int, entries: Mapping[int, Entries], several: int
) -> str:
    """Return what a training takes of each GPU: what belongs to cut layers is shared, all else is on every one.

    By examples a GPU has all weights, one shard of the batch at a time, or all of its own where batch normalization
    learns, and its part of the optimizer's state.
    """
    spec, states = network.spec, RULES[settings.optimizer.lower()].states
    plan = plan_of(spec, settings.batch, settings.parallel)
    by_examples = plan.kind == EXAMPLES
    is_together = by_examples and bool(normalized_by_batch(spec))
    size, kept = (math.ceil(batch / SHARDS), 1) if by_examples else (batch, several)
    step = Step(size, states, gpu=True, accumulate=kept)
    costs = {cost.name: cost for cost in count_costs(network, entries, step)}
    sizes = []
    for ranks in (1, *COUNTS):
        taken = 0.0
        for n, layer in enumerate(spec.layers):
            cost = costs[layer.name]
            own = n in plan.wide or any(edge.source in plan.wide for edge in spec.edges if edge.target == n)
            taken += cost.weights / (ranks if own else 1) + cost.state / (ranks if own or by_examples else 1)
            taken += cost.batch * (SHARDS // ranks if is_together else 1) / (ranks if n in plan.wide else 1)
            taken += cost.weights * _count_gradients(ranks, several, is_together) if by_examples else 0.0
        sizes.append(f"{show_bytes(int(taken))} on {ranks}")
    return f"memory of each GPU: {', '.join(sizes)}; with validation the best epoch's weights besides"


def _count_gradients(ranks: int, several: int, is_together: bool) -> float:
    """Return how many gradients of all weights a rank keeps by examples besides the one that is updated by.

    They are the tree's branches, one for each time that its shards are halved, or those of all shards that go together;
    what the others give it; and its part of the sum of several batches.
    """
    own = SHARDS // ranks
    return (own if is_together else own.bit_length() - 1) + (ranks > 1) + (several > 1) / ranks


def describe_efficiency(work: Work, room: int) -> str:
    """Return a table of predicted efficiencies, and what they are."""
    rows = [
        (machine.name, *(f"{predict_efficiency(machine, work, count):.2f}" for count in COUNTS)) for machine in MACHINES
    ]
    return format_fitted(HEADINGS, rows, [False, *(True for _ in COUNTS)], Narrow(), room)
