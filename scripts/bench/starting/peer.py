"""The peer: PyTorch reads the same examples, makes the same network and ends after the first batch of its training."""

from __future__ import annotations

import sys

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

BATCH, HIDDEN, DENOISING, DROPOUT = 256, 128, 0.3, 0.2


def main(path: str) -> None:
    """Read (indptr, indices, width) and train on a batch of random examples, as the example's network does."""
    with np.load(path) as found:
        starts, items, width = found["indptr"], found["indices"].astype(np.int64), int(found["width"])
    bag = torch.nn.EmbeddingBag(width, HIDDEN, mode="sum")
    bias, above = torch.nn.Parameter(torch.zeros(HIDDEN)), torch.nn.Linear(HIDDEN, width)
    optimizer = torch.optim.Adam([*bag.parameters(), bias, *above.parameters()], fused=True)
    chosen = np.random.default_rng(0).permutation(len(starts) - 1)[:BATCH]
    rows = [torch.from_numpy(items[starts[n] : starts[n + 1]]) for n in chosen]
    target = torch.zeros(len(rows), width)
    for n, row in enumerate(rows):
        target[n, row] = 1.0
    kept = [row[torch.rand(len(row)) >= DENOISING] for row in rows]
    offsets = torch.tensor([0, *(len(row) for row in kept)])[:-1].cumsum(0)
    hidden = F.dropout(torch.tanh(bag(torch.cat(kept), offsets) / (1 - DENOISING) + bias), DROPOUT)
    loss = F.binary_cross_entropy_with_logits(above(hidden), target, reduction="sum") / len(rows)
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1])
