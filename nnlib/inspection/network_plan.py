"""`nnlib inspect NETWORK.json --data FILE`: what a training would take, before it is begun."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nnlib.contract import TrainSettings
from nnlib.devices import GPU, backend_of, open_device
from nnlib.engines import Rates
from nnlib.errors import DataError
from nnlib.inspection.compute_plan import describe_compute_plan
from nnlib.inspection.costs import Entries, LayerCost, Step, count_costs, count_entries, outline
from nnlib.inspection.gpus_plan import (
    MEANING,
    choose_for_several,
    describe_cut,
    describe_efficiency,
    describe_memory,
    predict_work,
)
from nnlib.inspection.shapes import describe_shapes, has_maps
from nnlib.model.batches import batch_of, batches_of, epoch_order
from nnlib.model.examples import Examples
from nnlib.model.network import Network, needs_whole_gradients
from nnlib.ops.losses import MARGINS
from nnlib.optim.rules import RULES
from nnlib.spec.fine_tuning import describe_tuning
from nnlib.spec.types import LayerKind, NetworkSpec
from nnlib.util.arrays import Longs
from nnlib.util.columns import Narrow, fold_text, format_fitted
from nnlib.util.memory import show_bytes

SAMPLED = 4  # batches of which entries are counted and preparation is measured
HEADINGS = ("layer", "units", "parameters", "weights", "state", "batch", "GFLOP", "moved", "ms")
NARROW = Narrow(drop=("moved", "GFLOP", "batch", "state", "weights"), fold={"layer": 8})


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """A network on data: what each layer takes, how fast the device is, and how long a batch takes to prepare."""

    network: Network
    examples: Examples
    settings: TrainSettings
    threads: int
    device: str
    step: Step
    entries: Mapping[int, Entries]
    costs: Sequence[LayerCost]
    rates: Rates
    prepare: float  # seconds

    @property
    def step_seconds(self) -> float:
        """The estimate of a step. A GPU's batches are prepared beside it, those of processors before it."""
        layers = sum(cost.seconds(self.rates) for cost in self.costs)
        return max(layers, self.prepare / self.threads) if self.device == GPU else layers + self.prepare


def plan_network(
    spec: NetworkSpec, examples: Examples, settings: TrainSettings, threads: int, device: str
) -> NetworkPlan:
    """Count what a step takes and measure this machine; MachineError where the device cannot be used, DataError.

    `spec` has all its units; `device` is cpu or gpu. Memory is taken for a few batches alone, not for the network.
    """
    if not examples.count:
        raise DataError(f"{examples.file}: 0 examples are not legal, legal: 1 or more")
    network, size = outline(spec), min(settings.batch, examples.count)
    order = epoch_order(settings.seed, 1, examples.count, spec.shuffle)
    places = batches_of(examples.count, size)
    batches = [order[low:high] for low, high in places[:SAMPLED]]
    entries = count_entries(examples, batches)
    gpu = device == GPU
    whole = not gpu and (bool(settings.clip) or needs_whole_gradients(spec))
    several = min(settings.accumulate, len(places))
    step = Step(size, RULES[settings.optimizer.lower()].states, gpu, whole, threads, several)
    inner = [layer.units or 0 for layer in spec.layers if layer.kind is LayerKind.HIDDEN]
    with open_device(device, threads) as (backend, _):
        rates = backend.rates(threads, size, max(inner, default=1))
    prepare = _prepare_seconds(spec, examples, batches)
    costs = count_costs(network, entries, step)
    return NetworkPlan(network, examples, settings, threads, device, step, entries, costs, rates, prepare)


def _prepare_seconds(spec: NetworkSpec, examples: Examples, batches: Sequence[Longs]) -> float:
    """Return how long a batch takes to prepare on one thread: the fastest, as others may be read from a file."""
    found = []
    for rows in (*batches, batches[0]):
        started = time.perf_counter()
        batch_of(spec, examples, rows)
        found.append(time.perf_counter() - started)
    return min(found)


def describe_network_plan(plan: NetworkPlan, room: int) -> str:
    """Return the plan as lines of at most `room` columns; long names alone are wider."""
    rows = [_cells(cost, plan.rates) for cost in plan.costs]
    right = [False] + [True] * (len(HEADINGS) - 1)
    count = len(batches_of(plan.examples.count, plan.settings.batch))
    title = f"{plan.examples.file}: {plan.examples.count:,} examples, {count:,} batches an epoch"
    shapes = [*describe_shapes(plan.network.spec, room), ""] if has_maps(plan.network.spec) else []
    lines = [
        *fold_text(title, room),
        "",
        *shapes,
        format_fitted(HEADINGS, rows, right, NARROW, room),
        "",
        *(part for line in _sums(plan) for part in fold_text(line, room, "  ")),
        "",
    ]
    backend = backend_of(plan.device)
    how = describe_compute_plan(plan.network, plan.examples, plan.threads, backend, plan.step.batch)
    lines += [part for line in how.split("\n") for part in fold_text(line, room, "    ")]
    return "\n".join([*lines, "", *_on_several(plan, room)])


def _on_several(plan: NetworkPlan, room: int) -> Iterator[str]:
    """Yield lines on how several GPUs would share the training, and what that is predicted to bring."""
    spec, step = plan.network.spec, plan.step
    for line in describe_cut(spec, plan.settings):
        yield from fold_text(line, room, "    ")
    settings = choose_for_several(spec, plan.settings)
    work = predict_work(spec, settings, step.batch, plan.entries)
    if work is not None:
        yield from ("", describe_efficiency(work, room), "", *fold_text(MEANING, room, "  "))
        memory = describe_memory(plan.network, settings, step.batch, plan.entries, step.accumulate)
        yield from fold_text(memory, room, "  ")


def _cells(cost: LayerCost, rates: Rates) -> tuple[str, ...]:
    sizes = (cost.weights, cost.state, cost.batch)
    return (
        cost.name,
        f"{cost.units:,}",
        f"{cost.parameters:,}" if cost.parameters else "-",
        *(_short(size) for size in sizes),
        _digits(cost.flops / 1e9),
        _short(cost.moved),
        _digits(1e3 * cost.seconds(rates)),
    )


def _sums(plan: NetworkPlan) -> Iterator[str]:
    """Yield what follows the table, a paragraph each."""
    costs, rates, size = plan.costs, plan.rates, plan.step.batch
    weights, state, batch = (sum(getattr(cost, name) for cost in costs) for name in ("weights", "state", "batch"))
    yield (
        f"memory: {show_bytes(weights + state + batch)}: weights {show_bytes(weights)}, state of "
        f"{plan.settings.optimizer.lower()} {show_bytes(state)}, a batch {show_bytes(batch)}; with validation the best "
        f"epoch's weights besides, {show_bytes(weights)}"
    )
    entries = ", ".join(
        f"{plan.network.spec.layers[n].name} {one.count:,.0f} entries in {one.touched:,.0f} units"
        for n, one in sorted(plan.entries.items())
    )
    sums = [sum(getattr(cost, name) for cost in costs) for name in ("flops", "moved")]
    yield (
        f"a batch of {size}: {_digits(sums[0] / 1e9)} GFLOP, {show_bytes(sums[1])} moved"
        + (f"; {entries}" if entries else "")
        + (f"; {plan.settings.accumulate} make an update" if plan.settings.accumulate > 1 else "")
    )
    b, k, n = rates.product
    where = "GPU" if plan.device == GPU else f"{plan.threads} threads" if plan.threads > 1 else "1 thread"
    yield (
        f"this machine ({where}, measured just now): a product of {b} x {k} by {k} x {n} {_digits(rates.flops / 1e9)} "
        f"GFLOP/s, a copy {_digits(rates.bytes_moved / 1e9)} GB/s, exp {_digits(rates.activations / 1e9)} G/s"
    )
    seconds = plan.step_seconds
    beside = "beside it on each thread" if plan.device == GPU else "of it"
    per_epoch = seconds * plan.examples.count / size
    yield (
        f"estimate: {_digits(1e3 * seconds)} ms a batch, {_digits(1e3 * plan.prepare)} ms {beside} to prepare it; "
        f"{size / seconds:,.0f} examples/s, {_digits(per_epoch)} s an epoch. How good such estimates are: "
        "docs/performance.md#inspecting"
    )
    for layer in plan.network.spec.layers:
        if layer.kind is LayerKind.OUTPUT:
            yield f"{layer.name}: each batch computes all {layer.units:,} units, its cost grows with the width"
    for text in describe_tuning(plan.network.spec.tuning):
        yield f"{text}; the figures are of a training of all layers"
    if plan.network.spec.error in MARGINS:
        yield "margins: units beyond them cost less than this says, more of them the longer the network has trained"


def _short(count: float) -> str:
    """Return bytes in as few characters as there can be, such as `1.5G`."""
    if not count:
        return "-"
    for unit in ("", "K", "M"):
        if count < 1024:
            return f"{count:.0f}{unit}"
        count /= 1024
    return f"{count:.1f}G"


def _digits(value: float) -> str:
    """Return three digits."""
    return "-" if not value else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
