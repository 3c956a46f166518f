"""A GPU as a backend. Twin: cpu/backend.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.data.blockwise import BATCH
from nnlib.engines import Evaluator
from nnlib.errors import NnlibError
from nnlib.gpu.engine import GpuEngine
from nnlib.gpu.evaluator import GpuEvaluator
from nnlib.gpu.runtime import Runtime
from nnlib.gpu.session import Session
from nnlib.model.examples import Examples
from nnlib.model.network import Network


class Gpu:
    """One GPU, and threads of this machine that prepare its batches; see `engines.Backend`."""

    name = "cupy"

    def __init__(self, runtime: Runtime, threads: int = 1) -> None:
        self._runtime, self._threads = runtime, threads
        self.versions: Mapping[str, str] = runtime.versions
        self.device: Mapping[str, str] = runtime.device

    @classmethod
    @contextmanager
    def open(cls, threads: int) -> Iterator[Gpu]:
        """Give the GPU of this process. MachineError when there is none, or when it fails in what is done with it."""
        runtime = Runtime.open()
        try:
            with runtime.faults():
                yield cls(runtime, threads)
        finally:
            runtime.close()

    def engine(self, network: Network, examples: Examples, settings: TrainSettings) -> GpuEngine:
        """See `engines.Backend`."""
        return GpuEngine(self._runtime, _single(network), examples, settings, self._threads)

    def evaluator(self, network: Network, split: bool = False) -> Evaluator:  # noqa: ARG002 (a GPU splits everything)
        """See `engines.Backend`."""
        return GpuEvaluator(Session(self._runtime, _single(network), BATCH), self._threads)


def _single(network: Network) -> Network:
    if network.dtype != np.float32:
        raise NnlibError(f"a network of {network.dtype} cannot be computed on a GPU, legal: float32")
    return network
