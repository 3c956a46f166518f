"""A backend whose engines compute on several processes: for a training one like any other. See `crew` and `part`.

The job keeps whole arrays in natural order, each rank its part of them (see `shards.cut`). What a network gives has the
same bits on any number of ranks, one included.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import TrainSettings
from nnlib.data.blockwise import BATCH
from nnlib.data.rows import Csr
from nnlib.engines import Evaluator, Rates, StepFailure
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.parallel.crew import Crew
from nnlib.parallel.records import of_plain, to_plain
from nnlib.parallel.sharing import describe, share
from nnlib.parallel.wire import NOTHING, Message
from nnlib.shards.cut import Cut
from nnlib.shards.evaluator import AT_ONCE
from nnlib.shards.plan import EXAMPLES, plan_of
from nnlib.shards.tree import shards_of
from nnlib.util.arrays import Floats, Longs

AHEAD = 3  # steps that ranks may be told before the first of them is done

Arrays = Mapping[str, NDArray[Any]]


class RanksBackend:
    """Several processes as one backend; see `engines.Backend`."""

    def __init__(self, crew: Crew) -> None:
        """Wait until all ranks are ready."""
        about = crew.wait_ready()
        self.name: str = about["name"]
        self.versions: Mapping[str, str] = about["versions"]
        self.device: Mapping[str, str] = about["device"]
        self.crew = crew
        self._cuts: Sequence[Cut] = ()
        self._given = 0  # networks that ranks were given to be asked
        self.dropped: deque[int] = deque()  # those of them that nobody has any more

    def engine(self, network: Network, examples: Examples, settings: TrainSettings) -> RanksEngine:
        """See `engines.Backend`; the network must have a plan that cuts it."""
        plan, ranks = plan_of(network.spec, settings.batch, settings.parallel), self.crew.ranks
        self._cuts = [Cut(plan, network.spec, shards_of(rank, ranks)) for rank in range(ranks)]
        fields = {"plan": to_plain(plan), "spec": to_plain(network.spec), "settings": to_plain(settings)}
        [first, *_] = ask_about(self.crew, "engine", examples, fields | _held(network), self._parts(network))
        self.versions = first.fields["versions"]
        self.crew.unasked.clear()  # it was about the training before
        return RanksEngine(self, network, self._cuts, examples.count)

    def evaluator(self, network: Network, split: bool = False) -> Evaluator:  # noqa: ARG002 (each rank splits its part)
        """See `engines.Backend`; the network is one of the specification that was trained last."""
        assert self._cuts and self._cuts[0].spec == network.spec, "ranks ask networks like the one they train"
        self._given += 1
        self.crew.ask("evaluator", {"number": self._given} | _held(network), self._parts(network))
        return RanksEvaluator(self, lambda: network, self._given)

    @property
    def at_once(self) -> int:
        """How many examples the ranks are best asked about at a time."""
        return AT_ONCE if self._cuts and self._cuts[0].plan.kind == EXAMPLES else BATCH

    def choose_precision(self, wanted: str) -> str:
        """See `engines.Backend`."""
        return str(self.crew.ask("precision", {"wanted": wanted})[0].fields["precision"])

    def rates(self, threads: int, examples: int, width: int) -> Rates:
        """See `engines.Backend`; of the first rank beside all others."""
        fields = {"threads": threads, "examples": examples, "width": width}
        return of_plain(Rates, self.crew.ask("rates", fields)[0].fields)

    def _parts(self, network: Network) -> Callable[[int], Arrays]:
        """Return what gives each rank its part of a network."""
        return lambda rank: {f"network_{name}": a for name, a in self._cuts[rank].network(network).arrays()}


class RanksEngine:
    """See `engines.Engine`: what is told to it is told to all ranks."""

    def __init__(self, backend: RanksBackend, network: Network, cuts: Sequence[Cut], count: int) -> None:
        self._backend, self._crew, self._network, self._cuts, self._count = backend, backend.crew, network, cuts, count
        self._known = 0  # the last step of which it is known what came of it
        self._failure: StepFailure | None = None
        self.step = 0

    def slow_down(self, factor: float) -> None:
        """See `engines.Engine`."""
        self._ask("slow_down", {"factor": factor})

    def begin_epoch(self, total: float) -> None:
        """See `engines.Engine`."""
        self._ask("begin_epoch", {"total": total})

    def batches(self, examples: Iterable[Longs]) -> Generator[int, None, None]:
        """See `engines.Engine`: all numbers go to the ranks at once, which prepare their batches themselves."""
        rows = list(examples)
        order = np.concatenate([np.zeros(0, np.int64), *rows])
        ends = np.cumsum([len(some) for some in rows], dtype=np.int64)
        with share({"order": order, "ends": ends}) as (places, memory):
            self._ask("batches", {"places": places}, shared=memory)
        try:
            yield from range(len(rows))
        finally:
            if self._crew.listens:
                self._ask("leave")

    def run(self, batch: Any) -> None:  # noqa: ARG002 (ranks know which one comes next)
        """See `engines.Engine`; a few steps may be under way."""
        with self._crew.alone():
            self.step += 1
            self._crew.go()
            while self.step - self._known > AHEAD:
                self._hear()

    def failed(self, wait: bool = False) -> StepFailure | None:
        """See `engines.Engine`."""
        while self._known < self.step and self._hear(patient=wait):
            pass
        self._note(self._crew.unasked)
        self._crew.unasked.clear()
        if wait or self._failure is not None:  # which rank sees the first one is not known before all have got there
            self._note(self._ask("wait"))
        return self._failure

    def total(self) -> float:
        """See `engines.Engine`."""
        return float(self._ask("total")[0].fields["total"])

    def settle(self) -> None:
        """See `engines.Engine`."""
        self._ask("settle")

    def broken(self) -> str:
        """See `engines.Engine`."""
        return str(self._ask("broken")[0].fields["broken"])

    def pull(self) -> Network:
        """See `engines.Engine`."""
        whole = dict(self._network.arrays())
        for cut, message in zip(self._cuts, self._ask("pull"), strict=True):
            for name, local in message.arrays.items():
                cut.put(name, local, whole[name])
        return self._network

    def states(self) -> Mapping[str, Floats]:
        """See `engines.Engine`."""
        whole: dict[str, Floats] = {}
        for cut, message in zip(self._cuts, self._ask("states"), strict=True):
            for name, local in message.arrays.items():
                rows = cut.rows_of(name)
                if rows is None:
                    whole[name] = local
                    continue
                if name not in whole:
                    whole[name] = np.empty((rows.units, *local.shape[1:]), local.dtype)
                rows.put(local, whole[name])
        return whole

    def resume(self, step: int, states: Mapping[str, Floats]) -> None:
        """See `engines.Engine`."""
        arrays = {f"network_{name}": (name, array) for name, array in self._network.arrays()}
        arrays |= {f"state_{name}": (name, array) for name, array in states.items()}
        self._ask(
            "resume",
            {"step": step},
            lambda rank: {key: self._cuts[rank].take(name, whole) for key, (name, whole) in arrays.items()},
        )
        self.step = self._known = step

    def evaluator(self) -> Evaluator:
        """See `engines.Engine`."""
        return RanksEvaluator(self._backend, self.pull)

    def facts(self) -> list[dict[str, Any]]:
        """Return of each rank what it has taken so far: CPU seconds, those of waiting, bytes sent and read."""
        return [dict(message.fields) for message in self._ask("facts")]

    def _ask(
        self,
        operation: str,
        fields: Mapping[str, Any] = NOTHING,
        arrays: Callable[[int], Arrays] = lambda _: NOTHING,
        shared: int | None = None,
    ) -> list[Message]:
        """Have all ranks do something when every step that they were told is done."""
        with self._crew.alone():
            while self._known < self.step:
                self._hear()
            return self._crew.ask(operation, fields, arrays, shared)

    def _hear(self, patient: bool = True) -> bool:
        """Hear from the first rank what came of a step; return whether there was something to hear."""
        with self._crew.alone():
            found = self._crew.collect({0}, patient)
            self._known += len(found)
        self._note(found)
        return bool(found)

    def _note(self, messages: Sequence[Message]) -> None:
        """Keep the first failure of all."""
        failures = [
            of_plain(StepFailure, message.fields["failure"]) for message in messages if message.fields["failure"]
        ]
        for failure in failures:
            if self._failure is None or failure.step < self._failure.step:
                self._failure = failure


class RanksEvaluator:
    """See `engines.Evaluator`; `number` is what the ranks call the network, 0 being the one that they train."""

    def __init__(self, backend: RanksBackend, network: Callable[[], Network], number: int = 0) -> None:
        self._backend, self._network, self._number = backend, network, number

    def __del__(self) -> None:
        """Note that the ranks need not keep the network any longer: here is no place to tell them."""
        if self._number:
            self._backend.dropped.append(self._number)

    @property
    def network(self) -> Network:
        """See `engines.Evaluator`."""
        return self._network()

    @property
    def at_once(self) -> int:
        """See `engines.Evaluator`."""
        return self._backend.at_once

    def mean_loss(self, examples: Examples) -> float:
        """See `engines.Evaluator`."""
        return float(self._ask("mean_loss", examples, {}).fields["loss"])

    def top(self, examples: Examples, output: int, k: int, owned: Csr | None) -> tuple[NDArray[np.int64], Floats]:
        """See `engines.Evaluator`."""
        arrays: dict[str, NDArray[Any]] = {}
        if owned is not None:
            arrays = {"owned_indptr": owned.indptr, "owned_indices": owned.indices}
            arrays |= {} if owned.values is None else {"owned_values": owned.values}
        fields = {"layer": output, "k": k, "width": 0 if owned is None else owned.width}
        found = self._ask("top", examples, fields, arrays).arrays
        return found["items"], found["sums"]

    def sums(self, examples: Examples, output: int) -> Floats:
        """See `engines.Evaluator`."""
        return self._ask("sums", examples, {"layer": output}).arrays["sums"]

    def values(self, examples: Examples, layer: int) -> Floats:
        """See `engines.Evaluator`."""
        return self._ask("values", examples, {"layer": layer}).arrays["values"]

    def _ask(self, operation: str, examples: Examples, fields: dict[str, Any], arrays: Arrays = NOTHING) -> Message:
        crew, dropped = self._backend.crew, self._backend.dropped
        with crew.alone():
            if dropped:
                crew.ask("forget", {"numbers": [dropped.popleft() for _ in range(len(dropped))]})
            return ask_about(crew, operation, examples, fields | {"evaluator": self._number}, lambda _: arrays)[0]


def ask_about(
    crew: Crew, operation: str, examples: Examples, fields: Mapping[str, Any], arrays: Callable[[int], Arrays]
) -> list[Message]:
    """Ask all ranks something about examples, which they share."""
    about, found = describe(examples)
    with share(found) as (places, memory):
        return crew.ask(operation, {**fields, "examples": about, "places": places}, arrays, memory)


def _held(network: Network) -> dict[str, list[int]]:
    return {"locked": sorted(network.locked), "fixed": sorted(network.fixed)}
