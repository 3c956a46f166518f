"""PyTorch's side of the best items: scores, seen ones set to minus infinity, topk; its batches are on the GPU."""

from __future__ import annotations

import json
import sys
import time

import torch

from scripts.bench.common.torch_networks import Autoencoder
from scripts.bench.gpu.work import GpuWork, K, top_work


def main() -> None:
    """Print the customers a second; `cpu` is for trying it without a GPU."""
    device = "cpu" if "cpu" in sys.argv else "cuda"
    print(json.dumps(measured(top_work("quick" in sys.argv), device)), flush=True)


def measured(work: GpuWork, device: str) -> dict[str, float]:
    """Rank the items of every batch, and bring what was found to the processor."""
    model = Autoencoder(work)
    parameters = [array.to(device) for array in model.start]
    batches = [tuple(part.to(device) for part in batch) for batch in model.batches]
    with torch.no_grad():
        for _ in range(2):
            began = time.perf_counter()
            for items, starts, places in batches:
                scores = model.scores(parameters, items, starts)
                scores.view(-1)[places] = -torch.inf
                best = scores.topk(min(K, work.items))
                best.indices.cpu(), best.values.cpu()
            seconds = time.perf_counter() - began
    return {"customers_a_second": work.batch * work.batches / seconds}


if __name__ == "__main__":
    main()
