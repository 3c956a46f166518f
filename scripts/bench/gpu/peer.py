"""The peers of the GPU's training: PyTorch with a dense input, with EmbeddingBag, compiled, and as a CUDA graph.

Its batches lie on the GPU before anything is timed, and every variant makes its dense target there, from the numbers of
the items. Compiled variants and graphs need shapes that do not change: their rows are filled up, each by about as
much, with the number of a row of weights that EmbeddingBag leaves out (`padding_idx`).
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from scripts.bench.common.workload import AUTOENCODER, MEMORY, STEP, images, purchases, serve
from scripts.bench.gpu.work import (
    ALL_COMPILED,
    CHECKED,
    COMPILED,
    COMPILED_GRAPH,
    DENSE,
    EAGER,
    GRAPHED,
    MB,
    GpuWork,
    filled,
    timed,
    weights,
)

Tensors = tuple[torch.Tensor, ...]

WARM = 3  # steps before a graph is captured; in them everything is compiled


@dataclass(frozen=True)
class Variant:
    """What is done to a training that PyTorch would else run operation by operation."""

    dense: bool = False  # the input is a dense matrix
    compiled: bool = False  # forward, loss and backward
    compiled_optimizer: bool = False
    graph: bool = False

    @property
    def fixed(self) -> bool:
        """Whether all batches must have one shape."""
        return self.compiled or self.graph


VARIANTS = {
    DENSE: Variant(dense=True),
    EAGER: Variant(),
    GRAPHED: Variant(graph=True),
    COMPILED: Variant(compiled=True),
    ALL_COMPILED: Variant(compiled=True, compiled_optimizer=True),
    COMPILED_GRAPH: Variant(compiled=True, compiled_optimizer=True, graph=True),
}


def main() -> None:
    """Serve the work named on the command line."""
    work = GpuWork(**json.loads(sys.argv[1]))
    torch.set_float32_matmul_precision("high" if work.tf32 else "highest")
    training = Training(work, VARIANTS[work.variant])
    losses = training.losses()
    timed(training.step, training.settle, work.warm)
    commands: dict[str, Callable[[], dict[str, float | None]]] = {
        STEP: lambda: {"ms": timed(training.step, training.settle, work.steps)},
        MEMORY: training.memory,
    }
    serve({"losses": losses}, commands)


class Training:
    """A training on batches that are on the GPU, in turn."""

    def __init__(self, work: GpuWork, variant: Variant) -> None:
        self._cuda = work.device == "cuda"
        if variant.graph and not self._cuda:
            raise SystemExit("a CUDA graph needs a GPU")
        model = Autoencoder(work, variant) if work.kind == AUTOENCODER else Classifier(work)
        self._start = model.start
        self._parameters = [torch.nn.Parameter(array.to(work.device, copy=True)) for array in self._start]
        self._optimizer = self._made_optimizer(work, variant)
        self._loss: Callable[..., torch.Tensor] = torch.compile(model.loss) if variant.compiled else model.loss
        self._update: Callable[[], object] = self._optimizer.step
        if variant.compiled_optimizer:
            self._update = torch.compile(self._optimizer.step)
        self._all = [tuple(part.to(work.device) for part in batch) for batch in model.batches]
        self._batches = itertools.cycle(self._all)
        self._step = self._plain
        self._prepare(variant)

    def _made_optimizer(self, work: GpuWork, variant: Variant) -> torch.optim.Optimizer:
        """Return the fastest form of an optimizer; what is compiled or captured counts its steps on the GPU."""
        on_gpu = {"capturable": True} if self._cuda and (variant.graph or variant.compiled_optimizer) else {}
        if work.optimizer == "adam":
            form = {"foreach": True} if variant.compiled_optimizer else {"fused": True}
            return torch.optim.Adam(self._parameters, lr=work.rate, **form, **on_gpu)
        return torch.optim.RMSprop(self._parameters, lr=work.rate, alpha=0.9, foreach=True, **on_gpu)

    def _prepare(self, variant: Variant) -> None:
        """Compile and capture what is to be, then put everything back to where training starts."""
        stream = torch.cuda.Stream() if variant.graph else None  # what is captured must have run on another stream
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                self._plain()
        self.settle()
        if variant.graph:
            self._capture()
        with torch.no_grad():
            for parameter, start in zip(self._parameters, self._start, strict=True):
                parameter.copy_(start)
        for state in self._optimizer.state.values():
            for value in state.values():
                value.zero_()
        self._batches = itertools.cycle(self._all)
        self.settle()
        if self._cuda:
            torch.cuda.reset_peak_memory_stats()

    def _plain(self) -> torch.Tensor:
        return self._on(next(self._batches))

    def _on(self, batch: Tensors) -> torch.Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._loss(self._parameters, *batch)
        loss.backward()
        self._update()
        return loss.detach()

    def _capture(self) -> None:
        """Capture a whole step; later ones copy their batch to where this one's lies."""
        batch = tuple(part.clone() for part in self._all[0])
        graph = torch.cuda.CUDAGraph()
        self._optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            loss = self._on(batch)

        def replayed() -> torch.Tensor:
            for target, part in zip(batch, next(self._batches), strict=True):
                target.copy_(part, non_blocking=True)
            graph.replay()
            return loss

        self._step = replayed

    def step(self) -> torch.Tensor:
        """Train on the next batch; return its loss, which may not be known yet."""
        return self._step()

    def losses(self) -> list[float]:
        """Train on the first batches and return the loss of each."""
        return [self.step().item() for _ in range(CHECKED)]

    def settle(self) -> None:
        """Wait for the GPU."""
        if self._cuda:
            torch.cuda.synchronize()

    def memory(self) -> dict[str, float | None]:
        """Return the most that was in use, and the most that was taken for it."""
        if not self._cuda:
            return {"mb": None, "reserved_mb": None}
        return {
            "mb": torch.cuda.max_memory_allocated() / MB,
            "reserved_mb": torch.cuda.max_memory_reserved() / MB,
        }


class Autoencoder:
    """27278 - 3 x hidden - 27278: what training starts with, its batches, and the loss of one."""

    def __init__(self, work: GpuWork, variant: Variant) -> None:
        self._dense, self._shape = variant.dense, (work.batch, work.items)
        table, *others = weights(work)
        first = torch.from_numpy(table)
        if variant.dense:
            first = first.T.contiguous()
        elif variant.fixed:
            first = torch.cat([first, torch.zeros(1, work.hidden)])
        self._padding = work.items if variant.fixed and not variant.dense else None
        self.start = _linear(first, others)
        found = purchases(work)
        most = max(len(indices) for _, indices in found)
        self.batches = [self._tensors(*filled(*batch, most, work.items) if variant.fixed else batch) for batch in found]

    def _tensors(self, indptr: Any, indices: Any) -> Tensors:
        """Return a batch as items, where the items of each row start, and places in the flat target."""
        examples, items = self._shape
        rows = np.repeat(np.arange(examples), np.diff(indptr))
        places = np.where(indices < items, rows * items + indices, examples * items)
        starts = torch.from_numpy(indptr[:-1].astype(np.int32))
        return torch.from_numpy(indices.astype(np.int32)), starts, torch.from_numpy(places.astype(np.int64))

    def loss(self, parameters: list[Any], items: Any, starts: Any, places: Any) -> torch.Tensor:
        """Return the cross entropy, summed over the units."""
        table, bias, *others = parameters
        size = self._shape[0] * self._shape[1]
        flat = torch.zeros(size + 1, device=places.device).scatter_(0, places, 1.0)  # the last one is for filling up
        target = flat[:size].view(self._shape)
        if self._dense:
            h = F.linear(target, table, bias)
        else:
            h = F.embedding_bag(items, table, starts, mode="sum", padding_idx=self._padding) + bias
        z = _above(F.relu(h), others)
        return F.binary_cross_entropy_with_logits(z, target, reduction="sum") / self._shape[0]


class Classifier:
    """784 - 512 - 512 - 10."""

    def __init__(self, work: GpuWork) -> None:
        first, *others = weights(work)
        self.start = _linear(torch.from_numpy(first).T.contiguous(), others)
        self.batches = [(torch.from_numpy(x), torch.from_numpy(classes)) for x, classes in images(work)]

    def loss(self, parameters: list[Any], x: Any, classes: Any) -> torch.Tensor:
        """Return the cross entropy."""
        weight, bias, *others = parameters
        return F.cross_entropy(_above(F.relu(F.linear(x, weight, bias)), others), classes)


def _linear(first: torch.Tensor, others: list[Any]) -> list[torch.Tensor]:
    """Return weights (out, in) and biases, as nn.Linear has them; the first weights as they are."""
    found = [first]
    for matrix in others:
        found += [torch.zeros(matrix.shape[0]), torch.from_numpy(matrix).T.contiguous()]
    return [*found, torch.zeros(others[-1].shape[1])]


def _above(h: torch.Tensor, parameters: list[Any]) -> torch.Tensor:
    """Return the sums of the last layer."""
    *hidden, weight, bias = parameters
    for w, b in zip(hidden[::2], hidden[1::2], strict=True):
        h = F.relu(F.linear(h, w, b))
    return F.linear(h, weight, bias)


if __name__ == "__main__":
    main()
