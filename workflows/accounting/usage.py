"""What a run's jobs took: slots, GPUs, time, money, and what came of it. Data and pure functions.

A slot is taken from the first file that is sent to it until the leg ends there; a GPU-hour is an hour of one GPU.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from regiondag.accounting.prices import PriceTable
from regiondag.condor.events.attempts import Attempt, Leg, gpus_of
from regiondag.run.layout import NodeName

HOUR = 3600.0
EVICTED = ("evicted", "lost")  # endings that are the machine's doing


@dataclass(frozen=True, slots=True)
class Taken:
    """How one node's jobs spent their time, in seconds over all tries. Costs are None where a price is unknown."""

    node: NodeName
    tries: int
    starts: int
    evictions: int
    holds: int
    slot: float
    gpu: float
    training: float  # as its journal says
    waited: tuple[float, ...]  # of each try that started: in the queue before
    transfers: float | None  # None where the log leaves them out
    lost_to_eviction: float  # slot time of legs whose work did not come back
    lost_to_failure: float  # slot time of tries that failed, or were removed or held
    ran: float  # of the try that succeeded: time on a slot
    cost: float | None


@dataclass(frozen=True, slots=True)
class Usage:
    """The same of a region, or of a whole run. Times in hours, waits and overheads in seconds."""

    trials: int  # nodes that had a job
    tries: int
    evictions: int
    holds: int
    slot_hours: float
    gpu_hours: float
    training_hours: float
    busy: float | None  # share of the time for which it had its slots in which they worked for it
    lost_to_eviction: float
    lost_to_failure: float
    wait_median: float | None
    wait_90: float | None
    transfer_hours: float | None
    transfer_share: float | None
    overhead: float | None  # median of a trial's time on its slot that was no training
    cost: float | None
    cost_per_trial: float | None


def slot_seconds(leg: Leg, now: float) -> float:
    """Return for how long a leg had its slot: it begins with the transfer of its inputs."""
    return leg.running.seconds(now) + _before(leg)


def _before(leg: Leg) -> float:
    return max(leg.running.start - leg.transfer_in.start, 0.0) if leg.transfer_in is not None else 0.0


def take(
    attempts: Iterable[Attempt], training: Mapping[NodeName, float], prices: PriceTable, now: float
) -> list[Taken]:
    """Sum up what each node's jobs took; `training` are the seconds that the journals know."""
    nodes: dict[NodeName, list[Attempt]] = {}
    for attempt in attempts:
        nodes.setdefault(attempt.node, []).append(attempt)
    return [_take_node(node, tries, training.get(node, 0.0), prices, now) for node, tries in nodes.items()]


def _take_node(node: NodeName, tries: Sequence[Attempt], training: float, prices: PriceTable, now: float) -> Taken:
    legs = [(attempt, leg) for attempt in tries for leg in attempt.legs]
    seconds = [slot_seconds(leg, now) for _, leg in legs]
    gpus = [gpus_of(attempt, leg) for attempt, leg in legs]
    hourly = [prices.of_leg(leg, count) for (_, leg), count in zip(legs, gpus, strict=True)]
    costs = [price * time / HOUR for price, time in zip(hourly, seconds, strict=True) if price is not None]
    evicted = [leg.ending in EVICTED and not leg.kept for _, leg in legs]
    failed = [
        not bad and (_has_failed(attempt) or (leg.ending == "held" and not leg.kept))
        for bad, (attempt, leg) in zip(evicted, legs, strict=True)
    ]
    good = [attempt for attempt in tries if attempt.exit_code == 0]
    return Taken(
        node=node,
        tries=len(tries),
        starts=len(legs),
        evictions=sum(leg.ending in EVICTED for _, leg in legs),
        holds=sum(len(attempt.holds) for attempt in tries),
        slot=sum(seconds),
        gpu=sum(time * count for time, count in zip(seconds, gpus, strict=True)),
        training=training,
        waited=tuple(
            max(attempt.legs[0].running.start - _before(attempt.legs[0]) - attempt.queued.start, 0.0)
            for attempt in tries
            if attempt.legs
        ),
        transfers=_transfers([leg for _, leg in legs], now),
        lost_to_eviction=sum(time for time, lost in zip(seconds, evicted, strict=True) if lost),
        lost_to_failure=sum(time for time, lost in zip(seconds, failed, strict=True) if lost),
        ran=sum(slot_seconds(leg, now) for attempt in good for leg in attempt.legs if leg.kept),
        cost=sum(costs) if len(costs) == len(hourly) else None,
    )


def _has_failed(attempt: Attempt) -> bool:
    ended = attempt.exit_code is not None or attempt.signal is not None or attempt.removed
    return bool(ended) and attempt.exit_code != 0


def _transfers(legs: Sequence[Leg], now: float) -> float | None:
    spans = [span for leg in legs for span in (leg.transfer_in, leg.transfer_out) if span is not None]
    return sum(span.seconds(now) for span in spans) if spans else None


def sum_up(taken: Sequence[Taken], attempts: Sequence[Attempt], now: float) -> Usage:
    """Add up what the nodes of a region, or of all regions, took."""
    waits = sorted(wait for one in taken for wait in one.waited)
    transfers = [one.transfers for one in taken if one.transfers is not None]
    slot = sum(one.slot for one in taken)
    overheads = [max(one.ran - one.training, 0.0) for one in taken if one.ran and one.training]
    costs = [one.cost for one in taken if one.cost is not None]
    cost = sum(costs) if len(costs) == len(taken) else None
    return Usage(
        trials=len(taken),
        tries=sum(one.tries for one in taken),
        evictions=sum(one.evictions for one in taken),
        holds=sum(one.holds for one in taken),
        slot_hours=slot / HOUR,
        gpu_hours=sum(one.gpu for one in taken) / HOUR,
        training_hours=sum(one.training for one in taken) / HOUR,
        busy=busy_share(attempts, now),
        lost_to_eviction=sum(one.lost_to_eviction for one in taken) / HOUR,
        lost_to_failure=sum(one.lost_to_failure for one in taken) / HOUR,
        wait_median=statistics.median(waits) if waits else None,
        wait_90=waits[9 * len(waits) // 10] if waits else None,
        transfer_hours=sum(transfers) / HOUR if transfers else None,
        transfer_share=sum(transfers) / slot if transfers and slot else None,
        overhead=statistics.median(overheads) if overheads else None,
        cost=cost,
        cost_per_trial=cost / len(taken) if cost is not None and taken else None,
    )


def busy_share(attempts: Iterable[Attempt], now: float) -> float | None:
    """Return the share of the time from each slot's first job to its last in which it had one."""
    slots: dict[str, list[Leg]] = {}
    for attempt in attempts:
        for leg in attempt.legs:
            slots.setdefault(leg.slot, []).append(leg)
    had = 0.0
    for legs in slots.values():
        begin = min(leg.running.start - _before(leg) for leg in legs)
        end = max(now if leg.running.end is None else leg.running.end for leg in legs)
        had += max(end - begin, 0.0)
    busy = sum(slot_seconds(leg, now) for legs in slots.values() for leg in legs)
    return min(busy / had, 1.0) if had else None
