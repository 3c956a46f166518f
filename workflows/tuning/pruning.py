"""Which trials are worth going on with: what a metric must have reached after some epochs. Pure.

A trial gets its table when its job is prepared, from the curves known by then; the job compares the best value so far
with it after each epoch and ends itself, so that no process has to watch (see `nnlib.training.loop`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Curve = Sequence[float]  # a trial's metric after each epoch
Rung = tuple[int, float]  # (epoch, value that must have been reached)

KINDS = ("none", "median", "asha")
FIRST_EPOCH = 3  # of `median`: before it curves say little
FEWEST_CURVES = 5  # to compare with, of `median`
FIRST_RUNG = 3  # epoch, of `asha`: an earlier one costs more than it saves (scripts.bench.tuner.fidelity)
REDUCTION = 3  # of `asha`: one trial in so many goes on at each rung


def fewest_epochs(kind: str) -> int:
    """Return how many epochs a training needs for any of its trials to be ended early."""
    return {"median": FIRST_EPOCH + 1, "asha": FIRST_RUNG + 1}.get(kind, 1)


def make_rungs(kind: str, curves: Sequence[Curve], epochs: int, minimize: bool, first: int = FIRST_RUNG) -> list[Rung]:
    """Return the table for a trial of so many epochs.

    median: from epoch 3, as good as the median of at least 5 other trials at that epoch (Golovin et al. 2017, "Google
    Vizier"). asha: at epochs 3, 9, 27, ... as good as the best third of those that got there (Li et al. 2020, "A System
    for Massively Parallel Hyperparameter Tuning"), of at least 3. What counts is the best value up to the epoch.
    `first` is the first of these epochs.
    """
    if kind == "none":
        return []
    sign = 1.0 if minimize else -1.0
    best = [list(_best_so_far([sign * value for value in curve])) for curve in curves]
    table = _median(best, epochs) if kind == "median" else _asha(best, epochs, first)
    return [(epoch, sign * value) for epoch, value in table]


def _median(curves: Sequence[Curve], epochs: int) -> Iterator[Rung]:
    from statistics import median  # most scripts start faster without

    for epoch in range(FIRST_EPOCH, epochs):
        reached = [curve[epoch - 1] for curve in curves if len(curve) >= epoch]
        if len(reached) >= FEWEST_CURVES:
            yield epoch, median(reached)


def _asha(curves: Sequence[Curve], epochs: int, first: int) -> Iterator[Rung]:
    epoch = first
    while epoch < epochs:
        reached = sorted(curve[epoch - 1] for curve in curves if len(curve) >= epoch)
        if len(reached) >= REDUCTION:
            yield epoch, reached[len(reached) // REDUCTION - 1]
        epoch *= REDUCTION


def _best_so_far(values: Curve) -> Iterator[float]:
    best = float("inf")
    for value in values:
        best = min(best, value)
        yield best
