"""The peer: PyTorch's sum of rows with sparse gradients, and an optimizer that updates touched rows alone."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from scripts.bench.wide.data import Wide, rows, weights
from scripts.bench.wide.serve import serve


def main() -> None:
    """Serve the work named on the command line."""
    work = Wide(**json.loads(sys.argv[1]))
    torch.set_num_threads(work.threads)
    serve(work, training(work), lambda: None)


def training(work: Wide) -> Callable[[], float]:
    """Return what trains on the next batch. PyTorch has no RMSProp for sparse gradients: its rows have SparseAdam."""
    units, classes = rows(work)
    table, last = weights(work)
    bag = torch.nn.EmbeddingBag.from_pretrained(torch.from_numpy(table), freeze=False, mode="sum", sparse=True)
    dense = [torch.zeros(work.hidden), torch.from_numpy(last).T.contiguous(), torch.zeros(work.classes)]
    bias, above, above_bias = (torch.nn.Parameter(array) for array in dense)
    others: list[Any] = [bias, above, above_bias]
    if work.optimizer == "sgd":
        optimizers: list[Any] = [torch.optim.SGD([bag.weight, *others], lr=work.rate)]
    else:
        optimizers = [
            torch.optim.SparseAdam([bag.weight], lr=work.rate),
            torch.optim.Adam(others, lr=work.rate, fused=True),
        ]
    lows = itertools.cycle(range(0, len(units), work.batch))

    def step() -> float:
        low = next(lows)
        some = torch.from_numpy(units[low : low + work.batch])  # rows of one length need no offsets
        targets = torch.from_numpy(classes[low : low + work.batch])
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(F.linear(F.relu(bag(some) + bias), above, above_bias), targets)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return float(loss.item())

    return step


if __name__ == "__main__":
    main()
