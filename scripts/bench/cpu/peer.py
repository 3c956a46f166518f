"""The peer of the CPU benchmark: PyTorch on the CPU, in its fastest variant. It has an environment of its own."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812

from scripts.bench.common.workload import AUTOENCODER, IMAGES, Work, activations, images, purchases
from scripts.bench.cpu.serve import serve


def main() -> None:
    """Serve the work named on the command line."""
    work = Work(**json.loads(sys.argv[1]))
    torch.set_num_threads(work.threads)
    torch.manual_seed(1)
    make = {AUTOENCODER: autoencoder, IMAGES: classifier}.get(work.kind, ranking)
    serve(work, make(work))


def autoencoder(work: Work) -> Callable[[], float]:
    """A sum of rows at the input, which beats a dense and a sparse product; then fused or foreach updates."""
    batches = itertools.cycle([_tensors(work, *batch) for batch in purchases(work)])
    table = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(work.items, work.hidden)))
    bias = torch.nn.Parameter(torch.zeros(work.hidden))
    layers = [_linear(work.hidden, work.hidden), _linear(work.hidden, work.hidden), _linear(work.hidden, work.items)]
    optimizer = _optimizer(work, [table, bias, *(p for layer in layers for p in layer.parameters())])
    gate = math.log(work.zero_target / (1 - work.zero_target)) if work.zero_target else None

    def step() -> float:
        indices, offsets, rows = next(batches)
        target = torch.zeros(work.batch, work.items)
        target[rows, indices] = 1.0
        optimizer.zero_grad(set_to_none=True)
        h = F.relu(F.embedding_bag(indices, table, offsets, mode="sum") + bias)
        for layer in layers[:-1]:
            h = F.relu(layer(h))
        z = layers[-1](h)
        counts = None if gate is None else torch.logical_or(z.detach() > gate, target > 0).to(z.dtype)
        loss = F.binary_cross_entropy_with_logits(z, target, counts, reduction="sum") / work.batch
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def classifier(work: Work) -> Callable[[], float]:
    """Dense layers of 512 units and a softmax."""
    batches = itertools.cycle([(torch.from_numpy(x), torch.from_numpy(t)) for x, t in images(work)])
    layers = [_linear(784, 512), _linear(512, 512), _linear(512, 10)]
    optimizer = _optimizer(work, [p for layer in layers for p in layer.parameters()])

    def step() -> float:
        h, classes = next(batches)
        optimizer.zero_grad(set_to_none=True)
        for layer in layers[:-1]:
            h = F.relu(layer(h))
        loss = F.cross_entropy(layers[-1](h), classes)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def ranking(work: Work) -> Callable[[], float]:
    """The best items of a batch of users, without those that they have; a step is one batch."""
    seen = [_tensors(work, *batch) for batch in purchases(work)]
    users, weights = (torch.from_numpy(array) for array in activations(work))
    bias = torch.zeros(work.items)
    blocks = itertools.cycle(zip(users.split(work.batch), seen, strict=True))

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step() -> float:
        h, (indices, _, rows) = next(blocks)
        scores = F.linear(h, weights, bias)
        scores[rows, indices] = -math.inf
        best, _ = torch.topk(scores, work.k)
        return float(best[0, 0])

    return cast(Callable[[], float], step)


def _tensors(work: Work, indptr: Any, indices: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a batch as indices, offsets and the row of each index."""
    starts = torch.from_numpy(indptr)
    rows = torch.repeat_interleave(torch.arange(work.batch), starts.diff())
    return torch.from_numpy(indices).long(), starts[:-1], rows


def _linear(inputs: int, outputs: int) -> torch.nn.Linear:
    layer = torch.nn.Linear(inputs, outputs)
    torch.nn.init.xavier_uniform_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    return layer


def _optimizer(work: Work, parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
    if work.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=work.rate, fused=True)
    return torch.optim.RMSprop(parameters, lr=work.rate, alpha=0.9, foreach=True)


if __name__ == "__main__":
    main()
