"""A GPU as a backend. Twin: cpu/backend.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.engines import Evaluator, Rates
from nnlib.errors import NnlibError
from nnlib.gpu.cublas import BF16, FLOAT32, TF32
from nnlib.gpu.engine import GpuEngine
from nnlib.gpu.evaluator import GpuEvaluator
from nnlib.gpu.maps.layers import count_asked
from nnlib.gpu.rates import measure_rates
from nnlib.gpu.reach import require_reach
from nnlib.gpu.runtime import Runtime
from nnlib.gpu.session import Session
from nnlib.gpu.shards.by_examples import ExamplesEngine, by_shards
from nnlib.gpu.shards.nccl import connect
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut, cut_of
from nnlib.shards.plan import EXAMPLES

AMPERE = 8  # the compute capability from which on GPUs multiply TF32 and bfloat16


class Gpu:
    """One GPU, and threads of this machine that prepare its batches; see `engines.Backend`."""

    name = "cupy"

    def __init__(self, runtime: Runtime, threads: int = 1) -> None:
        self._runtime, self._threads = runtime, threads
        self._cut: Cut | None = None  # of the last training: who asks its network again does it by the same sums
        self.device: Mapping[str, str] = runtime.device

    @property
    def versions(self) -> Mapping[str, str]:
        """See `engines.Backend`: cuDNN's engines are chosen while it computes."""
        return self._runtime.versions

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
        cut = cut_of(network.spec, settings.batch, settings.parallel)
        engine = self._engine(network, examples, settings, cut, ALONE)
        self._cut = cut
        return engine

    def part(
        self, network: Network, examples: Examples, settings: TrainSettings, cut: Cut, together: Collectives
    ) -> GpuEngine:
        """See `engines.LocalBackend`."""
        return self._engine(network, examples, settings, cut, together)

    def _engine(
        self, network: Network, examples: Examples, settings: TrainSettings, cut: Cut | None, together: Collectives
    ) -> GpuEngine:
        settings = replace(settings, precision=self.choose_precision(settings.precision.lower()))
        arguments = self._runtime, _single(network), examples, settings, self._threads
        if cut is not None and cut.plan.kind == EXAMPLES:
            return ExamplesEngine(*arguments, cut, together)
        return GpuEngine(*arguments, cut, together)

    def evaluator(self, network: Network, split: bool = False) -> Evaluator:  # noqa: ARG002 (a GPU splits everything)
        """See `engines.Backend`."""
        cut = self._cut if self._cut is not None and self._cut.spec == network.spec else None
        return self._evaluator(network, cut, ALONE)

    def part_evaluator(self, network: Network, cut: Cut, together: Collectives) -> Evaluator:
        """See `engines.LocalBackend`."""
        return self._evaluator(network, cut, together)

    def _evaluator(self, network: Network, cut: Cut | None, together: Collectives) -> Evaluator:
        if cut is not None and cut.plan.kind == EXAMPLES:  # every rank has all of the network
            session = Session(self._runtime, _single(network), count_asked(network.spec), cut=None, together=ALONE)
            return by_shards(GpuEvaluator(session, self._threads), network.spec, together)
        session = Session(self._runtime, _single(network), count_asked(network.spec), cut=cut, together=together)
        return GpuEvaluator(session, self._threads)

    def join(self, host: Collectives) -> Collectives:
        """See `engines.LocalBackend`; NCCL joins GPUs."""
        return connect(host, self._runtime)

    def choose_precision(self, wanted: str) -> str:
        """See `engines.Backend`."""
        capability = self.device.get("compute_capability", "")
        tensor_cores = bool(capability) and int(capability.partition(".")[0]) >= AMPERE
        if wanted == BF16 and not tensor_cores:
            raise NnlibError(
                f"precision: {wanted} is not legal on {self.device['name']}, compute capability "
                f"{capability or 'unknown'}, but from {AMPERE}.0 on; legal here: float32 and auto"
            )
        return (TF32 if tensor_cores else FLOAT32) if wanted == "auto" else wanted

    def rates(self, threads: int, examples: int, width: int) -> Rates:  # noqa: ARG002 (a GPU does it alone)
        """See `engines.Backend`."""
        return measure_rates(self._runtime, examples, width)


def _single(network: Network) -> Network:
    if network.dtype != np.float32:
        raise NnlibError(f"a network of {network.dtype} cannot be computed on a GPU, legal: float32")
    require_reach(network)
    return network
