"""The processors as a backend. Twin: gpu/backend.py."""

from __future__ import annotations

from collections.abc import Mapping

from nnlib.compiled import select
from nnlib.contract import TrainSettings
from nnlib.cpu.by_examples import ExamplesEngine, by_shards
from nnlib.cpu.engine import CpuEngine
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.cpu.products import choose_precision
from nnlib.cpu.rates import measure_rates
from nnlib.engines import Evaluator, Rates
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.shards.collectives import ALONE, Collectives
from nnlib.shards.cut import Cut, cut_of
from nnlib.shards.plan import EXAMPLES
from nnlib.util.threads import Each, map_in_turn


class Cpu:
    """The processors, of which `each` uses one or several; see `engines.Backend`."""

    def __init__(self, each: Each = map_in_turn) -> None:
        self.name, self.each = select.NAME, each
        self.versions: Mapping[str, str] = {}
        self.device: Mapping[str, str] = {}
        self._cut: Cut | None = None  # of the last engine: its network is asked as it was trained

    def engine(self, network: Network, examples: Examples, settings: TrainSettings) -> CpuEngine:
        """See `engines.Backend`."""
        self._cut = cut_of(network.spec, settings.batch, settings.parallel)
        return self._engine(network, examples, settings, self._cut, ALONE)

    def part(
        self, network: Network, examples: Examples, settings: TrainSettings, cut: Cut, together: Collectives
    ) -> CpuEngine:
        """See `engines.LocalBackend`."""
        return self._engine(network, examples, settings, cut, together)

    def _engine(
        self, network: Network, examples: Examples, settings: TrainSettings, cut: Cut | None, together: Collectives
    ) -> CpuEngine:
        arguments = network, examples, settings, self.each
        if cut is not None and cut.plan.kind == EXAMPLES:
            engine: CpuEngine = ExamplesEngine(*arguments, cut, together)
        else:
            engine = CpuEngine(*arguments, cut, together)
        self.versions = engine.versions
        return engine

    def evaluator(self, network: Network, split: bool = False) -> Evaluator:
        """See `engines.Backend`."""
        cut = self._cut if self._cut is not None and self._cut.spec == network.spec else None
        return self._evaluator(network, split, cut, ALONE)

    def part_evaluator(self, network: Network, cut: Cut, together: Collectives) -> Evaluator:
        """See `engines.LocalBackend`."""
        return self._evaluator(network, True, cut, together)

    def _evaluator(self, network: Network, split: bool, cut: Cut | None, together: Collectives) -> Evaluator:
        if cut is not None and cut.plan.kind == EXAMPLES:
            return by_shards(network, self.each, split, together)
        return CpuEvaluator(network, self.each, split, cut, together)

    def join(self, host: Collectives) -> Collectives:
        """See `engines.LocalBackend`; processors need nothing else."""
        return host

    def choose_precision(self, wanted: str) -> str:
        """See `engines.Backend`."""
        return choose_precision(wanted)

    def rates(self, threads: int, examples: int, width: int) -> Rates:
        """See `engines.Backend`."""
        return measure_rates(self.each, threads, examples, width)
