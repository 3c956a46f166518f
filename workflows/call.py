"""Calls a function of the user's as a trial: `python -m regiondag.call fit.py:fit`, in a job of regiondag's.

The function gets what it has parameters for: hyperparameters, and `region`, `trial`, `role`, `seed`, `epochs`,
`seconds`, `metric`, `checkpoint` and `artifact`. What it returns is the result. Standard library alone.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from regiondag.trial import load

BAD_INPUT = 4  # exit code: nobody's retry helps
RESULT = "result.json"


def main(words: list[str]) -> None:
    """Call the function that `FILE:NAME` names with the trial of this job, and write down what it returns."""
    path, _, name = words[0].rpartition(":")
    result, trial = Path(RESULT).resolve(), load()  # the function may go to another folder
    function = find_function(Path(path), name)
    returned = function(**arguments_of(function, trial))
    try:
        figures = figures_of(returned, trial["metric"]["name"])
    except (TypeError, ValueError):
        legal = "a number, or a dict of them such as {'auc': 0.91}"
        print(f"{name} returned {returned!r:.200}, legal: {legal}", file=sys.stderr)
        raise SystemExit(BAD_INPUT) from None
    if figures:  # else what it has reported counts
        part = result.with_suffix(".part")
        part.write_text(json.dumps(figures), encoding="utf-8")
        part.replace(result)


def find_function(path: Path, name: str) -> Callable[..., object]:
    """Return a function of a file, which is imported under its own name, not as `__main__`.

    Files beside it can be imported as well, here and in processes that the function starts.
    """
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: no file of Python's")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    function: Callable[..., object] = getattr(module, name)
    return function


def arguments_of(function: Callable[..., object], trial: Mapping[str, Any]) -> dict[str, object]:
    """Return what a function is called with: of a trial what it has parameters for, by their names.

    With `**others` it gets all hyperparameters. Folders are paths, `metric` is its name.
    """
    told = {name: trial[name] for name in ("region", "trial", "role", "seed", "epochs", "seconds")}
    folders = {name: Path(trial[name]) for name in ("checkpoint", "artifact")}
    chosen: Mapping[str, object] = trial["hyperparameters"]
    parameters = inspect.signature(function).parameters.values()
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        named |= chosen.keys()
    known = {**chosen, **told, "metric": trial["metric"]["name"], **folders}
    return {name: value for name, value in known.items() if name in named}


def figures_of(returned: object, metric: str) -> dict[str, float]:
    """Return a result as figures by name; none of None. TypeError or ValueError for what is no number.

    >>> figures_of(0.5, "auc"), figures_of({"auc": 0.5, "stderr": 0.1}, "auc"), figures_of(None, "auc")
    ({'auc': 0.5}, {'auc': 0.5, 'stderr': 0.1}, {})
    """
    if returned is None:
        return {}
    found: Mapping[Any, Any] = returned if isinstance(returned, Mapping) else {metric: returned}
    if any(isinstance(value, str | bytes) for value in found.values()):
        raise TypeError  # float() would read them
    return {str(name): float(value) for name, value in found.items()}


if __name__ == "__main__":
    main(sys.argv[1:])
