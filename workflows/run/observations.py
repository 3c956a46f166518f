"""What an optimizer learns of a region's trials, from its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nnlib.contract import ENDED_WELL, Metric
from regiondag.run.history import SILENT, History
from regiondag.run.values import Values
from regiondag.study.space import Point
from regiondag.tuning.sharing import Observation, find_best_and_first


def observe_trial(history: History, trial: int, metric: Metric) -> Observation | None:
    """Return what the optimizer learns of a proposed trial; None while it says nothing of the hyperparameters.

    A trial that was removed (past its deadline, out of memory for too long) failed; a fault of the machine or of the
    data says nothing, and the trial may run again.
    """
    settled = history.settled.get(trial)
    if settled is None or settled.status in SILENT:
        return None
    sign = 1.0 if metric.minimize else -1.0
    told = settled.status in ENDED_WELL  # of a pruned trial what it had reached
    loss = sign * settled.value if told and settled.value is not None else None
    return Observation(history.proposals[trial].point, loss, settled.seconds or None)


def observe_trials(history: History, metric: Metric, trials: Iterable[int]) -> dict[int, Observation]:
    """Return what is known of some trials, by trial."""
    found = ((trial, observe_trial(history, trial, metric)) for trial in trials)
    return {trial: observed for trial, observed in found if observed is not None}


def observe_best_and_first(
    values: Values, metric: Metric, most: int, fits: Callable[[Point], bool]
) -> list[Observation]:
    """Return `most` trials of a region at the most, of those with a point that fits: its best and its first ones.

    Where no point fits, any trial, which says that the region has begun. How long trials took is left out.
    """
    told = sorted(values.places.keys() & values.told.keys())
    sign = 1.0 if metric.minimize else -1.0
    losses = [None if (value := values.told[trial]) is None else sign * value for trial in told]
    found = find_best_and_first(losses, most, lambda index: fits(values.point(told[index]))) or range(len(told))[:1]
    return [Observation(values.point(told[index]), losses[index]) for index in found]
