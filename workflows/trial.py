"""For a program that regiondag trains with: what its trial is, and how it says what that gave.

    from regiondag.trial import load, report

    trial = load()
    for epoch in range(1, trial["epochs"] + 1):
        ...
        report(epoch=epoch, auc=0.91)

Standard library alone; jobs find it by this name, also where regiondag is not installed. Without a job of regiondag's,
as when the program is tried by hand, `load` reads trial.json where that is in the working folder, and `report` prints.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

TRIAL, REPORTS = "REGIONDAG_TRIAL", "REGIONDAG_REPORTS"
LISTS = ("folds", "values")
BY_HAND: Mapping[str, Any] = {"region": "", "trial": 0, "role": "tune", "seed": 1, "epochs": 1, "seconds": None}


def load(**otherwise: Any) -> dict[str, Any]:
    """Return the trial: region, hyperparameters, seed, epochs, metric, and the folders `checkpoint` and `artifact`.

    `otherwise` counts where no job of regiondag's runs the program: `region`, `trial`, `role`, `seed`, `epochs` and
    `seconds`, as far as they are not as in BY_HAND, and hyperparameters. FileNotFoundError without either.
    """
    path = Path(os.environ.get(TRIAL, "trial.json"))
    if TRIAL not in os.environ and otherwise and not path.exists():
        folders = [Path(name).resolve() for name in ("checkpoint", "artifact")]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        known = {folder.name: str(folder) for folder in folders}
        facts = {name: otherwise.pop(name, usual) for name, usual in BY_HAND.items()}
        return {**facts, "hyperparameters": otherwise, **known}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def report(epoch: int | None = None, **figures: float | Iterable[float]) -> None:
    """Say what the training has come to: the study's metric, and other figures beside it.

    Epochs are counted from 0 or from 1. A `stderr` beside the metric is its standard error, which also follows
    from `folds`, a list of its values in the folds of a cross-validation, or from `values`, those of independent cases
    such as customers. TypeError for what is no number.
    """
    known = {name: _number_or_list(name, value) for name, value in figures.items()}
    whole: Mapping[str, Any] = known if epoch is None else {"epoch": int(epoch), **known}
    path = os.environ.get(REPORTS)
    if path is None:
        lists = {name: f"{len(value)} values" for name, value in whole.items() if isinstance(value, list)}
        print(*(f"{name}={lists.get(name) or f'{value:g}'}" for name, value in whole.items()), flush=True)
        return
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(whole) + "\n")


def _number_or_list(name: str, value: Any) -> float | list[float]:
    return list(map(float, value)) if name in LISTS and hasattr(value, "__iter__") else float(value)


class Stopping:
    """Whether the job has to leave its machine, for programs that save themselves then: SIGTERM ends others at once.

    stopping = Stopping()
    while not stopping:
        ...
    """

    def __init__(self) -> None:
        """Take note of SIGTERM from now on."""
        self._told = False
        signal.signal(signal.SIGTERM, self._note)

    def __bool__(self) -> bool:
        """Return whether it came."""
        return self._told

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._told = True
