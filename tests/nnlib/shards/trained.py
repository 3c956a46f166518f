"""A training on 1, 2, 4 or 8 ranks, these being threads, step by step as `training.loop` has it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.engines import LocalBackend
from nnlib.model.batches import batches_of, epoch_order
from nnlib.model.examples import Examples, examples_of
from nnlib.model.fine_tuning import freeze
from nnlib.model.network import Network
from nnlib.shards import collectives
from nnlib.shards.collectives import Collectives
from nnlib.shards.cut import Cut
from nnlib.shards.plan import LEAST, plan_of
from nnlib.shards.tree import RANKS
from nnlib.util.threads import workers
from tests.nnlib.samples import network_of, random_matrix, sets_of
from tests.nnlib.shards.together import run_ranks

EXAMPLES, BATCH, EPOCHS = 45, 20, 2  # the last batch is short, and none has a multiple of 8
SETS = sets_of(
    x=random_matrix(EXAMPLES, LEAST + 5, 1, 0.01, analog=True),
    w=random_matrix(EXAMPLES, LEAST + 9, 2, 0.005),
    y=random_matrix(EXAMPLES, LEAST + 77, 3, 0.01),
    v=random_matrix(EXAMPLES, LEAST + 1100, 4, 0.005, analog=True),
    n=random_matrix(EXAMPLES, 30, 5),
    d=np.random.default_rng(6).random((EXAMPLES, 20)),
    z=np.random.default_rng(7).random((EXAMPLES, LEAST + 3)),
)
INPUT = {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x"}
HIDDEN = {"Name": "H", "Kind": "Hidden", "N": 12, "Activation": "Tanh"}
OUTPUT = {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "y"}
PLAIN: dict[str, Any] = {"Layers": [INPUT, HIDDEN, OUTPUT]}
NOISY = PLAIN | {"Denoising": {"p": 0.3}, "Layers": [INPUT, HIDDEN | {"pDropout": 0.4}, OUTPUT]}


@dataclass
class Trained:
    """What is the same on any number of ranks: parameters and states, whole, and the sums of the epochs' errors."""

    network: Network
    states: dict[str, Any]
    step: int = 0
    totals: list[float] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256(repr((self.step, self.totals, self.answers)).encode())
        for name, array in (*self.network.arrays(), *sorted(self.states.items())):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def settings_of(**changes: Any) -> TrainSettings:
    return TrainSettings(**{"batch": BATCH, "epochs": EPOCHS, "learning_rate": 0.01, "parallel": "items"} | changes)


def engine_of(
    network: Network,
    examples: Examples,
    settings: TrainSettings,
    each: Any,
    together: Collectives,
    backend: LocalBackend | None = None,
) -> tuple[Any, Cut]:
    """The engine of one rank, with arrays of its own; of processors, if nothing else is given."""
    cut = Cut(plan_of(network.spec, settings.batch, settings.parallel), network.spec, together.own)
    part = (backend or Cpu(each)).part
    return part(cut.network(network).copy(), examples, settings, cut, together), cut


@contextmanager
def on_processors(each: Any, together: Collectives) -> Iterator[tuple[LocalBackend, Collectives]]:
    """What a rank computes on, and what joins it with the others."""
    yield Cpu(each), together


def train(
    ranks: int,
    raw: Mapping[str, Any] = PLAIN,
    sets: Any = SETS,
    threads: int = 1,
    before: Trained | None = None,
    steps: int | None = None,
    ask: Any = None,
    opened: Any = on_processors,
    **changes: Any,
) -> Trained:
    """Train from the first parameters, or on from what was trained `before`, for so many steps at most.

    `ask(evaluator, examples)` gives what is the same on all ranks, after each epoch. `opened`: as `on_processors`.
    """
    first = freeze(network_of(dict(raw), sets, compat=bool(changes.get("compat"))), 1)
    whole = (before.network if before else first).copy()
    found = Trained(whole.copy(), dict(before.states) if before else {}, before.step if before else 0)
    examples, settings = examples_of(whole.spec, sets, "d"), settings_of(**changes)
    places = batches_of(examples.count, settings.batch)
    last = min(settings.epochs * len(places), found.step + steps if steps else 1 << 30)
    states = found.states

    def work(together: Collectives) -> tuple[list[float], list[Any]]:
        with opened(each, together) as (backend, joined):
            return work_on(backend, joined)

    def work_on(backend: LocalBackend, together: Collectives) -> tuple[list[float], list[Any]]:
        engine, cut = engine_of(whole, examples, settings, each, together, backend)
        if before:
            engine.resume(before.step, {name: cut.take(name, array) for name, array in before.states.items()})
        totals, answers = list[float](), list[Any]()
        with np.errstate(all="ignore"):
            while engine.step < last:
                epoch, done = divmod(engine.step, len(places))
                order = epoch_order(settings.seed, epoch + 1, examples.count, whole.spec.shuffle)
                engine.begin_epoch(before.totals[-1] if before and done else 0.0)
                now = places[done : done + last - engine.step]
                with closing(engine.batches(order[low:high] for low, high in now)) as batches:
                    for batch in batches:
                        engine.run(batch)
                engine.settle()
                totals.append(engine.total())
                if ask is not None:
                    answers.append(ask(engine.evaluator(), examples))
        assert engine.failed() is None and engine.broken() == ""
        for name, array in engine.pull().arrays():
            cut.put(name, array, dict(found.network.arrays())[name])
        for name, array in engine.states().items():
            length = len(dict(whole.arrays())[name.split("_state")[0]])
            cut.put(name, array, states.setdefault(name, np.zeros((length, *array.shape[1:]), array.dtype)))
        return totals, answers

    with workers(threads) as each:
        found.totals, found.answers = run_ranks(ranks, work)[0]
    found.step = last
    return found


def assert_same(**arguments: Any) -> Trained:
    """Train on 1, 2, 4 and 8 ranks: all have the same."""
    found = [train(ranks, **arguments) for ranks in RANKS]
    assert len({one.sha256 for one in found}) == 1, [one.totals for one in found]
    return found[0]


def assert_goes_on(**arguments: Any) -> None:
    """Train on one rank, and on 4, 2, 8 and one of them after each other: what is trained is the same."""
    whole = train(1, **arguments)
    part = train(4, **arguments, steps=2)
    part = train(2, **arguments, before=part, steps=2)
    part = train(8, **arguments, before=part, steps=1)
    part = train(1, **arguments, before=part)
    assert part.totals[-1] == whole.totals[-1]
    part.totals = whole.totals
    assert part.sha256 == whole.sha256


def sum_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the mistake that sums are not those of the tree: the bits depend on the number of ranks then."""
    monkeypatch.setattr(collectives, "tree_sum", lambda parts: functools.reduce(np.add, parts))
