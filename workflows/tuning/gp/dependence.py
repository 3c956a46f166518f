"""Partial dependence: what the model takes the loss to be at each value of one hyperparameter, over all others.

Others are averaged over the points that were tried (Friedman 2001), so that the average is of points that exist. Its
deviation is that of the average, in which what the model does not know of single points is averaged out, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regiondag.study.space import Choice, Parameter, Value, level, list_levels, value_at
from regiondag.tuning.domain import Domain
from regiondag.tuning.encoding import Encoding
from regiondag.tuning.gp.ask import Z95, fit_model
from regiondag.tuning.sharing import Observation

PLACES = 9  # of a range
MOST_VALUES = 12  # of options, or of steps
MOST_POINTS = 60  # over which the others are averaged


@dataclass(frozen=True, slots=True)
class Dependence:
    """What the model takes the loss to be at some values of one hyperparameter."""

    name: str
    values: tuple[Value, ...]
    means: tuple[float, ...]
    lows: tuple[float, ...]  # 95 %
    highs: tuple[float, ...]


def depend_on_each(domain: Domain, history: Sequence[Observation], seed: int) -> list[Dependence]:
    """Return the dependence on each hyperparameter, that on which most depends first; nothing without a model.

    Of a hyperparameter that only some points have, over these.
    """
    model = fit_model(domain, history, seed)
    if model is None or model.scale is None:
        return []
    encoding = Encoding(domain.space)
    rows = model.told.rows[: model.told.own]
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_POINTS)).astype(int))]
    found: list[tuple[float, Dependence]] = []
    for column, parameter in enumerate(domain.space):
        having = rows[encoding.active(rows)[:, column]]
        values = _values(parameter)
        if not len(having) or len(values) < 2:
            continue
        averages = []
        for row in encoding.coordinates({parameter.name: value} for value in values):
            there = having.copy()
            there[:, column] = row[column]
            averages.append(model.process.predict_average(encoding.features(encoding.snap(there)) * encoding.weights))
        means, deviations = np.array(averages).T
        losses = model.scale.losses(np.stack([means, means - Z95 * deviations, means + Z95 * deviations]))
        mean, low, high = (tuple(map(float, line)) for line in losses)
        found.append((float(np.ptp(means)), Dependence(parameter.name, values, mean, low, high)))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]


def _values(parameter: Parameter) -> tuple[Value, ...]:
    """Return where to look: options, steps, or places that are even on the parameter's own scale, each once."""
    if isinstance(parameter, Choice):
        return parameter.options[:MOST_VALUES]
    count = list_levels(parameter)
    if count is not None and count <= MOST_VALUES:
        return tuple(level(parameter, number) for number in range(count))
    return tuple(dict.fromkeys(value_at(parameter, float(unit)) for unit in np.linspace(0.0, 1.0, PLACES)))
