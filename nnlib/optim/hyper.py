"""The hyperparameters of an update rule, and the learning rate of every epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from nnlib.contract import TrainSettings
from nnlib.model.batches import batches_of
from nnlib.model.network import Network
from nnlib.spec.types import NetworkSpec


def hyper_of(settings: TrainSettings) -> Hyper:
    """Return what stays the same in all steps."""
    numbers = map(float, (settings.momentum, settings.beta2, settings.l2, settings.l1))  # may be whole in a file
    return Hyper(settings.optimizer.lower(), *numbers)


def rates_of(network: Network, examples: int, settings: TrainSettings) -> Rate:
    """Return the learning rate of every step of a training on so many examples."""
    steps = len(batches_of(examples, settings.batch))
    return rate_of(replace(settings, schedule=settings.schedule.lower()), network.spec.decay, steps)


def rate_of(settings: TrainSettings, decay: float, batches: int) -> Callable[[int], float]:
    """Return the learning rate by step, from 1, for `batches` steps an epoch.

    As in DSSTNE, the rate is divided by 1 + decay (step - 1). Over the first `warmup` epochs it rises evenly; with the
    cosine schedule it then falls as (1 + cos) / 2 to zero at the end of the last epoch (Loshchilov and Hutter 2017).
    """
    warm, end = settings.warmup * batches, settings.epochs * batches
    cosine = settings.schedule == "cosine"

    def rate(step: int) -> float:
        value = settings.learning_rate / (1 + decay * (step - 1))
        if step < warm:
            return value * step / warm
        if cosine:
            done = min(1.0, (step - 1 - warm) / max(1.0, end - warm)) if step > warm else 0.0
            value *= (1 + math.cos(math.pi * max(0.0, done))) / 2
        return value

    return rate


def step_shift(spec: NetworkSpec) -> int:
    """Return what is added to the step that Adam sees: DSSTNE's starts with t = 2."""
    return 1 if spec.compat else 0


Rate = Callable[[int], float]  # step -> learning rate
ADAMS = ("adam", "adamw")


@dataclass(frozen=True, slots=True)
class Hyper:
    """What stays the same in all steps."""

    rule: str = "adam"
    momentum: float = 0.9
    beta2: float = 0.999
    l2: float = 0.0
    l1: float = 0.0
