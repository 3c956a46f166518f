"""Eight weeks of nights on the retail example: the table grows by a week, `regiondag update` makes the next run.

Each night's champions serve the seven days after it. What they reach there is compared with recipes that nobody could
have chosen any better, with simple ones for ever, and with what serves when nothing is chosen or fitted again.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import numpy as np

from nnlib.contract import recipe_from_json
from nnlib.util.days import day_of
from regiondag.champions.chance import estimate
from regiondag.run.layout import RunFolder
from regiondag.study.families import AGAIN, FIRST, POPULARITY, describe_recipe
from regiondag.study.model import ALL, POOLED
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.manager.pools import pool_up
from scripts.bench.quality.nights_served import (
    BESTSELLERS,
    METRICS,
    OLD,
    Served,
    Values,
    Week,
    by_customer,
    first_recipes,
    measure_week,
    read_served,
    read_week,
    serve,
)
from scripts.bench.quality.runs import (
    LAST,
    SLOTS,
    SUITE,
    TABLE,
    call,
    read_purchases,
    wait_for_run,
    write_study,
    write_table,
)

BENCH = "nights"
POOL = "bench-nights"
WEEK = 7  # days from one night to the next, each of which is judged by the customers of the days between
NEAR, CHANGES = 0.99, 2  # goals: of the best recipe's NDCG@20, and how often the common recipe may change
ORACLE = "the best recipe in hindsight"


Way = Callable[[int, str], str]  # number of the night, slug of the region -> recipe


@dataclass(frozen=True)
class Sizes:
    """Which countries, how many nights, and what is tried."""

    countries: tuple[str, ...] = ()  # all
    nights: int = 9  # the first decides nothing: all ways begin with it
    families: tuple[str, ...] = tuple(dict.fromkeys(family for family, _ in FIRST if family != AGAIN))
    study: str = ""  # more lines of study.yaml


QUICK = Sizes(
    ("Belgium", "Germany", "Portugal"),
    2,
    (POPULARITY, "knn"),
    "families: [popularity, knn]\nsearch: {rounds: 1, parallel: 4}\n",
)


@dataclass(frozen=True)
class Night:
    """A run that has ended."""

    day: date  # the first one that nothing of it knows
    run: RunFolder
    served: Served
    seconds: float  # from `update` to the report


class NightsBench(Bench[Sizes]):
    """The rows."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        super().__init__(area, sizes)
        self._found: dict[str, object] = {}
        self._purchases = read_purchases(sizes.countries)

    def weeks(self) -> Iterator[Row]:
        """What serves, beside whatever else could have."""
        nights = self._run_nights()
        yield Row("a night, update to report, median", statistics.median(n.seconds for n in nights[1:]), None, "s")
        changes = sum(one.served.common != two.served.common for one, two in itertools.pairwise(nights))
        yield Row("changes of the common recipe", changes, None, "", CHANGES)
        weeks = [self._read_week(night) for night in nights[1:]]
        values = [self._measure(week, night, nights) for week, night in zip(weeks, nights[1:], strict=True)]
        ways = self._ways(nights, values)
        figures = {
            name: [serve(*both, partial(way, n)) for n, both in enumerate(zip(weeks, values, strict=True), 1)]
            for name, way in ways.items()
        }
        self._found["nights"] = [_show(night) for night in nights]
        self._found["weeks"] = {name: [round(float(f[0].mean()), 4) for f in one] for name, one in figures.items()}
        self._found["customers"] = [len(week.customers) for week in weeks]
        customers = [customer for week in weeks for customer in week.customers]
        served, *others = ((name, np.concatenate(one, axis=1)) for name, one in figures.items())
        yield from self._compare(served[1], dict(others), customers)

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return the nights and weeks one by one, and the differences with their intervals."""
        return self._found

    def _run_nights(self) -> list[Night]:
        folder = self.area / "shop"
        folder.mkdir()
        study, nights = write_study(folder, self.sizes.study), []
        with pool_up(POOL, SUITE, self.area, gpus=SLOTS):
            for number in range(self.sizes.nights):
                day = LAST + timedelta(days=1 - WEEK * (self.sizes.nights - number))
                write_table(folder / TABLE, self._purchases, day)
                begin = time.monotonic()
                made = call("update", str(study), "--submit", "--quiet", "--pool", POOL).splitlines()[:1]
                if not made:
                    raise NotMeasuredError(f"update has made no run on {day}, though there are {WEEK} days more")
                run = wait_for_run(made[0], POOL)
                seconds = time.monotonic() - begin
                nights.append(Night(day, run, read_served(run, day_of(day)), seconds))
        return nights

    def _read_week(self, night: Night) -> Week:
        folder = self.area / f"week-{night.day}"
        folder.mkdir()
        write_table(folder / TABLE, self._purchases, night.day + timedelta(days=WEEK))
        return read_week(folder / TABLE, folder / "data", WEEK)

    def _measure(self, week: Week, night: Night, nights: Sequence[Night]) -> dict[str, Values]:
        """Fit every recipe on what a night knew, and ask it about the week after."""
        recipes = self._known(nights) | {BESTSELLERS}
        return measure_week(week, night.run.region(POOLED).data(ALL), recipes, night.served, nights[0].served)

    def _known(self, nights: Sequence[Night]) -> set[str]:
        """Return what is tried first, and what has served by the last of these nights."""
        first = {text for family in self.sizes.families for text in first_recipes(family)}
        return first | {text for night in nights for text in night.served.models}

    def _ways(self, nights: Sequence[Night], values: Sequence[Mapping[str, Values]]) -> dict[str, Way]:
        """Return all ways to serve, by name, the one that is measured first."""

        def always(text: str) -> Way:
            return lambda _number, _region: text

        worth = {text: np.concatenate([one[text][0] for one in values]).mean() for text in values[0]}
        so_far = [max(sorted(self._known(nights[: n + 1])), key=worth.__getitem__) for n in range(len(nights))]
        self._found["best in hindsight"] = json.loads(so_far[-1])
        first = nights[0].served
        return {
            "served": lambda number, region: nights[number].served.recipe(region),
            ORACLE: always(so_far[-1]),
            f"{ORACLE}, of those known by then": lambda number, _: so_far[number],
            "bestsellers": always(BESTSELLERS),
            **{
                describe_recipe(recipe_from_json(text)): always(text)
                for family in self.sizes.families
                for text in first_recipes(family)
            },
            "the first night's recipe, fitted anew": lambda _, region: first.recipe(region),
            "the first night's weights": lambda _, region: OLD + first.recipe(region),
        }

    def _compare(
        self, served: Values, others: Mapping[str, Values], customers: Sequence[tuple[str, str]]
    ) -> Iterator[Row]:
        differences: dict[str, dict[str, list[float]]] = {name: {} for name in others}
        self._found["differences"] = differences  # with their 95 % intervals
        for n, metric in enumerate(METRICS):
            for name, values in others.items():
                gain = estimate(by_customer(served[n] - values[n], customers))
                differences[name][metric] = [round(end, 5) for end in (gain.mean, gain.low, gain.high)]
                note = f"difference {gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"
                ours, peer = float(served[n].mean()), float(values[n].mean())
                goal = NEAR if (metric, name) == (METRICS[0], ORACLE) else None
                yield Row(
                    f"{metric} (peer: {name})", ours, peer, "", goal, note, higher=True, goal_is_ratio=goal is not None
                )


def _show(night: Night) -> dict[str, object]:
    """Return what is kept of a night."""
    return {
        "day": night.day.isoformat(),
        "seconds": round(night.seconds, 1),
        "common": json.loads(night.served.common),
        "reason": night.served.reason,
        "regions": dict(night.served.kinds),
    }


if __name__ == "__main__":
    sys.exit(main(BENCH, NightsBench, Sizes(), QUICK))
