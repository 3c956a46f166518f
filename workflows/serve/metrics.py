"""What Prometheus asks for: counts of requests, how long they took, and which champions serve.

Counters lie in memory that all worker processes share, each in a part of its own: whichever is asked, tells the sums.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from regiondag.serve.routes import ROUTES

OTHER = "other"  # what no route has
ROUTE_NAMES = (*(route.name for route in ROUTES), OTHER)
GONE = 499  # the client had left before there was an answer
STATUSES = (200, 400, 401, 404, 405, 408, 413, 415, 421, 431, GONE, 500, 503)
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds

_ROUTE = {name: number for number, name in enumerate(ROUTE_NAMES)}
_STATUS = {status: number for number, status in enumerate(STATUSES)}
# A route has a number for each status, one for each bucket and one for those above, and the sum of seconds.
_PER_ROUTE = len(STATUSES) + len(BOUNDS) + 2
_SINGLE = len(ROUTE_NAMES) * _PER_ROUTE
IN_FLIGHT, LOADED, NOT_LOADED, FAULTS = range(_SINGLE, _SINGLE + 4)
_SLOTS = _SINGLE + 4


@dataclass(frozen=True, slots=True)
class Champions:
    """One region, as its figures have it; times are Unix seconds, None where nothing serves."""

    study: str
    region: str
    version: str
    promoted: float | None
    loaded: float | None
    failed: bool


class Counters:
    """The counters of one process, and the sums of all: make it before the others begin."""

    def __init__(self, workers: int = 1) -> None:
        self._all = memoryview(mmap.mmap(-1, workers * _SLOTS * 8)).cast("d")
        self._workers = workers
        self.take(0)

    def take(self, worker: int) -> None:
        """Count as this worker from now on."""
        self._mine = self._all[worker * _SLOTS : (worker + 1) * _SLOTS]
        self._mine[IN_FLIGHT] = 0  # a worker that died may have left some

    def add(self, slot: int, more: float = 1.0) -> None:
        """Add to one of the single counters."""
        self._mine[slot] += more

    @property
    def in_flight(self) -> int:
        """How many requests this process is at."""
        return int(self._mine[IN_FLIGHT])

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        base = _ROUTE[route] * _PER_ROUTE
        self._mine[base + _STATUS.get(status, _STATUS[500])] += 1
        self._mine[base + len(STATUSES) + bisect_left(BOUNDS, seconds)] += 1
        self._mine[base + _PER_ROUTE - 1] += seconds

    def sums(self) -> list[float]:
        """Return the sums over all workers."""
        return [sum(self._all[slot::_SLOTS]) for slot in range(_SLOTS)]


def render(counters: Counters, champions: Sequence[Champions], now: float) -> str:
    """Return the text that Prometheus reads, format 0.0.4."""
    return "".join(f"{line}\n" for line in _lines(counters.sums(), champions, now))


def _lines(sums: list[float], champions: Sequence[Champions], now: float) -> Iterator[str]:
    yield from _head("requests_total", "counter", "Requests that were answered, by route and status.")
    for name, number in _ROUTE.items():
        for status, place in _STATUS.items():
            if found := sums[number * _PER_ROUTE + place]:
                yield f'regiondag_requests_total{{route="{name}",status="{status}"}} {found:.0f}'
    yield from _head("request_seconds", "histogram", "How long requests took, from their headers to their answer.")
    for name, number in _ROUTE.items():
        yield from _histogram(name, sums[number * _PER_ROUTE + len(STATUSES) : (number + 1) * _PER_ROUTE])
    yield from _single("requests_in_flight", "gauge", "Requests that are being answered.", sums[IN_FLIGHT])
    yield from _single("faults_total", "counter", "Requests that met a fault of the service.", sums[FAULTS])
    yield from _head("loads_total", "counter", "Champions that were loaded, or could not be; each worker counts.")
    yield f'regiondag_loads_total{{result="loaded"}} {sums[LOADED]:.0f}'
    yield f'regiondag_loads_total{{result="failed"}} {sums[NOT_LOADED]:.0f}'
    yield from _per_region(champions, now)


def _histogram(route: str, values: Sequence[float]) -> Iterator[str]:
    *counts, seconds = values
    if not sum(counts):
        return
    total = 0.0
    for bound, found in zip([*map(repr, BOUNDS), "+Inf"], counts, strict=True):
        total += found
        yield f'regiondag_request_seconds_bucket{{route="{route}",le="{bound}"}} {total:.0f}'
    yield f'regiondag_request_seconds_sum{{route="{route}"}} {seconds:.6f}'
    yield f'regiondag_request_seconds_count{{route="{route}"}} {total:.0f}'


def _per_region(champions: Iterable[Champions], now: float) -> Iterator[str]:
    labels = [(one, f'study="{_escape(one.study)}",region="{_escape(one.region)}"') for one in champions]
    yield from _head("champion_info", "gauge", "The version that serves a region.")
    for one, label in labels:
        if one.version:
            yield f'regiondag_champion_info{{{label},version="{_escape(one.version)}"}} 1'
    yield from _head("champion_age_seconds", "gauge", "How long ago the champion that serves was promoted.")
    yield from (_aged("champion", label, one.promoted, now) for one, label in labels if one.promoted is not None)
    yield from _head("loaded_age_seconds", "gauge", "How long ago this process loaded it.")
    yield from (_aged("loaded", label, one.loaded, now) for one, label in labels if one.loaded is not None)
    yield from _head("champion_failed", "gauge", "1 where the champion in office cannot be loaded.")
    yield from (f"regiondag_champion_failed{{{label}}} {int(one.failed)}" for one, label in labels)


def _aged(what: str, label: str, since: float | None, now: float) -> str:
    return f"regiondag_{what}_age_seconds{{{label}}} {max(0.0, now - (since or 0.0)):.3f}"


def _head(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP regiondag_{name} {about}"
    yield f"# TYPE regiondag_{name} {kind}"


def _single(name: str, kind: str, about: str, value: float) -> Iterator[str]:
    yield from _head(name, kind, about)
    yield f"regiondag_{name} {value:.0f}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
