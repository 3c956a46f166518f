"""What trains a network and asks it, wherever that is done: on the processors of this machine, or on a GPU."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import TrainSettings
from nnlib.data.rows import Csr
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.shards.collectives import Collectives
from nnlib.shards.cut import Cut
from nnlib.util.arrays import Floats, Longs


@dataclass(frozen=True, slots=True)
class StepFailure:
    """The first step in which a number is not finite: its error, and the first layer of which that is known."""

    step: int
    error: float = 0.0
    where: str = ""  # as `network.name_broken_layer` has it

    def __str__(self) -> str:
        loss = "" if math.isfinite(self.error) else f"loss is {self.error}"
        return (loss + self.where).removeprefix(", ")


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device does a second, measured on it; `product` is the one that was measured, (b, k) times (k, n)."""

    product: tuple[int, int, int]
    flops: float  # of dense products in float32
    bytes_moved: float  # read and written
    activations: float  # numbers of which exp was taken


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an array that a kernel left is too far from its reference in NumPy: the worst number of them."""

    array: str
    count: int  # numbers that are too far away
    size: int  # of so many
    place: str  # of the worst, such as `3,17`
    found: float
    wanted: float


@dataclass(frozen=True, slots=True)
class KernelCheck:
    """What came of the kernels of a GPU that were run beside their references."""

    facts: Mapping[str, str]  # of the GPU and what computes on it
    agree: Sequence[str]  # names of kernels
    differ: Mapping[str, Sequence[Difference]]
    left_out: Sequence[str]  # not run: the time was over, or the GPU had failed
    failure: str  # why the GPU failed, and at which kernel; empty when it did not
    seconds: float


class Evaluator(Protocol):
    """A network that can be asked."""

    @property
    def network(self) -> Network:
        """The network, its parameters in this machine's memory."""

    @property
    def at_once(self) -> int:
        """How many examples it is best asked about at a time."""

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
        """How many batches were begun."""

    def slow_down(self, factor: float) -> None:
        """From the next step on multiply the settings' learning rates by `factor`; call `settle` before."""

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
        """Go on after `step`, with which an update ended, with these states and the parameters put into the network."""

    def evaluator(self) -> Evaluator:
        """Return what asks the network as it is after this step; call `settle` before."""


class Backend(Protocol):
    """Where a network is trained and asked."""

    name: str  # of the backend, as a result has it
    device: Mapping[str, str]  # the GPU, as a result has it; empty for processors

    @property
    def versions(self) -> Mapping[str, str]:
        """What it has computed with so far, as a result has it."""

    def engine(self, network: Network, examples: Examples, settings: TrainSettings) -> Engine:
        """Return a training of `network`, in place, on the examples."""

    def evaluator(self, network: Network, split: bool = False) -> Evaluator:
        """Return what asks a network; `split`: one thread asks at a time, and what it asks may be split.

        The network of the last engine, or one like it, is asked in the same order of sums as it was trained.
        """

    def choose_precision(self, wanted: str) -> str:
        """Return what a setting `precision` comes to here: `float32`, `tf32` or `bf16`; NnlibError."""

    def rates(self, threads: int, examples: int, width: int) -> Rates:
        """Return how fast this is, by a product of `examples` rows of `width` numbers; takes about half a second."""


class LocalBackend(Backend, Protocol):
    """A backend that computes in this process, which may be one rank of several."""

    def join(self, host: Collectives) -> Collectives:
        """Return what ranks do together where this computes; `host` does it in this machine's memory."""

    def part(
        self, network: Network, examples: Examples, settings: TrainSettings, cut: Cut, together: Collectives
    ) -> Engine:
        """Return one rank's part of a training, which begins with the rank's part of a network; examples are whole.

        Its `pull` and `states` give the rank's parts. All ranks have to do the same at the same time: to run a batch,
        and to ask for the total, for what is broken, and the evaluator.
        """

    def part_evaluator(self, network: Network, cut: Cut, together: Collectives) -> Evaluator:
        """Return what asks a network, of which each rank has a part, about all of it; all ranks have to ask."""


class Probe(Protocol):
    """A network on one batch, with everything random held fixed."""

    def loss(self) -> float:
        """Return the mean loss with all penalties."""

    def gradients(self) -> Mapping[str, Floats]:
        """Return its gradient by the names of `Network.arrays`."""
