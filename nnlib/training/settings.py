"""The settings of a training: their legal ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from nnlib.contract import COMPAT, OPTIMIZERS, PARALLELS, PRECISIONS, SCALES, SCHEDULES, TrainSettings
from nnlib.errors import NnlibError
from nnlib.spec.checks import Check, real, whole
from nnlib.spec.json_section import nearest


def _one_of(names: tuple[str, ...]) -> Check[str]:
    def of(value: Any) -> str:
        if not isinstance(value, str) or value.lower() not in names:
            raise ValueError(nearest(value, names) if isinstance(value, str) else "")
        return value

    return Check(of, ", ".join(name or '""' for name in names))


OTHERS = real(0, legal="a finite number from 0")
FRACTION = real(0, 1, "a number in [0, 1)", closed=False)
CHECKS: Mapping[str, Check[Any]] = {
    "epochs": whole(1),
    "batch": whole(1),
    "base_batch": whole(1),
    "accumulate": whole(1),
    "stop_after": whole(0),
    "stop_after_examples": whole(0),
    "decay_epochs": whole(1),
    "decay_rate": real(0, 1, "a number from 0 to 1"),
    "scale_rate": _one_of(SCALES),
    "seed": whole(0, 2**32 - 1),
    "optimizer": _one_of(OPTIMIZERS),
    "schedule": _one_of(SCHEDULES),
    "compat": _one_of(COMPAT),
    "precision": _one_of(PRECISIONS),
    "parallel": _one_of(PARALLELS),
    "momentum": FRACTION,
    "beta2": FRACTION,
    "ema": FRACTION,
}


def check_settings(settings: TrainSettings, where: str = "trial.json: train.") -> None:
    """Raise NnlibError that lists every setting outside its range, each with `where` before its name."""
    problems = []
    for field in fields(settings):
        check, value = CHECKS.get(field.name, OTHERS), getattr(settings, field.name)
        try:
            check.of(value)
        except ValueError as error:
            problems.append(f"{where}{field.name}: {value!r} is not legal, legal: {check.legal}{error}")
    if problems:
        raise NnlibError("\n".join(problems))
