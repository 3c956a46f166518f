"""The processors as a backend. Twin: gpu/backend.py."""

from __future__ import annotations

from collections.abc import Mapping

from nnlib.compiled import select
from nnlib.contract import TrainSettings
from nnlib.cpu.engine import CpuEngine
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.engines import Evaluator
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.util.threads import Each, map_in_turn


class Cpu:
    """The processors, of which `each` uses one or several; see `engines.Backend`."""

    def __init__(self, each: Each = map_in_turn) -> None:
        self.name, self.each = select.NAME, each
        self.versions: Mapping[str, str] = {}
        self.device: Mapping[str, str] = {}

    def engine(self, network: Network, examples: Examples, settings: TrainSettings) -> CpuEngine:
        """See `engines.Backend`."""
        return CpuEngine(network, examples, settings, self.each)

    def evaluator(self, network: Network, split: bool = False) -> Evaluator:
        """See `engines.Backend`."""
        return CpuEvaluator(network, self.each, split)
