"""The settings of a training: their legal ranges, and the learning rate of every step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields

from nnlib.contract import COMPAT, OPTIMIZERS, PRECISIONS, SCHEDULES, TrainSettings
from nnlib.errors import NnlibError
from nnlib.spec.json_section import nearest

WHOLE = {"epochs": 1, "batch": 1, "stop_after": 0, "seed": 0}  # setting -> the smallest legal value
CHOICES = {"optimizer": OPTIMIZERS, "schedule": SCHEDULES, "compat": COMPAT, "precision": PRECISIONS}
FRACTIONS = ("momentum", "beta2")  # in [0, 1)
MOST_SEED = 2**32 - 1


def check_settings(settings: TrainSettings, where: str = "trial.json: train.") -> None:
    """Raise NnlibError that lists every setting outside its range, each with `where` before its name."""
    problems = [
        f"{where}{field.name}: {getattr(settings, field.name)!r} is not legal, legal: {legal}"
        for field in fields(settings)
        if (legal := _legal_if_wrong(field.name, getattr(settings, field.name)))
    ]
    if problems:
        raise NnlibError("\n".join(problems))


def _legal_if_wrong(name: str, value: object) -> str:
    """Return what is legal for a setting, an empty string when `value` is."""
    if name in CHOICES:
        if isinstance(value, str) and value.lower() in CHOICES[name]:
            return ""
        hint = nearest(value, CHOICES[name]) if isinstance(value, str) else ""
        return _listed(CHOICES[name]) + hint
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name in WHOLE:
        good = whole and isinstance(value, int) and value >= WHOLE[name] and (name != "seed" or value <= MOST_SEED)
        top = f" to {MOST_SEED}" if name == "seed" else ""
        return "" if good else f"a whole number from {WHOLE[name]}{top}"
    number = isinstance(value, float) or whole
    if name in FRACTIONS:
        good = number and isinstance(value, int | float) and 0 <= value < 1
        return "" if good else "a number in [0, 1)"
    good = number and isinstance(value, int | float) and math.isfinite(value) and value >= 0
    return "" if good else "a finite number from 0"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name or '""' for name in names)
