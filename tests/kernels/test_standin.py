"""The stand-in for CuPy has nothing that CuPy lacks, and takes what CuPy takes; no GPU is needed to ask CuPy."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kernels import standin

cupy = pytest.importorskip("cupy", reason="no CuPy: .venv/bin/pip install '.[cupy]'")

# Of the stand-in itself: how it is lazy, and what tests look at.
OWN = {"ask", "step", "waiting", "recorded", "current", "by_pointer", "works", "mark", "finish"}
OWN |= {"memory", "taken", "launched", "runtime", "check"}
CLASSES = {"Stream": cupy.cuda.Stream, "Event": cupy.cuda.Event, "Graph": cupy.cuda.graph.Graph}


def parameters(function: Any) -> list[str] | None:
    """Return what a function of CuPy takes, by its signature or the first line of its text; None: nobody says."""
    try:
        found = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        line = re.match(r"[\w.]+\((.*?)\)", function.__doc__ or "")
        if not line:
            return None
        found = [part.partition("=")[0].split()[-1] for part in line[1].split(",") if part.strip()]
    return [name for name in found if name != "self"]


def members(given: Any, real: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield what the stand-in has under a name of CuPy's, and CuPy's own, None where it has none."""
    for name in {**vars(type(given)), **vars(given)}:
        if name.startswith("_") or (name in OWN and not isinstance(given, SimpleNamespace)):
            continue
        value, other = getattr(given, name), getattr(real, name, None)
        yield f"{path}.{name}", value, other
        if isinstance(value, SimpleNamespace):
            yield from members(value, other, f"{path}.{name}")


def methods(name: str) -> list[str]:
    """Return the methods and properties of a class of the stand-in."""
    return [one for one in vars(getattr(standin, name)) if not one.startswith("_") and one not in OWN]


def test_cupy_has_everything_under_the_same_name():
    found = list(members(standin.Cupy(), cupy, "cupy"))
    for name, real in CLASSES.items():
        found += [(f"{name}.{one}", one, getattr(real, one, None)) for one in methods(name)]
    assert len(found) > 25
    assert [path for path, _, real in found if real is None] == []


def test_cupy_takes_as_much():
    """Where the stand-in takes any number of arguments, the test of all kernels through CuPy itself says more."""
    checked = 0
    for path, given, real in members(standin.Cupy(), cupy, "cupy"):
        wanted = parameters(real) if callable(given) and callable(real) and not isinstance(real, type) else None
        if wanted is None or isinstance(given, type):
            continue
        own = inspect.signature(given).parameters.values()
        if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in own):
            continue
        least = sum(parameter.default is inspect.Parameter.empty for parameter in own)
        assert least <= len(wanted), path
        checked += 1
    assert checked >= 8


@pytest.mark.parametrize("name", CLASSES)
def test_methods_take_arguments_of_the_same_names(name):
    for method in [*methods(name), *(["__init__"] if name != "Graph" else [])]:  # nobody makes a graph by its class
        function = getattr(getattr(standin, name), method)
        if callable(function):
            own, wanted = parameters(function), parameters(getattr(CLASSES[name], method))
            assert own is not None
            assert wanted is not None
            assert own == [one for one in wanted if one in own], (name, method)
