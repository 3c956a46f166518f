"""The hyperparameters of an update rule, and the learning rate of every epoch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nnlib.contract import TrainSettings
from nnlib.model.batches import updates_of
from nnlib.model.network import Network
from nnlib.spec.types import NetworkSpec


def hyper_of(settings: TrainSettings) -> Hyper:
    """Return what stays the same in all steps."""
    numbers = map(float, (settings.momentum, settings.beta2, settings.l2, settings.l1))  # may be whole in a file
    return Hyper(settings.optimizer.lower(), *numbers)


def rates_of(network: Network, examples: int, settings: TrainSettings) -> Rate:
    """Return the learning rate of every update of a training on so many examples."""
    return rate_of(settings, network.spec.decay, updates_of(examples, settings))


def rate_of(settings: TrainSettings, decay: float, batches: int) -> Rate:
    """Return the learning rate by update, from 1, for so many an epoch; what `plateau` adds is not in it.

    Its base is `learning_rate`, times examples / `base_batch` (Goyal et al. 2017) or the root of that if `scale_rate`
    says so.
    As in DSSTNE, it is divided by 1 + decay (step - 1). Over the first `warmup` epochs it rises evenly, but for
    `onecycle`. Then it is multiplied by what the schedule says, see `fall_of`.
    """
    size = settings.batch * settings.accumulate
    power = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}[settings.scale_rate.lower()]
    base: float = settings.learning_rate * (size / settings.base_batch) ** power
    warm = settings.warmup * batches
    fall = fall_of(settings, batches)
    warms = settings.schedule.lower() != "onecycle"

    def rate(step: int) -> float:
        value = base / (1 + decay * (step - 1))
        if step < warm and warms:
            return value * step / warm
        return value * fall(step)

    return rate


def slowed(rate: Rate, factor: float) -> Rate:
    """Return learning rates that are `factor` times others."""
    return lambda step: factor * rate(step)


def fall_of(settings: TrainSettings, batches: int) -> Rate:
    """Return what a schedule multiplies the learning rate of each step by.

    cosine    (1 + cos(pi x)) / 2, x from 0 after the warm-up to 1 after the last step (Loshchilov and Hutter 2017)
    onecycle  from 1 / 25 to 1 over the warm-up, of 30 % of all steps unless it is set, then to 1 / 250000 in the last
              step, both as half a cosine (Smith and Topin 2018); PyTorch's OneCycleLR, with the momentum as it is
    step      decay_rate^n after n times `decay_epochs` epochs, as PyTorch's StepLR
    """
    warm, end = settings.warmup * batches, settings.epochs * batches

    def cosine(step: int) -> float:
        return (1 + math.cos(math.pi * max(0.0, min(1.0, (step - 1 - warm) / max(1.0, end - warm))))) / 2

    def onecycle(step: int) -> float:
        top = warm or PEAK * end
        if step <= top and top > 1:
            return 1 + (FIRST - 1) * (1 + math.cos(math.pi * (step - 1) / (top - 1))) / 2
        done = min(1.0, (step - top) / max(1.0, end - top))
        return LAST + (1 - LAST) * (1 + math.cos(math.pi * done)) / 2

    def by_step(step: int) -> float:
        return float(settings.decay_rate ** ((step - 1) // batches // settings.decay_epochs))

    falls: dict[str, Rate] = {"cosine": cosine, "onecycle": onecycle, "step": by_step}
    return falls.get(settings.schedule.lower(), lambda _: 1.0)


def step_shift(spec: NetworkSpec) -> int:
    """Return what is added to the step that Adam sees: DSSTNE's starts with t = 2."""
    return 1 if spec.compat else 0


def pacings_of(network: Network, examples: int, settings: TrainSettings) -> tuple[Pacing, ...]:
    """Return how each layer of a network is trained on so many examples, by its number."""
    tuning, updates = network.spec.tuning, updates_of(examples, settings)
    factors, since = dict(tuning.rates), max(0, tuning.unfreeze_at - 1) * updates
    return tuple(
        Pacing(factors.get(layer.name, 1.0), since if layer.name in tuning.freeze else 0)
        for layer in network.spec.layers
    )


@dataclass(frozen=True, slots=True)
class Pacing:
    """What a layer's parameters have of their own: a factor on the learning rate, and updates that came before theirs.

    Adam's t is counted from there, as the moments are zero then.
    """

    factor: float = 1.0
    since: int = 0


USUAL = Pacing()

Rate = Callable[[int], float]  # step -> learning rate
ADAMS = ("adam", "adamw")
PEAK = 0.3  # of all steps, after which one cycle is at its top
FIRST, LAST = 1 / 25, 1 / 25e4  # of the rate at its top: in the first step and in the last


@dataclass(frozen=True, slots=True)
class Hyper:
    """What stays the same in all steps."""

    rule: str = "adam"
    momentum: float = 0.9
    beta2: float = 0.999
    l2: float = 0.0
    l1: float = 0.0
