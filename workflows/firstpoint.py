"""The point with which the search of a region that has a champion begins: the champion's own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workflows.space import Choice, Integer, Parameter, Value, level, without_inactive
from workflows.study import Search
from workflows.tuning.domain import domain_of, identity


def champion_point(search: Search, hyperparameters: Mapping[str, Any]) -> dict[str, Value] | None:
    """Return a champion's hyperparameters as a point of `search`; None when the space does not hold it (any more)."""
    try:
        point = without_inactive(search.space, hyperparameters)
    except KeyError:  # the space has a parameter that it had not when the champion was found
        return None
    domain = domain_of(search)
    if not all(_legal(parameter, point[parameter.name]) for parameter in search.space if parameter.name in point):
        return None
    if not domain.holds(point):
        return None
    if search.method == "grid" and identity(point) not in map(identity, domain.grid()):
        return None
    return point


def _legal(parameter: Parameter, value: Value) -> bool:
    if isinstance(parameter, Choice):
        return any(type(value) is type(option) and value == option for option in parameter.options)
    if isinstance(value, bool) or not isinstance(value, int if isinstance(parameter, Integer) else (int, float)):
        return False
    if not parameter.low <= value <= parameter.high:
        return False
    return parameter.step is None or level(parameter, round((value - parameter.low) / parameter.step)) == value
