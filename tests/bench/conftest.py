"""Scripts of scripts/bench as modules."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Give a function that imports a module of scripts/bench."""
    monkeypatch.syspath_prepend(str(BENCH))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


@pytest.fixture
def work(bench) -> ModuleType:
    return bench("gpu_work")


@pytest.fixture
def train(bench) -> ModuleType:
    return bench("gpu_train")
