"""The epoch loop: shuffle, denoise, batches, validation, early stopping."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from nnlib import network as net
from nnlib.architecture import Layer, NetworkSpec
from nnlib.contract import TrainSettings
from nnlib.data import Csr
from nnlib.errors import DivergedError, NnlibError
from nnlib.network import Network
from nnlib.optimizers import RULES, Optimizer
from nnlib.threads import Each, one_by_one

WEIGHTS, SHUFFLE, DENOISE, DROPOUT = range(4)  # what random numbers are for; each use has a stream of its own
LOSS_BOUND = 10  # times the very first loss (1 at least): a training this much worse than none has diverged


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one epoch gave. `loss` is the mean over the examples, `value` the validation metric."""

    epoch: int
    loss: float
    value: float | None
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A trained network: the parameters of its best epoch, or of its last one without validation."""

    network: Network
    epochs: int
    best_epoch: int


def stream(seed: int, purpose: int, epoch: int = 0) -> np.random.Generator:
    """Return the random numbers of one purpose in one epoch; no other draw can shift them."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, purpose, epoch))))


def check_settings(settings: TrainSettings) -> None:
    """Raise NnlibError that lists every setting outside its range."""
    lowest = {"epochs": 1, "batch": 1, "stop_after": 0, "seed": 0, "learning_rate": 0, "l2": 0}
    problems = []
    for field in dataclasses.fields(settings):
        value, low = getattr(settings, field.name), lowest.get(field.name)
        if low is None:
            legal = ", ".join(RULES)
            good = isinstance(value, str) and value.lower() in RULES
        elif field.name in ("learning_rate", "l2"):
            legal = "a finite number from 0"
            good = isinstance(value, int | float) and math.isfinite(value) and value >= low
        else:
            legal = f"a whole number from {low}"
            good = isinstance(value, int) and not isinstance(value, bool) and value >= low
        if not good:
            problems.append(f"trial.json: train.{field.name}: {value!r} is not legal, legal: {legal}")
    if problems:
        raise NnlibError("\n".join(problems))


def resolve(spec: NetworkSpec, inputs: int, outputs: int, file: str) -> NetworkSpec:
    """Return `spec` with every "auto" replaced by the data's width; NnlibError when a number differs from it."""

    def sized(layer: Layer, width: int) -> Layer:
        if layer.units not in (None, width):
            raise NnlibError(
                f"{file}: layer {layer.name}: N is {layer.units}, data set {layer.data_set!r} has width {width}; "
                f'legal: {width} or "auto"'
            )
        return dataclasses.replace(layer, units=width)

    first, *between, last = spec.layers
    return dataclasses.replace(spec, layers=(sized(first, inputs), *between, sized(last, outputs)))


def fit(
    network: Network,
    inputs: Csr,
    targets: Csr,
    settings: TrainSettings,
    report: Callable[[Epoch], None],
    validate: Callable[[Network], float] | None = None,
    minimize: bool = False,
    each: Each = one_by_one,
) -> Fit:
    """Train `network` in place and return its best parameters; targets must hold no unit twice.

    Without `validate`, all epochs are run and the last parameters count. Raises DivergedError.
    """
    edges = network.edges
    optimizer = Optimizer(
        settings.optimizer, settings.learning_rate, settings.l2, [e.store for e in edges], [e.bias for e in edges]
    )
    best, best_value, best_epoch, first, epoch = network, math.inf, 0, math.inf, 0
    for epoch in range(1, settings.epochs + 1):
        start = time.perf_counter()
        with np.errstate(all="ignore"):  # infinities and NaN end as DivergedError
            loss, first_batch = _run_epoch(network, optimizer, inputs, targets, settings, epoch, each)
        first = first_batch if epoch == 1 else first
        if loss > LOSS_BOUND * max(first, 1.0):
            raise DivergedError(f"epoch {epoch}: loss {loss:.6g}, the first was {first:.6g}; lower learning_rate")
        value = validate(network) if validate else None
        report(Epoch(epoch, loss, value, time.perf_counter() - start))
        if value is None:
            best_epoch = epoch
            continue
        better = value if minimize else -value
        if better < best_value:
            best, best_value, best_epoch = network.copy(), better, epoch
        elif settings.stop_after and epoch - best_epoch >= settings.stop_after:
            break
    return Fit(best, epoch, best_epoch)


def _run_epoch(
    network: Network,
    optimizer: Optimizer,
    inputs: Csr,
    targets: Csr,
    settings: TrainSettings,
    epoch: int,
    each: Each,
) -> tuple[float, float]:
    """Return the mean loss over the examples, and that of the first batch."""
    x, t = _epoch_data(network.spec, inputs, targets, settings.seed, epoch, network.edges[0].store.dtype)
    random = stream(settings.seed, DROPOUT, epoch)
    total, first = 0.0, math.nan
    for low in range(0, inputs.examples, settings.batch):
        batch = net.batch_of(x[low : low + settings.batch], t[low : low + settings.batch])
        masks = [
            random.random((batch.examples, layer.units or 0), np.float32) >= layer.dropout if layer.dropout else None
            for layer in network.spec.layers[1:-1]
        ]
        optimizer.step += 1
        loss = net.backward(network, batch, optimizer, masks, each)
        if not math.isfinite(loss):
            raise DivergedError(
                f"epoch {epoch}, batch {low // settings.batch + 1}: loss is {loss}{_broken_layer(network)}; "
                "lower learning_rate"
            )
        total += loss
        first = loss / batch.examples if low == 0 else first
    broken = _broken_layer(network)
    if broken:
        raise DivergedError(f"epoch {epoch}: the last update failed{broken}; lower learning_rate")
    return total / inputs.examples, first


def _epoch_data(
    spec: NetworkSpec, inputs: Csr, targets: Csr, seed: int, epoch: int, dtype: Any
) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return inputs and targets in the order of the epoch, inputs with the epoch's noise."""
    order = np.arange(inputs.examples)
    if spec.shuffle:
        order = stream(seed, SHUFFLE, epoch).permutation(inputs.examples)
    inputs, targets = inputs.take(order), targets.take(order)
    value = 1.0
    if spec.denoising:  # each one stays with probability 1 - p and is scaled, so that sums keep their mean
        inputs = inputs.keep(stream(seed, DENOISE, epoch).random(inputs.nonzeros, np.float32) >= spec.denoising)
        value = 1 / (1 - spec.denoising)
    return net.matrix(inputs, value, dtype), net.matrix(targets, 1.0, dtype)


def _broken_layer(network: Network) -> str:
    """Name the first layer whose parameters are not finite."""
    for layer, edge in zip(network.spec.layers[1:], network.edges, strict=True):
        if not (np.isfinite(edge.store).all() and np.isfinite(edge.bias).all()):
            return f", weights into layer {layer.name} are not finite"
    return ""
