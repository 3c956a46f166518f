"""The point with which the search of a region that has a champion begins: the champion's own. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from regiondag.study.model import Search
from regiondag.study.space import Value, without_inactive
from regiondag.tuning.domain import domain_of, identity_of


def fit_champion_point(search: Search, hyperparameters: Mapping[str, Value]) -> dict[str, Value] | None:
    """Return a champion's hyperparameters as a point of `search`; None when the space does not hold it (any more)."""
    try:
        point = without_inactive(search.space, hyperparameters)
    except KeyError:  # the space has a parameter that it had not when the champion was found
        return None
    domain = domain_of(search)
    if not domain.has(point):
        return None
    if search.method == "grid" and identity_of(point) not in map(identity_of, domain.grid()):
        return None
    return point
