"""What an optimizer learns of a region's trials, from its journal."""

from __future__ import annotations

from collections.abc import Iterable

from nnlib.contract import ENDED_WELL, Metric
from regiondag.run.history import FAILED, OPEN, History
from regiondag.tuning.sharing import Observation


def observe_trial(history: History, trial: int, metric: Metric) -> Observation | None:
    """Return what the optimizer learns of a proposed trial; None while it says nothing of the hyperparameters.

    A trial that was removed (past its deadline, out of memory for too long) failed; a fault of the machine or of the
    data says nothing, and the trial may run again.
    """
    settled = history.settled.get(trial)
    if settled is None or settled.status in OPEN - FAILED:
        return None
    sign = 1.0 if metric.minimize else -1.0
    told = settled.status in ENDED_WELL  # of a pruned trial what it had reached
    loss = sign * settled.value if told and settled.value is not None else None
    return Observation(history.proposals[trial].point, loss, settled.seconds or None)


def observe_trials(history: History, metric: Metric, trials: Iterable[int]) -> dict[int, Observation]:
    """Return what is known of some trials, by trial."""
    found = ((trial, observe_trial(history, trial, metric)) for trial in trials)
    return {trial: observed for trial, observed in found if observed is not None}
