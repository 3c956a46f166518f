"""The peer: one process of PyTorch's data parallel training, over gloo on processors and NCCL on GPUs.

Each process has its share of the batch. Weights are the same everywhere (DDP) or cut (FSDP), gradients are averaged
over all processes, and the optimizer is the fastest form of Adam, as in the benchmark `train_cpu`.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from scripts.bench.common.torch_networks import Autoencoder, make_optimizer
from scripts.bench.common.workload import STEP, serve
from scripts.bench.level3.work import FSDP, GPU, WIDE_DDP, Ranked, read

THREADS = int(os.environ["OMP_NUM_THREADS"])


class Loss(torch.nn.Module):  # type: ignore[misc]
    """The autoencoder's parameters and its loss: what is made parallel."""

    def __init__(self, model: Autoencoder, device: str) -> None:
        super().__init__()
        self._model = model
        self.values = torch.nn.ParameterList([torch.nn.Parameter(array.to(device)) for array in model.start])

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        return self._model.loss(list(self.values), *batch)


def main() -> None:
    """Serve the work named on the command line."""
    work = read(sys.argv[1])
    torch.set_num_threads(THREADS)
    torch.set_flush_denormal(True)  # as in cpu/peer.py
    device = "cuda" if work.device == GPU else "cpu"
    transport = "nccl" if work.device == GPU else "gloo"
    distributed.init_process_group(
        transport, init_method=f"file://{work.meeting}", rank=work.rank, world_size=work.ranks
    )
    try:
        training = Training(work, device)
        loss = training.run(work.warm)
        serve({"loss": loss}, {STEP: training.measure})
    finally:
        distributed.destroy_process_group()


class Training:
    """A training on batches that are ready, in turn."""

    def __init__(self, work: Ranked, device: str) -> None:
        share = replace(work, batch=work.batch // work.ranks)
        model = Autoencoder(share)
        self._work, self._cuda = work, device == "cuda"
        self._loss: Any = _parallel(Loss(model, device), work)
        self._optimizer = make_optimizer(work, list(self._loss.parameters()))
        self._batches = itertools.cycle([tuple(part.to(device) for part in batch) for batch in model.batches])

    def run(self, steps: int) -> float:
        """Train on so many batches, and wait for all of them; return the last loss of this process."""
        for _ in range(steps):
            self._optimizer.zero_grad(set_to_none=True)
            loss = self._loss(*next(self._batches))
            loss.backward()
            self._optimizer.step()
        if self._cuda:
            torch.cuda.synchronize()
        return float(loss.item())

    def measure(self) -> Mapping[str, float]:
        """Return the milliseconds of a step: wall time, and processor time with what waiting took."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.run(self._work.steps)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {
            name: 1e3 * spent / self._work.steps for name, spent in (("wall", wall), ("cpu", cpu), ("all_cpu", cpu))
        }


def _parallel(loss: Loss, work: Ranked) -> torch.nn.Module:
    """Return what trains it on all processes; one bucket of gradients is fewer exchanges, which begin later."""
    if work.way == FSDP:
        fully_shard(loss)
        return loss
    size = sum(value.numel() * value.element_size() for value in loss.parameters()) / (1 << 20)
    buckets = {"bucket_cap_mb": int(size) + 1} if work.way == WIDE_DDP else {}
    return DistributedDataParallel(loss, gradient_as_bucket_view=True, static_graph=True, **buckets)


if __name__ == "__main__":
    main()
