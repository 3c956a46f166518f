"""Logistic regression: which class an example is of, told by its dense inputs, such as a picture by its pixels.

With x the inputs of an example as networks read them and y its targets, of which several share its weight equally,
weights W and intercepts b make least the sum over examples of -y log softmax(x W + b), plus l2 / 2 |W|^2: multinomial
logistic regression, as by scikit-learn's `LogisticRegression(C=1 / l2)` of three classes and more (of two with
`C=2 / l2`, as it keeps the difference of the two columns). The scores are the probabilities softmax(x W + b).

It is for data that have a dense data set, `input`, beside sparse targets, `output`. A study does not search it; it is
what networks on such data are held against.

The minimum is found by L-BFGS (Liu and Nocedal 1989), in MOST_STEPS steps at most, on the inputs less their means: of
the minimum that changes b alone, and few steps are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from nnlib.data.events import Events
from nnlib.data.rows import Csr, Dense
from nnlib.errors import DivergedError, NnlibError
from nnlib.families.family import Arrays, Size, Value
from nnlib.families.packing import WEIGHTS_OF_INPUTS, WIDTH, take, take_width
from nnlib.ops.activations import softmax
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import workers

DEFAULTS: Mapping[str, Value] = {"l2": 10.0}
MOST_STEPS = 500
# At the minimum are a gradient of the mean loss without a number above STEEP, of which single precision tells no less,
# and a loss that a step changes by no more than the part FLAT.
STEEP, FLAT = 1e-5, 1e-9
ABNORMAL = 2  # SciPy's status of a search that found no better point
KEPT = 10  # steps that L-BFGS knows the curvature by
BLOCK = 1 << 18  # numbers of a block of inputs, at most, but for a single example
FEW = 1 << 24  # inputs of all examples that are kept as floats, at most
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Logistic:
    """Fitted weights."""

    weights: Floats  # W (inputs, classes), float32
    intercepts: Floats  # b (classes,), float32

    def scores(self, asked: Events, rows: Longs) -> Floats:
        """Return the probability of each class, float32 (len(rows), classes)."""
        inputs = inputs_of(asked)
        if inputs.width != len(self.weights):
            raise NnlibError(f"logistic: examples of {inputs.width} inputs, legal: {len(self.weights)}, as it learned")
        x = inputs.take(rows).floats(as_input=True)
        # A product for each row, whose bits then do not depend on the others.
        scores = np.matmul(x[:, None], self.weights)[:, 0]
        scores += self.intercepts
        return softmax(scores)

    def arrays(self) -> Arrays:
        """Return the weights, the intercepts and the number of classes."""
        width = np.array([len(self.intercepts)], np.int64)
        return {WEIGHTS_OF_INPUTS: self.weights, "intercepts": self.intercepts, WIDTH: width}


def fit(history: Events, hyperparameters: Mapping[str, Value], seed: int) -> Logistic:  # noqa: ARG001
    """Return the model of the examples that have targets; nothing is drawn.

    NnlibError where no example has any, or the data have no dense inputs; DivergedError where inputs are too large.
    """
    inputs, some = inputs_of(history), np.flatnonzero(np.diff(history.bought.indptr))
    if not len(some):
        raise NnlibError("logistic: no example has a target, legal: one example with a class, at least")
    # BLAS would give other bits on other numbers of threads, and what overflows is seen below.
    with workers(1), np.errstate(over="ignore", invalid="ignore"):
        mean = mean_of(inputs, some)
        centred = keep_few(lambda rows: less(inputs, some[rows], mean), len(some), inputs.width)
        objective = Objective(centred, history.bought.take(some), float(hyperparameters["l2"]))
        begin = np.zeros((inputs.width + 1) * history.bought.width)
        steps = {"maxiter": MOST_STEPS, "maxcor": KEPT, "gtol": STEEP, "ftol": FLAT}
        found = minimize(objective.loss_and_gradient, begin, jac=True, method="L-BFGS-B", options=steps)
        if not np.isfinite(found.fun) or (found.nit == 0 and found.status == ABNORMAL):
            raise DivergedError("logistic: no step makes the loss less, as inputs are too large; scale them to about 1")
        weights, intercepts = objective.split(found.x)
        intercepts = intercepts - mean @ weights
    return Logistic(np.asarray(weights, np.float32), np.asarray(intercepts, np.float32))


def restore(arrays: Arrays, hyperparameters: Mapping[str, Value], regions: tuple[str, ...]) -> Logistic:  # noqa: ARG001
    """Return the model that `arrays` was taken from; KeyError or ValueError when they are wrong."""
    width = take_width(arrays)
    weights = take(arrays, WEIGHTS_OF_INPUTS, np.float32, None, width)
    if not len(weights):
        raise ValueError(f"{WEIGHTS_OF_INPUTS}: of no input, legal: one at least")
    return Logistic(weights, take(arrays, "intercepts", np.float32, width))


def bytes_needed(size: Size, hyperparameters: Mapping[str, Value]) -> int:  # noqa: ARG001
    """Return how much memory `fit` takes at most: what L-BFGS keeps of its steps, inputs as floats, and a block."""
    parameters, inputs = (size.inputs + 1) * size.items, size.customers * size.inputs
    kept = 8 * (2 * KEPT + 18) * parameters + (4 * inputs if inputs <= FEW else 0)
    block = 40 * max(BLOCK, size.inputs + size.items)
    return kept + block + 12 * size.entries + 32 * size.customers + (1 << 20)


def inputs_of(events: Events) -> Dense:
    """Return the dense inputs of examples; NnlibError where they have none."""
    if events.inputs is None:
        raise NnlibError(
            "logistic: these data have no dense inputs, legal: data with a dense data set `input` and a sparse one, "
            "`output`, such as `nnlib import pictures` writes"
        )
    return events.inputs


@dataclass(frozen=True, slots=True, eq=False)
class Objective:
    """What is to be made least: the loss of some examples and the penalty, over their number."""

    centred: Callable[[slice], Floats]  # gives the inputs of some examples less the mean of all
    targets: Csr  # of the same, each of which has one
    l2: float

    def split(self, parameters: Doubles) -> tuple[Doubles, Doubles]:
        """Return the weights (inputs, classes) and the intercepts (classes,) that stand in one row."""
        table = parameters.reshape(-1, self.targets.width)
        return table[:-1], table[-1]

    def loss_and_gradient(self, parameters: Doubles) -> tuple[float, Doubles]:
        """Return the value and the gradient by all parameters: products in single precision, sums in double."""
        weights, intercepts = self.split(parameters)
        gradient = np.zeros_like(parameters)
        slope, slope_of_intercepts = self.split(gradient)
        loss, small, count = 0.0, weights.astype(np.float32), self.targets.examples
        for rows in blocks_of(count, len(weights) + self.targets.width):
            x, wanted = self.centred(rows), shares_of(self.targets.take(np.arange(count)[rows]))
            z = x @ small + intercepts
            z -= z.max(axis=1, keepdims=True)
            loss -= float(np.vdot(wanted, z))
            np.exp(z, out=z)
            sums = z.sum(axis=1, keepdims=True)
            loss += float(np.log(sums).sum())
            z /= sums
            z -= wanted
            slope += x.T @ z.astype(np.float32)
            slope_of_intercepts += z.sum(axis=0)
        loss += self.l2 / 2 * float(np.square(weights).sum())
        slope += self.l2 * weights
        gradient /= count
        return loss / count, gradient


def mean_of(inputs: Dense, examples: Longs) -> Floats:
    """Return the mean (inputs,) of some examples."""
    total = np.zeros(inputs.width)
    for rows in blocks_of(len(examples), inputs.width):
        total += inputs.take(examples[rows]).floats(as_input=True).sum(axis=0, dtype=np.float64)
    return np.asarray(total / len(examples), np.float32)


def less(inputs: Dense, examples: Longs, mean: Floats) -> Floats:
    """Return the inputs of some examples less a mean."""
    x = inputs.take(examples).floats(as_input=True)  # what was taken is nobody else's
    x -= mean
    return x


def keep_few(centred: Callable[[slice], Floats], count: int, width: int) -> Callable[[slice], Floats]:
    """Return what gives the same inputs: few are kept as floats, of many some are made again each time."""
    if count * width > FEW:
        return centred
    kept = np.empty((count, width), np.float32)
    for rows in blocks_of(count, width):
        kept[rows] = centred(rows)
    return kept.__getitem__


def blocks_of(count: int, width: int) -> Iterator[slice]:
    """Yield so many of `count` examples at a time that they have no more than BLOCK numbers of this width together."""
    size = max(1, BLOCK // width)
    for low in range(0, count, size):
        yield slice(low, min(low + size, count))


def shares_of(targets: Csr) -> Doubles:
    """Return the share (examples, classes) that each target has in its example."""
    lengths, found = np.diff(targets.indptr), np.zeros((targets.examples, targets.width))
    found[np.repeat(np.arange(targets.examples), lengths), targets.indices] = np.repeat(1 / lengths, lengths)
    return found
