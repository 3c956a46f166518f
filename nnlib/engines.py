"""What trains a network and asks it, wherever that is done: on the processors of this machine, or on a GPU."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import TrainSettings
from nnlib.data.rows import Csr
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.util.arrays import Floats, Longs


@dataclass(frozen=True, slots=True)
class StepFailure:
    """The first step whose error is not a finite number, the error, and what is known of the layer."""

    step: int
    error: float
    where: str = ""


class Evaluator(Protocol):
    """A network that can be asked."""

    @property
    def network(self) -> Network:
        """The network, its parameters in this machine's memory."""

    def mean_loss(self, examples: Examples) -> float:
        """Return the error function averaged over the examples, without dropout and denoising; DivergedError."""

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> tuple[NDArray[np.int64], Floats]:
        """Return the k best items of an output layer by their sums, and these, both (b, min(k, units)).

        As `ranking.top` has it. The examples are few and in memory. NotFiniteError for a sum that is not finite.
        """

    def sums(self, examples: Examples, output: int) -> Floats:
        """Return the sums of an output layer, (b, units), which may be overwritten; else as `top`."""

    def values(self, examples: Examples, layer: int) -> Floats:
        """Return what a layer that is not an input gives, (b, units); else as `top`."""


class Engine(Protocol):
    """A training at work: the batches go in one after the other, what came of them may be known a few steps later."""

    @property
    def step(self) -> int:
        """How many steps were begun."""

    def begin_epoch(self, total: float) -> None:
        """Start to add up the errors of an epoch, of which the batches done so far had `total`."""

    def batches(self, examples: Iterable[Longs]) -> Generator[Any, None, None]:
        """Prepare batches of the numbered examples, perhaps ahead of time; close it when some are not wanted."""

    def run(self, batch: Any) -> None:
        """Train on a prepared batch."""

    def failed(self, wait: bool = False) -> StepFailure | None:
        """Return the first failure that is known; `wait` until every batch is done."""

    def total(self) -> float:
        """Wait for every batch; return the errors of the epoch so far, summed over its examples."""

    def settle(self) -> None:
        """Bring all parameters to this step, those that no batch has touched too."""

    def broken(self) -> str:
        """Return the first layer whose parameters are not finite in words, empty when there is none."""

    def pull(self) -> Network:
        """Return the network, its parameters of this step in this machine's memory; call `settle` before."""

    def states(self) -> Mapping[str, Floats]:
        """Return the optimizer's state by name, for a checkpoint; call `settle` before."""

    def resume(self, step: int, states: Mapping[str, Floats]) -> None:
        """Go on after `step` with these states and the parameters that were put into the network."""

    def evaluator(self) -> Evaluator:
        """Return what asks the network as it is after this step; call `settle` before."""


class Backend(Protocol):
    """Where a network is trained and asked."""

    name: str  # of the backend, as a result has it
    versions: Mapping[str, str]  # of what it computes with, as a result has them
    device: Mapping[str, str]  # the GPU, as a result has it; empty for processors

    def engine(self, network: Network, examples: Examples, settings: TrainSettings) -> Engine:
        """Return a training of `network`, in place, on the examples."""

    def evaluator(self, network: Network, split: bool = False) -> Evaluator:
        """Return what asks a network; `split`: one thread asks at a time, and what it asks may be split."""


class Probe(Protocol):
    """A network on one batch, with everything random held fixed."""

    def loss(self) -> float:
        """Return the mean loss with all penalties."""

    def gradients(self) -> Mapping[str, Floats]:
        """Return its gradient by the names of `Network.arrays`."""
