"""Fewer of a test's combinations of parameters, as many as have each value once, and fewer examples of a property.

    python -m pytest -p tests.fewer ...

For what is run again with other versions of libraries, or on a CUDA that is played: what these do otherwise shows by a
value, and hardly ever by two that come together, which the fast and the pool part have. Which come together depends on
the order of the tests, and so on its seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings

EXAMPLES = 15  # of a property, where its test does not say how many


def pytest_configure() -> None:
    """After conftest.py, which has loaded another one."""
    settings.register_profile("fewer", deadline=None, max_examples=EXAMPLES)
    settings.load_profile("fewer")


@pytest.hookimpl(trylast=True)  # of those that `-m` has chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = keep_each_value(items)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def keep_each_value(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """Return some of the tests: each value of each of a test's parameters is in one of them at least."""
    found = {item: _values(item) for item in items}
    kept, seen = set[pytest.Item](), set[tuple[str, str, int]]()
    for new in range(max(map(len, found.values()), default=0), 0, -1):  # first those with the most new values
        for item, values in found.items():
            if len(values - seen) >= new:
                kept.add(item)
                seen |= values
    return kept


def _values(item: pytest.Item) -> set[tuple[str, str, int]]:
    """Return the values of a test's parameters, each by what is the same object in all combinations."""
    found = item.callspec.params if hasattr(item, "callspec") else {"": None}
    return {(item.nodeid.partition("[")[0], name, id(value)) for name, value in found.items()}
