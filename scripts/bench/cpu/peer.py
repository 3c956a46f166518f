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

from scripts.bench.common.torch_networks import Autoencoder, Classifier, make_optimizer
from scripts.bench.common.workload import AUTOENCODER, TOP, Work, activations, purchases
from scripts.bench.cpu.serve import serve


def main() -> None:
    """Serve the work named on the command line."""
    work = Work(**json.loads(sys.argv[1]))
    torch.set_num_threads(work.threads)
    torch.set_flush_denormal(
        True
    )  # the squares of small gradients are such: without it a step soon takes twice as long
    serve(work, ranking(work) if work.kind == TOP else training(work))


def training(work: Work) -> Callable[[], float]:
    """A sum of rows at a sparse input, which beats a dense and a sparse product; then fused or foreach updates."""
    model = Autoencoder(work) if work.kind == AUTOENCODER else Classifier(work)
    parameters = [torch.nn.Parameter(array) for array in model.start]
    optimizer = make_optimizer(work, parameters)
    batches = itertools.cycle(model.batches)
    torch.set_float32_matmul_precision("medium" if work.precision == "medium" else "highest")

    def step() -> float:
        batch = next(batches)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=work.precision == "autocast"):
            loss = model.loss(list(parameters), *batch)
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


if __name__ == "__main__":
    main()
