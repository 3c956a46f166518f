"""A tuner in a process of its own, asked and told by lines of JSON: `served MODULE OPTIONS`.

The problem stays with whoever asks, so that a tuner's environment needs nothing but the tuner.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from typing import Any

from scripts.bench.tuner.problem import Parameter
from scripts.bench.tuner.tuners.face import Task, Tuner

PACKAGE = "scripts.bench.tuner.tuners"


def main() -> None:
    """Answer until there are no more questions."""
    answers, sys.stdout = sys.stdout, sys.stderr  # a library's prints are no answers
    make = import_module(f"{PACKAGE}.{sys.argv[1]}").make
    served = Served(make, json.loads(sys.argv[2]))
    for line in sys.stdin:
        print(json.dumps(served.answer(json.loads(line))), file=answers, flush=True)


class Served:
    """One tuner after the other; each answer says what it took in CPU seconds."""

    def __init__(self, make: Callable[..., Tuner], options: dict[str, Any]) -> None:
        self._make, self._options = make, options
        self._tuner: Tuner

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Answer a question: {"task": ...} for a new tuner, {"ask": n}, or {"tell": [[number, value], ...]}."""
        begin = time.process_time()
        points = []
        if "task" in question:
            self._tuner = self._make(task_from_json(question["task"]), **self._options)
        elif "ask" in question:
            points = self._tuner.ask(question["ask"])
        else:
            self._tuner.tell(dict(question["tell"]))
        return {"points": points, "seconds": time.process_time() - begin}


def task_to_json(task: Task) -> dict[str, Any]:
    """Return what `task_from_json` reads back."""
    return asdict(task)


def task_from_json(raw: dict[str, Any]) -> Task:
    """Read what `task_to_json` wrote."""
    return Task(**{**raw, "space": tuple(map(_parameter, raw["space"])), "constraints": tuple(raw["constraints"])})


def _parameter(raw: dict[str, Any]) -> Parameter:
    when = tuple((name, tuple(values)) for name, values in raw["when"])
    return Parameter(**{**raw, "options": tuple(raw["options"]), "when": when})


if __name__ == "__main__":
    main()
