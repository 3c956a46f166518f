"""What a program says of its training: figures in lines that it prints, in its reports, and in its result.json.

Pure. A program is not trusted: names and counts are bounded, and what is no number is passed over or refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nnlib.contract import MOST_CASES, Metric

MOST_FIGURES = 64
MOST_EPOCHS = 10_000  # of a curve; what counts further counts steps
LONGEST_NUMBER = 64  # characters
EPOCH, STDERR = "epoch", "stderr"
FOLDS, VALUES = "folds", "values"  # lists of what the metric is the mean of
_NAME = r"[A-Za-z_][A-Za-z0-9_.@/-]{0,63}"
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf(?:inity)?)"
_FIGURE = re.compile(
    rf"(?<![^\s,;|(\[])({_NAME})\s?[=:]\s?({_NUMBER})(?![^\s,;|)\]%])(?!,\d)", re.IGNORECASE | re.ASCII
)
_WHOLE = re.compile(_NUMBER, re.IGNORECASE | re.ASCII)
_EPOCH = re.compile(r"\bepoch\s*[=:#]?\s*(\d{1,9})(?!\.?\d)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Report:
    """Figures that belong together: after an epoch, or at the end."""

    figures: Mapping[str, float]
    epoch: int | None = None  # from the program's own first one on
    stderr: float | None = None  # standard error of the metric
    cases: tuple[float, ...] = ()  # what it is the mean of, such as a value for each customer
    folds: bool = False  # these are the folds of a cross-validation


def parse_line(line: str, metric: Metric) -> Report | None:
    """Return what a printed line says of the metric, and beside it; None where it does not name the metric.

    >>> parse_line("epoch=3 loss=0.25 auc=0.91", Metric("auc")) == Report({"loss": 0.25, "auc": 0.91}, 3)
    True
    """
    found = {name: float(number) for name, number in _FIGURE.findall(line)[-MOST_FIGURES:]}
    if metric.name not in found:
        return None
    numbers = _EPOCH.findall(line)
    if metric.name.lower() != EPOCH:
        found = {name: number for name, number in found.items() if name.lower() != EPOCH}
        found |= {EPOCH: float(numbers[-1])} if numbers else {}
    return _report(found, metric)


def parse_record(text: str, metric: Metric) -> Report | None:
    """Return what a JSON object of figures says; None without the metric, ValueError where it is none.

    The metric is the mean of `folds`, or of `values`, where it does not say it itself.
    """
    try:
        raw = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(raw, dict) or len(raw) > MOST_FIGURES:
        raise ValueError(f"legal: an object of {MOST_FIGURES} figures at most")
    cases, folds = _take_cases(raw)
    found = {metric.name: math.fsum(cases) / len(cases)} if cases else {}
    for name, value in raw.items():
        if not re.fullmatch(_NAME, name) or type(value) not in (int, float):
            raise ValueError(f"seen {name!r:.80}: {value!r:.80}, legal: a name and a number")
        found[name] = _float(value)
    if metric.name not in found:
        return None
    report = _report(found, metric)
    sure = stderr_of(cases, folds=folds) if report.stderr is None else report.stderr
    return replace(report, stderr=sure, cases=cases, folds=folds)


def _take_cases(raw: dict[str, object]) -> tuple[tuple[float, ...], bool]:
    """Take the list of values out of a report, and whether they are folds; ValueError where it is no such list."""
    lists = [name for name in (FOLDS, VALUES) if isinstance(raw.get(name), list)]
    if not lists:
        return (), False
    if len(lists) > 1:
        raise ValueError(f"seen {FOLDS} and {VALUES}, legal: one of them")
    values = raw.pop(lists[0])
    assert isinstance(values, list), "it was asked for"
    if not 1 <= len(values) <= MOST_CASES or not all(type(one) in (int, float) for one in values):
        raise ValueError(f"{lists[0]}: legal: a list of 1 to {MOST_CASES:,} numbers")
    cases = tuple(map(_float, values))
    if not all(map(math.isfinite, cases)):
        raise ValueError(f"{lists[0]}: legal: finite numbers")
    return cases, lists[0] == FOLDS


def stderr_of(cases: Sequence[float], *, folds: bool) -> float | None:
    """Return the standard error of a mean of cases; None of fewer than two.

    s / sqrt(n) of independent ones. Folds share most of what they train on, so that s / sqrt(K) is too small: it is
    s sqrt(1/K + 1/(K-1)) after Nadeau and Bengio (2003, Inference for the generalization error), whose n_test / n_train
    is 1/(K-1) for K folds.

    >>> stderr_of([1, 2, 3], folds=False), stderr_of([1, 2, 3], folds=True), stderr_of([1], folds=True)
    (0.5773502691896258, 0.9128709291752769, None)
    """
    n = len(cases)
    if n < 2:
        return None
    mean = math.fsum(cases) / n
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in cases) / (n - 1))
    return spread * math.sqrt(1 / n + (1 / (n - 1) if folds else 0))


def is_name(text: str) -> bool:
    """Whether a text can be a figure's name."""
    return re.fullmatch(_NAME, text) is not None


def number_of(text: str) -> float | None:
    """Return the number that a text is; None where it is none.

    >>> number_of(" 1e-3"), number_of("nan"), number_of("1_000"), number_of("")
    (0.001, nan, None, None)
    """
    found = text.strip()
    return float(found) if len(found) <= LONGEST_NUMBER and _WHOLE.fullmatch(found) else None


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number with hundreds of digits
        return math.inf


def _report(found: dict[str, float], metric: Metric) -> Report:
    epoch, stderr = found.pop(EPOCH, None) if metric.name != EPOCH else None, found.pop(STDERR, None)
    whole = epoch is not None and epoch.is_integer() and epoch >= 0
    known = stderr is not None and math.isfinite(stderr) and stderr >= 0
    return Report(found, int(epoch) if whole and epoch is not None else None, stderr if known else None)
