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

import torch

from scripts.bench.common.pictures import PICTURES
from scripts.bench.common.torch_networks import Autoencoder, Classifier, Tensors, make_optimizer
from scripts.bench.common.torch_pictures import Pictures
from scripts.bench.common.workload import AUTOENCODER, MEMORY, STEP, serve
from scripts.bench.gpu.work import (
    BF16,
    CHANNELS_LAST,
    CHECKED,
    COMPILED,
    COMPILED_GRAPH,
    COMPILED_LAST,
    DENSE,
    EAGER,
    GRAPHED,
    MB,
    TF32,
    GpuWork,
    timed,
)

WARM = 3  # steps before a graph is captured; in them everything is compiled


@dataclass(frozen=True)
class Variant:
    """What is done to a training that PyTorch would else run operation by operation."""

    dense: bool = False  # the input is a dense matrix
    compiled: bool = False  # forward, loss and backward
    graph: bool = False  # a whole step
    channels_last: bool = False  # of images

    @property
    def compiled_optimizer(self) -> bool:
        """Whether the update is compiled, too."""
        return self.compiled and self.graph

    @property
    def fixed(self) -> bool:
        """Whether all batches must have one shape."""
        return self.compiled or self.graph


VARIANTS = {
    DENSE: Variant(dense=True),
    EAGER: Variant(),
    GRAPHED: Variant(graph=True),
    COMPILED: Variant(compiled=True),
    COMPILED_GRAPH: Variant(compiled=True, graph=True),
    CHANNELS_LAST: Variant(channels_last=True),
    COMPILED_LAST: Variant(compiled=True, channels_last=True),
}


def main() -> None:
    """Serve the work named on the command line."""
    work = GpuWork(**json.loads(sys.argv[1]))
    torch.set_float32_matmul_precision("high" if work.precision == TF32 else "highest")
    torch.backends.cudnn.allow_tf32 = work.precision == TF32  # PyTorch's default is True, whatever products have
    torch.backends.cudnn.benchmark = True  # the fastest way for these shapes
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
        model = _model(work, variant)
        self._start = model.start
        self._parameters = [torch.nn.Parameter(array.to(work.device, copy=True)) for array in self._start]
        form = {"foreach": True} if variant.compiled_optimizer else {}
        if self._cuda and (variant.graph or variant.compiled_optimizer):  # it counts its steps on the GPU then
            form["capturable"] = True
        self._optimizer = make_optimizer(work, self._parameters, **form)
        loss = _autocast(model.loss, work.device) if work.precision == BF16 else model.loss
        self._loss: Callable[..., torch.Tensor] = torch.compile(loss) if variant.compiled else loss
        self._update: Callable[[], object] = self._optimizer.step
        if variant.compiled_optimizer:
            self._update = torch.compile(self._optimizer.step)
        self._all = [tuple(part.to(work.device) for part in batch) for batch in model.batches]
        self._batches = itertools.cycle(self._all)
        self._step = self._plain
        self._prepare(variant)

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
        """Return the most that was in use."""
        return {"mb": torch.cuda.max_memory_allocated() / MB if self._cuda else None}


def _model(work: GpuWork, variant: Variant) -> Autoencoder | Classifier | Pictures:
    if work.kind in PICTURES:
        return Pictures(work, variant.channels_last)
    return Autoencoder(work, variant.dense, variant.fixed) if work.kind == AUTOENCODER else Classifier(work)


def _autocast(loss: Callable[..., torch.Tensor], device: str) -> Callable[..., torch.Tensor]:
    """Return a loss whose products are of bfloat16, with weights, sums and updates in float32."""

    def rounded(*given: Any) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, cache_enabled=False):  # which a graph could not use again
            return loss(*given)

    return rounded


if __name__ == "__main__":
    main()
