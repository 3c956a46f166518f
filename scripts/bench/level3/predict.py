"""What the model of several GPUs predicts, beside what others have published of theirs.

`python -m scripts.bench.level3.predict` prints it. Nothing is measured here. The tables stand in
docs/concepts/level3.md and beyond-one-machine.md, apart from measured ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from docs._generate.markdown import table
from nnlib.inspection.scaling import COUNTS, MACHINES, Machine, Matrix, Work, predict_efficiency, step_seconds
from scripts.bench.common.harness import RESULTS

NAME = "level3_predicted"
ENTRIES = 134  # of an example of MovieLens-20M, on average

# Three quarters of NVIDIA's data sheets, of one of the two GPUs of a K80 (4.4 TFLOP/s, 240 GB/s) and of a K520 (2.4
# TFLOP/s, 160 GB/s), and of an M40 (6.8, 288); PCI 3 x16, and half of that where a hypervisor forbids peer-to-peer.
M40 = Machine("M40", 5.1e12, 216e9, 10e9, 30e-6, 200e-6)
K80 = Machine("K80", 3.3e12, 180e9, 10e9, 30e-6, 200e-6)
K520 = Machine("K520", 1.8e12, 120e9, 5e9, 50e-6, 200e-6)
# Two machines of eight H100 each, with a network card of 400 Gbit/s (50 GB/s) for each GPU: the slowest link counts.
TWO_MACHINES = Machine("2 machines", 50e12, 2.8e12, 40e9, 40e-6)
WIDTHS = (128, 256, 1024)
MEMORY = {"A10G, 24 GB": 24e9, "H100, 80 GB": 80e9}
USED = 0.8  # of a GPU's memory, by weights and states; the rest is a batch's
SHAPES = (
    (10_000, 128, 256),
    (10_000, 1024, 256),
    (27_278, 1024, 256),
    (27_278, 1024, 1024),
    (100_000, 512, 1024),
    (1_000_000, 256, 1024),
    (10_000_000, 128, 1024),
)


@dataclass(frozen=True)
class Published:
    """Efficiencies by number of GPUs that somebody has published, and the machine."""

    source: str
    machine: Machine
    efficiency: dict[int, float]


# Seconds of an epoch, read off a bar chart to half a second: on 1, 2 and 4 GPUs 12.5, 7, 4 and 43, 29, 20; on 1, 2 and
# 8 of K80s 23, 14, 4.5.
DSSTNE = (
    Published("DSSTNE, MovieLens-20M, strong", M40, {2: 12.5 / 7 / 2, 4: 12.5 / 4 / 4}),
    Published("DSSTNE, MovieLens-20M, strong", K80, {2: 23 / 14 / 2, 8: 23 / 4.5 / 8}),
    Published("DSSTNE, MovieLens-20M, strong", K520, {2: 43 / 29 / 2, 4: 43 / 20 / 4}),
)


@dataclass(frozen=True)
class Convolutional:
    """A network that was trained by examples, the batch growing with the GPUs: FLOPs and bytes of its gradient."""

    name: str
    efficiency: float  # published, on 8 K80
    flops: float  # of an example, three passes
    parameters: float
    batch: int  # of a GPU; assumed


MXNET = (
    Convolutional("MXNet, ResNet-152, weak", 7.7 / 8, 3 * 22.6e9, 60.2e6, 16),
    Convolutional("MXNet, ResNet-50, weak", 0.94, 3 * 8.2e9, 25.6e6, 32),
)


def autoencoder(n: int, h: int, b: int, states: int = 2) -> Work:
    """Return the work of n-h-h-h-n on sparse inputs; `states` is 2 for Adam, 1 for momentum."""
    entries = float(ENTRIES * b)
    wide = Matrix(n, h, True, True, entries, min(n - 1.0, entries / 4))
    return Work((wide, Matrix(h, h), Matrix(h, h), Matrix(h, n, True, output=True)), b, states)


def weak(network: Convolutional, ranks: int) -> float:
    """Return T(1) / T(R) by examples, when no exchange is hidden behind computing."""
    alone = K80.floor + network.batch * network.flops / K80.flops
    return alone / (alone + sum_seconds(K80, network.parameters, ranks))


def sum_seconds(machine: Machine, parameters: float, ranks: int) -> float:
    """Return the seconds of a sum of float32 gradients over the GPUs of a machine."""
    return machine.latency + 2 * 4 * parameters * (ranks - 1) / ranks / machine.link if ranks > 1 else 0.0


def published_rows() -> Iterator[tuple[str, ...]]:
    """Yield what was published, and what the model says of it."""
    work = autoencoder(27_278, 1024, 256, states=1)
    for one in DSSTNE:
        for ranks, known in one.efficiency.items():
            said = predict_efficiency(one.machine, work, ranks)
            yield one.source, one.machine.name, str(ranks), f"{known:.2f}", f"{said:.2f}"
    for network in MXNET:
        yield network.name, "K80", "8", f"{network.efficiency:.2f}", f"{weak(network, 8):.2f}"


def predicted_rows() -> Iterator[tuple[str, ...]]:
    """Yield what is predicted of networks of this project's kind, for each machine on 2, 4 and 8 GPUs."""
    for n, h, b in SHAPES:
        work = autoencoder(n, h, b)
        found = [" ".join(f"{predict_efficiency(one, work, r):.2f}" for r in COUNTS) for one in MACHINES]
        yield f"{n:,} x {h:,}, batch {b:,}", f"{1e3 * step_seconds(MACHINES[0], work):,.2f}", *found


def widest_rows() -> Iterator[tuple[str, ...]]:
    """Yield how many items an autoencoder can have: weights of both ends and two states of Adam, four bytes each."""
    for h in WIDTHS:
        counts = [USED * memory * ranks / (2 * 3 * 4 * h) for memory in MEMORY.values() for ranks in (1, 8)]
        yield f"{h:,}", *(f"{count / 1e6:,.1f} M" for count in counts)


def beyond_rows() -> Iterator[tuple[str, ...]]:
    """Yield what 8 GPUs of one machine and 16 of two would take for a step: milliseconds and efficiency."""
    for n, h, b in SHAPES[2:]:
        work = autoencoder(n, h, b)
        one = step_seconds(MACHINES[0], work)
        found = ((MACHINES[0], 8), (TWO_MACHINES, 16))
        cells = [step_seconds(machine, work, ranks) for machine, ranks in found]
        texts = [f"{1e3 * s:,.2f} ({one / ranks / s:.2f})" for s, (_, ranks) in zip(cells, found, strict=True)]
        yield f"{n:,} x {h:,}, batch {b:,}", f"{1e3 * one:,.2f}", *texts


PUBLISHED = ("published by", "GPU", "GPUs", "published", "predicted")
WIDEST = ("hidden units", *(f"{count} x {name}" for name in MEMORY for count in (1, 8)))
BEYOND = ("items x hidden units", "1 GPU, ms", "8 GPUs, ms", "16 GPUs of 2 machines, ms")
PREDICTED = ("items x hidden units", "ms on one H100", *(machine.name for machine in MACHINES))


def tables() -> dict[str, tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Return headings and rows of each table, by its name."""
    return {
        "published": (PUBLISHED, list(published_rows())),
        "networks": (PREDICTED, list(predicted_rows())),
        "widest": (WIDEST, list(widest_rows())),
        "beyond one machine": (BEYOND, list(beyond_rows())),
    }


def main() -> int:
    """Print the tables, and keep them."""
    made = tables()
    print("\n\n".join(table(*one) for one in made.values()))
    kept = {"bench": NAME, "predicted, not measured": {name: rows for name, (_, rows) in made.items()}}
    (RESULTS / f"{NAME}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
