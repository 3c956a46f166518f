"""What a problem of tuner.py is: a space, what a tuner observes there, and what its points are judged by.

Everything is minimised. `observe` is what a tuner sees, with the noise that belongs to this trial of this run, or None
where the trial fails; `true` is what a reported point is judged by. Nothing here may be used to choose a tuner's
constants.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Value = float | int | str
Point = Mapping[str, Value]
When = tuple[tuple[str, tuple[Value, ...]], ...]  # (an earlier parameter's name, its values), all of which must hold
PROBES = 4  # points that tell whether a kept run was of the same problem


@dataclass(frozen=True)
class Parameter:
    """A real or whole number between bounds, or one of some options; absent from a point where `when` does not hold.

    Options are categories, or a scale of its own with `ordered`.
    """

    name: str
    low: float = 0
    high: float = 0
    log: bool = False
    whole: bool = False
    options: tuple[Value, ...] = ()
    ordered: bool = False
    when: When = ()

    def at(self, unit: float) -> Value:
        """Return the value at `unit` in [0, 1), uniform on the parameter's scale; every whole number as likely."""
        if self.options:
            return self.options[int(unit * len(self.options))]
        low, high = (self.low - 0.5, self.high + 0.5) if self.whole else (self.low, self.high)
        value = math.exp(math.log(low) + math.log(high / low) * unit) if self.log else low + (high - low) * unit
        value = min(max(value, self.low), self.high)
        return min(max(round(value), round(self.low)), round(self.high)) if self.whole else value

    def is_active(self, values: Point) -> bool:
        """Return whether a point with these values of the parameters before it has the parameter."""
        return all(name in values and values[name] in allowed for name, allowed in self.when)


@dataclass(frozen=True)
class Problem:
    """A loss over a space, in which a parameter's conditions only name parameters before it.

    `optimum` is the least true value, or the best one known; where a run found less, or where it is None, the best
    value of all runs stands for it. How small a regret still counts is no part of a problem: the statistics take a
    thousandth and a hundredth of the median that random search leaves after 28 trials.
    """

    name: str
    source: str  # who made it known, such as "yahpo" or "bbob"
    space: tuple[Parameter, ...]
    true: Callable[[Point], float]  # infinite where the trial fails
    optimum: float | None = None
    noise: float = 0.0  # standard deviation added to the true value
    trial: Callable[[Point, int], float] | None = None  # a real training with its seed, instead of added noise
    worst: float | None = None  # where parts of the space fail: about the largest value of what does not
    constraints: tuple[str, ...] = ()  # that a tuner may know, as a study states them

    @property
    def kinds(self) -> frozenset[str]:
        """What makes it hard: numbers, categories, conditions, noise, failures, constraints."""
        found = {
            "numbers": any(not parameter.options or parameter.ordered for parameter in self.space),
            "categories": any(parameter.options and not parameter.ordered for parameter in self.space),
            "conditions": any(parameter.when for parameter in self.space),
            "noise": self.noise > 0 or self.trial is not None,
            "failures": self.worst is not None,
            "constraints": bool(self.constraints),
        }
        return frozenset(kind for kind, holds in found.items() if holds)

    def observe(self, point: Point, seed: int, trial: int) -> float | None:
        """Return what trial number `trial` of the run with this seed reports, or None if it fails."""
        if not self.is_legal(point):
            return None
        chance = np.random.default_rng([seed, trial, *self.name.encode()])
        if self.trial:
            return _finite(self.trial(point, int(chance.integers(1, 2**31))))
        return _finite(self.true(point) + self.noise * float(chance.standard_normal()))

    def is_legal(self, point: Point) -> bool:
        """Return whether a point keeps to the constraints."""
        return all(constraint.holds(point) for constraint in self._constraints)

    @cached_property
    def _constraints(self) -> tuple[Any, ...]:
        from regiondag.study.constraints import parse_constraints  # a peer's environment has none

        return parse_constraints(self.constraints, (parameter.name for parameter in self.space))

    def random_point(self, chance: np.random.Generator) -> dict[str, Value]:
        """Return a uniform point of those that keep to the constraints."""
        while True:
            point = self.without_absent({parameter.name: parameter.at(chance.random()) for parameter in self.space})
            if self.is_legal(point):
                return point

    def without_absent(self, values: Point) -> dict[str, Value]:
        """Return the point without parameters whose condition does not hold."""
        found: dict[str, Value] = {}
        for parameter in self.space:
            if parameter.is_active(found):
                found[parameter.name] = values[parameter.name]
        return found

    def fingerprint(self) -> str:
        """Return a digest of the space and of some values: kept runs of a problem that has changed do not count."""
        chance = np.random.default_rng(1)
        points = [self.random_point(chance) for _ in range(PROBES)]
        observed = [self.observe(point, 0, trial) for trial, point in enumerate(points)]
        values = ["failed" if value is None else f"{value:.6g}" for value in (*observed, self.true(points[0]))]
        return hashlib.sha256(json.dumps([points, values, *self.constraints]).encode()).hexdigest()[:12]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
