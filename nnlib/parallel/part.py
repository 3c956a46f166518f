"""What a rank does: a training of its part of a network, asked and fed by the job.

Every method of Part is an operation of a message, see `Part.do`; all ranks do the same in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import TrainSettings
from nnlib.data.rows import Csr
from nnlib.data.stream import LEAST_CACHE, Cache
from nnlib.engines import Engine, Evaluator, LocalBackend
from nnlib.model.examples import Examples
from nnlib.model.network import NORM_ARRAYS, Network
from nnlib.ops.batch_norm import BatchNorm
from nnlib.parallel.host import AT_REST, COMPUTING, PREPARING, Host
from nnlib.parallel.records import of_plain
from nnlib.parallel.sharing import mapped, restore
from nnlib.parallel.wire import Message
from nnlib.shards.collectives import Collectives
from nnlib.shards.cut import Cut
from nnlib.shards.plan import Plan
from nnlib.spec.types import NetworkSpec
from nnlib.util.memory import available_bytes

Arrays = Mapping[str, NDArray[Any]]
Answer = tuple[Mapping[str, Any], Arrays]
NONE: Answer = ({}, {})


class Part:
    """One rank's engine, what asks other networks of the same plan, and the batches of an epoch."""

    def __init__(self, backend: LocalBackend, host: Host) -> None:
        """Join the others: all of them do it at once."""
        self._backend, self._host = backend, host
        self._together: Collectives = backend.join(host)
        self._cut: Cut | None = None
        self._engine: Engine | None = None
        self._evaluators: dict[int, Evaluator] = {}
        self._batches: Generator[Any, None, None] | None = None
        self._read = 0  # bytes of files, as they are in memory

    def do(self, message: Message) -> Answer:
        """Do an operation; return what is answered."""
        operation = message.operation
        if operation.startswith("_") or operation == "do" or operation not in vars(Part):
            raise RuntimeError(f"a rank is told {operation!r}, of which it knows nothing")
        arrays = message.arrays
        if message.shared is not None:
            arrays = {**arrays, **mapped(message.fields["places"], message.shared)}
        answer: Answer = getattr(self, operation)(message.fields, arrays)
        return answer

    # What has a network.

    def engine(self, fields: Mapping[str, Any], arrays: Arrays) -> Answer:
        """Begin a training with local parameters on examples that all ranks share."""
        self._engine = self._batches = None  # a GPU may not have room for two
        self._evaluators = {}
        self._cut = Cut(of_plain(Plan, fields["plan"]), of_plain(NetworkSpec, fields["spec"]), self._together.own)
        network = _network_of(self._cut, fields, arrays)
        settings = of_plain(TrainSettings, fields["settings"])
        examples = self._examples(fields, arrays)
        self._engine = self._backend.part(network, examples, settings, self._cut, self._together)
        return {"versions": dict(self._backend.versions)}, {}

    def evaluator(self, fields: Mapping[str, Any], arrays: Arrays) -> Answer:
        """Keep a network, cut as the training's, that can be asked by its number."""
        network = _network_of(self._known, fields, arrays)
        self._evaluators[fields["number"]] = self._backend.part_evaluator(network, self._known, self._together)
        return NONE

    def forget(self, fields: Mapping[str, Any], _: Arrays) -> Answer:
        """Let networks go that nobody will ask any more."""
        for number in fields["numbers"]:
            self._evaluators.pop(number, None)
        return NONE

    # A training.

    def batches(self, _: Mapping[str, Any], arrays: Arrays) -> Answer:
        """Prepare batches of the numbered examples, of which each `go` takes one."""
        order, ends = arrays["order"], arrays["ends"]
        self._batches = self._trained.batches(order[low:high] for low, high in zip([0, *ends[:-1]], ends, strict=True))
        return NONE

    def leave(self, _: Mapping[str, Any], __: Arrays) -> Answer:
        """Let go of batches that are not wanted."""
        if self._batches is not None:
            self._batches.close()
        self._batches = None
        return NONE

    def go(self, _: Mapping[str, Any], __: Arrays) -> Answer:
        """Train on the next batch; the answer says what has failed, as far as it is known."""
        assert self._batches is not None, "the job begins with batches"
        self._host.enter(PREPARING)
        batch = next(self._batches)
        self._host.enter(COMPUTING)
        with np.errstate(all="ignore"):  # as `training.loop` has it
            self._trained.run(batch)
        self._host.enter(AT_REST)
        return self._failure(wait=False), {}

    def wait(self, _: Mapping[str, Any], __: Arrays) -> Answer:
        """Wait until every batch is done."""
        return self._failure(wait=True), {}

    def _failure(self, wait: bool) -> Mapping[str, Any]:
        failure = self._trained.failed(wait)
        return {"step": self._trained.step, "failure": failure and asdict(failure)}

    def begin_epoch(self, fields: Mapping[str, Any], _: Arrays) -> Answer:
        """See `engines.Engine`, as of all that follow."""
        self._trained.begin_epoch(fields["total"])
        return NONE

    def slow_down(self, fields: Mapping[str, Any], _: Arrays) -> Answer:
        """Slow down."""
        self._trained.slow_down(fields["factor"])
        return NONE

    def total(self, _: Mapping[str, Any], __: Arrays) -> Answer:
        """Return the errors of the epoch."""
        return {"total": self._trained.total()}, {}

    def settle(self, _: Mapping[str, Any], __: Arrays) -> Answer:
        """Settle."""
        self._trained.settle()
        return NONE

    def broken(self, _: Mapping[str, Any], __: Arrays) -> Answer:
        """Return which layer is broken."""
        return {"broken": self._trained.broken()}, {}

    def pull(self, _: Mapping[str, Any], __: Arrays) -> Answer:
        """Return the local parameters; those that every rank has come from the first one."""
        return {}, self._own(dict(self._trained.pull().arrays()))

    def states(self, _: Mapping[str, Any], __: Arrays) -> Answer:
        """Return the local states, likewise."""
        return {}, self._own(self._trained.states())

    def resume(self, fields: Mapping[str, Any], arrays: Arrays) -> Answer:
        """Go on with other parameters and states."""
        for name, array in self._trained.pull().arrays():
            array[...] = arrays[f"network_{name}"]
        self._trained.resume(fields["step"], _named(arrays, "state_"))
        return NONE

    # Questions.

    def mean_loss(self, fields: Mapping[str, Any], arrays: Arrays) -> Answer:
        """See `engines.Evaluator`."""
        return {"loss": self._asked(fields).mean_loss(self._examples(fields, arrays))}, {}

    def top(self, fields: Mapping[str, Any], arrays: Arrays) -> Answer:
        """Return the best items, by their numbers in the whole network."""
        owned = None
        if "owned_indptr" in arrays:
            owned = Csr(arrays["owned_indptr"], arrays["owned_indices"], fields["width"], arrays.get("owned_values"))
        examples = self._examples(fields, arrays)
        items, sums = self._asked(fields).top(examples, fields["layer"], fields["k"], owned)
        return self._first({"items": items, "sums": sums})

    def sums(self, fields: Mapping[str, Any], arrays: Arrays) -> Answer:
        """Return all sums of an output layer."""
        return self._first({"sums": self._asked(fields).sums(self._examples(fields, arrays), fields["layer"])})

    def values(self, fields: Mapping[str, Any], arrays: Arrays) -> Answer:
        """Return all values of a layer."""
        return self._first({"values": self._asked(fields).values(self._examples(fields, arrays), fields["layer"])})

    # This machine.

    def precision(self, fields: Mapping[str, Any], _: Arrays) -> Answer:
        """Return what a precision comes to here."""
        return {"precision": self._backend.choose_precision(fields["wanted"])}, {}

    def rates(self, fields: Mapping[str, Any], _: Arrays) -> Answer:
        """Return how fast this rank is."""
        return asdict(self._backend.rates(fields["threads"], fields["examples"], fields["width"])), {}

    def facts(self, _: Mapping[str, Any], __: Arrays) -> Answer:
        """Return what this rank has taken so far: seconds of processors, and of waiting; bytes sent, and read."""
        step = self._engine.step if self._engine else 0
        sent = dict(getattr(self._together, "sent", {}))
        spent = {"cpu": time.process_time(), "waited": self._host.waited}
        return spent | {"sent": sent, "read": self._read, "step": step}, {}

    @property
    def _trained(self) -> Engine:
        assert self._engine is not None, "the job begins with an engine"
        return self._engine

    @property
    def _known(self) -> Cut:
        assert self._cut is not None, "the job begins with an engine"
        return self._cut

    def _asked(self, fields: Mapping[str, Any]) -> Evaluator:
        number = fields["evaluator"]
        return self._evaluators[number] if number else self._trained.evaluator()

    def _examples(self, fields: Mapping[str, Any], arrays: Arrays) -> Examples:
        limit = max(available_bytes() // 4 // self._host.ranks, LEAST_CACHE)
        return restore(fields["examples"], arrays, Cache(limit, self._note_read))

    def _note_read(self, size: int) -> None:
        self._read += size

    def _first(self, arrays: Arrays) -> Answer:
        """Return what all ranks have found alike, of the first."""
        return {}, arrays if self._host.rank == 0 else {}

    def _own(self, arrays: Arrays) -> Arrays:
        """Return what is not the same on the first rank."""
        first = self._host.rank == 0
        return {name: array for name, array in arrays.items() if first or self._known.rows_of(name) is not None}


def _network_of(cut: Cut, fields: Mapping[str, Any], arrays: Arrays) -> Network:
    """Return the local network of parameters that are named as `Network.arrays` does."""
    spec = cut.local
    parameters = _named(arrays, "network_")
    stores = {edge.number: parameters[f"weights{edge.number}"] for edge in spec.edges if edge.owner == edge.number}
    biases = [parameters[f"bias{edge.number}"] for edge in spec.edges]
    norms = {
        n: BatchNorm(*(parameters[f"norm{n}_{name}"] for name in NORM_ARRAYS))
        for n, layer in enumerate(spec.layers)
        if layer.batch_norm
    }
    return Network(spec, stores, biases, norms, frozenset(fields["locked"]), frozenset(fields["fixed"]))


def _named(arrays: Arrays, prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
