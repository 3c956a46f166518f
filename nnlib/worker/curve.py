"""What a program has said of its metric, epoch by epoch, and which of it counts. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from nnlib.contract import Metric
from nnlib.worker.reports import MOST_EPOCHS, Report


@dataclass(slots=True)
class Curve:
    """The reports of one training."""

    metric: Metric
    values: list[float] = field(default_factory=list)  # of the metric, an epoch each
    said: list[Report] = field(default_factory=list)  # what they are from
    last: Report | None = None
    offset: int | None = None  # what is added to the program's epochs, so that they begin with 1

    @property
    def counted(self) -> bool:
        """Whether reports are of epochs, and not of something else, such as the folds of a validation."""
        return self.offset is not None

    def take_up(self, report: Report) -> range:
        """Add a report; return the epochs that it is of: those before it that were not reported are as it is."""
        self.last = report
        value = report.figures[self.metric.name]
        if report.epoch is None and self.counted:
            return range(0)  # what it says once more, at the end
        if report.epoch is None:
            epoch = len(self.values) + 1
        else:
            if self.offset is None:
                self.offset = 1 if report.epoch == 0 else 0
            epoch = report.epoch + self.offset
        if not 1 <= epoch <= MOST_EPOCHS or not math.isfinite(value):
            return range(0)
        del self.values[epoch - 1 :]
        del self.said[epoch - 1 :]
        new = range(len(self.values) + 1, epoch + 1)
        self.values += [value] * len(new)
        self.said += [report] * len(new)
        return new

    def restore(self, values: Sequence[float], offset: int | None) -> None:
        """Go on from what an earlier start has said."""
        self.values, self.offset = list(values), offset
        for value in values:
            same = bool(self.said) and self.said[-1].figures[self.metric.name] == value
            self.said.append(self.said[-1] if same else Report({self.metric.name: value}))
        if self.said:  # else it has nothing more to say where it had ended when it was stopped
            self.last = self.said[-1]

    def best(self) -> tuple[Report | None, int]:
        """Return the best report, of equal ones the first, and its epoch; of none at all, or of no number, the last."""
        name, sign = self.metric.name, 1 if self.metric.minimize else -1
        if not self.values:
            return self.last, 0
        at = min(range(len(self.values)), key=lambda epoch: sign * self.values[epoch])
        best = self.said[at]
        while at + 1 < len(self.said) and self.said[at + 1] is best:
            at += 1
        last = math.nan if self.last is None else self.last.figures[name]
        return (self.last if math.isfinite(last) and sign * last < sign * self.values[at] else best), at + 1

    def is_behind(self, rungs: Sequence[tuple[int, float]]) -> bool:
        """Whether others were better by the epoch that it has come to."""
        minimize = self.metric.minimize
        for epoch, rung in rungs:
            if epoch <= len(self.values):
                best = (min if minimize else max)(self.values[:epoch])
                if best > rung if minimize else best < rung:
                    return True
        return False
