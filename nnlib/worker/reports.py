"""What a program says of its training: figures in lines that it prints, in its reports, and in its result.json.

Pure. A program is not trusted: names and counts are bounded, and what is no number is passed over or refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from nnlib.contract import Metric

MOST_FIGURES = 64
MOST_EPOCHS = 1_000_000
EPOCH, STDERR = "epoch", "stderr"
_NAME = r"[A-Za-z_][A-Za-z0-9_.@/-]{0,63}"
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_FIGURE = re.compile(rf"(?<![^\s,;|(\[])({_NAME})\s?[=:]\s?({_NUMBER})(?![^\s,;|)\]%])", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Report:
    """Figures that belong together: after an epoch, or at the end."""

    figures: Mapping[str, float]
    epoch: int | None = None  # from the program's own first one on
    stderr: float | None = None  # standard error of the metric


def parse_line(line: str, metric: Metric) -> Report | None:
    """Return what a printed line says of the metric, and beside it; None where it does not name the metric.

    >>> parse_line("epoch=3 loss=0.25 auc=0.91", Metric("auc"))
    Report(figures={'loss': 0.25, 'auc': 0.91}, epoch=3, stderr=None)
    """
    found = {name: float(number) for name, number in _FIGURE.findall(line)[:MOST_FIGURES]}
    return _report(found, metric) if metric.name in found else None


def parse_record(text: str, metric: Metric) -> Report:
    """Return what a JSON object of figures says; ValueError where it is none, or does not name the metric."""
    try:
        raw = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(raw, dict) or len(raw) > MOST_FIGURES:
        raise ValueError(f"legal: an object of {MOST_FIGURES} figures at most")
    found = {}
    for name, value in raw.items():
        if not re.fullmatch(_NAME, name) or type(value) not in (int, float):
            raise ValueError(f"seen {name!r:.80}: {value!r:.80}, legal: a name and a number")
        found[name] = _float(value)
    if metric.name not in found:
        seen = ", ".join(found) or "nothing"
        raise ValueError(f"seen {seen}, legal: {metric.name} among them")
    return _report(found, metric)


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number with hundreds of digits
        return math.inf


def _report(found: dict[str, float], metric: Metric) -> Report:
    epoch, stderr = found.pop(EPOCH, None) if metric.name != EPOCH else None, found.pop(STDERR, None)
    whole = epoch is not None and epoch.is_integer() and 0 <= epoch <= MOST_EPOCHS
    known = stderr is not None and math.isfinite(stderr) and stderr >= 0
    return Report(found, int(epoch) if whole and epoch is not None else None, stderr if known else None)
