"""How many ranks a training may have, and opening them: one is this process itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from nnlib.contract import TrainSettings
from nnlib.devices import GPU, open_device
from nnlib.engines import Backend
from nnlib.errors import NnlibError
from nnlib.parallel.places import VISIBLE, find_gpus, gpus_of, most_ranks
from nnlib.shards.plan import EXAMPLES, plan_of
from nnlib.shards.tree import RANKS
from nnlib.spec.types import NetworkSpec
from nnlib.util.threads import Each, workers


@contextmanager
def open_ranks(device: str, threads: int, ranks: int) -> Iterator[tuple[Backend, Each]]:
    """Give what computes on so many processes, and the threads for what is done beside it. MachineError.

    `device` is cpu or gpu, of which each rank then has one; the ranks share the threads.
    """
    if ranks == 1:
        with open_device(device, threads) as opened:
            yield opened
        return
    from nnlib.parallel.crew import Crew
    from nnlib.parallel.ranks import RanksBackend

    gpus = gpus_of(ranks, os.environ) if device == GPU else ()
    with workers(threads) as each, Crew(device, ranks, threads, gpus) as crew:
        yield RanksBackend(crew), each


def check_ranks(ranks: int, spec: NetworkSpec, settings: TrainSettings, device: str, where: str = "ranks") -> None:
    """Raise NnlibError unless a network, whose layers have all their units, can be trained by so many ranks."""
    if type(ranks) is not int or ranks not in RANKS:
        raise NnlibError(f"{where}: {ranks!r:.40} is not legal, legal: {', '.join(map(str, RANKS))}")
    if ranks == 1:
        return
    if not plan_of(spec, settings.batch, settings.parallel).is_cut:
        raise NnlibError(
            f"{where}: {ranks} ranks have nothing to share of this network: {_why_whole(spec, settings)}; legal: 1"
            + ", or parallel examples" * _goes_by_examples(spec, settings)
        )
    gpus = find_gpus(os.environ)
    if device == GPU and 0 < len(gpus) < ranks:
        raise NnlibError(
            f"{where}: {ranks} ranks need a GPU each, {VISIBLE} names {len(gpus)}; legal: {most_ranks(len(gpus))} at "
            "most, or device cpu"
        )


def choose_ranks(spec: NetworkSpec, settings: TrainSettings, environment: Mapping[str, str]) -> int:
    """Return how many ranks a job takes that may use the GPUs of its environment: as many as share a network.

    Where GPUs are simulated, or cannot be used, processors stand in for them.
    """
    if not plan_of(spec, settings.batch, settings.parallel).is_cut:
        return 1
    return most_ranks(len(find_gpus(environment)))


def _goes_by_examples(spec: NetworkSpec, settings: TrainSettings) -> bool:
    """Whether batches could be cut, if that were asked for."""
    try:
        return plan_of(spec, settings.batch, EXAMPLES).is_cut
    except NnlibError:
        return False


def _why_whole(spec: NetworkSpec, settings: TrainSettings) -> str:
    """Say why the plan of a training cuts nothing."""
    if settings.parallel.lower() != "auto":
        return "parallel is none"
    try:
        plan_of(spec, settings.batch, "items")
    except NnlibError as error:
        return str(error).partition("; legal")[0].removeprefix("parallel: ")
    return "parallel auto cuts no layer of it, parallel items would"
