"""Update rules, applied in place to pieces of a weight matrix that fit the cache; the NumPy twins of `loops`.

With G = gradient of the mean loss + l2 W + l1 sign(W) (biases: without both), a = learning rate of the step,
mu = momentum, t = 1, 2, ... the step:

sgd       W -= a G
momentum  v = mu v - a G;  W += v
nesterov  v' = mu v - a G;  W += v' + mu (v' - v);  v = v'
adagrad   v += G^2;  W -= a G / sqrt(max(1e-9, v))
rmsprop   v = mu v + (1 - mu) G^2;  W -= a G / sqrt(max(1e-9, v))
adadelta  s = mu s + (1 - mu) G^2;  d = G sqrt(max(1e-9, v) / max(1e-9, s));  v = mu v + (1 - mu) d^2;  W -= d
adam      m = mu m + (1 - mu) G;  s = b s + (1 - b) G^2;  W -= a (m / (1 - mu^t)) / (sqrt(s / (1 - b^t)) + 1e-8)
adamw     W -= a l2 W, then adam with a gradient that has no l2 in it (Loshchilov and Hutter 2019, algorithm 2)

As in DSSTNE, with mu = 0.9 and b (beta2) = 0.999 unless set otherwise; Adam as in Kingma and Ba (2015), algorithm 1,
where DSSTNE starts at t = 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nnlib.util.arrays import Floats

FLOOR = 1e-9
EPSILON = 1e-8


@dataclass(frozen=True, slots=True)
class Pace:
    """The numbers of one step."""

    step: int  # t
    rate: float  # a
    momentum: float  # mu
    beta2: float  # b

    @property
    def corrected_rate(self) -> float:
        """Adam's a / (1 - mu^t)."""
        return self.rate / (1 - self.momentum**self.step)

    @property
    def correction(self) -> float:
        """Adam's 1 / (1 - b^t)."""
        return 1 / (1 - self.beta2**self.step)


Update = Callable[[Floats, Floats, Sequence[Floats], Pace, Floats], None]


def sgd(w: Floats, g: Floats, _state: Sequence[Floats], pace: Pace, tmp: Floats) -> None:
    """Update w with gradient g; tmp is scratch memory of the same shape."""
    np.multiply(g, pace.rate, out=tmp)
    w -= tmp


def momentum(w: Floats, g: Floats, state: Sequence[Floats], pace: Pace, tmp: Floats) -> None:
    """Update w and state (v,)."""
    (v,) = state
    v *= pace.momentum
    np.multiply(g, pace.rate, out=tmp)
    v -= tmp
    w += v


def nesterov(w: Floats, g: Floats, state: Sequence[Floats], pace: Pace, tmp: Floats) -> None:
    """Update w and state (v,): W += (1 + mu) v' - mu v."""
    (v,) = state
    np.multiply(v, pace.momentum, out=tmp)
    w -= tmp
    v *= pace.momentum
    np.multiply(g, pace.rate, out=tmp)
    v -= tmp
    np.multiply(v, 1 + pace.momentum, out=tmp)
    w += tmp


def adagrad(w: Floats, g: Floats, state: Sequence[Floats], pace: Pace, tmp: Floats) -> None:
    """Update w and state (v,)."""
    (v,) = state
    np.multiply(g, g, out=tmp)
    v += tmp
    _scaled_by_root(w, g, v, pace.rate, tmp)


def rmsprop(w: Floats, g: Floats, state: Sequence[Floats], pace: Pace, tmp: Floats) -> None:
    """Update w and state (v,)."""
    (v,) = state
    np.multiply(g, g, out=tmp)
    tmp *= 1 - pace.momentum
    v *= pace.momentum
    v += tmp
    _scaled_by_root(w, g, v, pace.rate, tmp)


def adadelta(w: Floats, g: Floats, state: Sequence[Floats], pace: Pace, tmp: Floats) -> None:
    """Update w and state (s, v); it has no learning rate."""
    s, v = state
    np.multiply(g, g, out=tmp)
    tmp *= 1 - pace.momentum
    s *= pace.momentum
    s += tmp
    np.maximum(v, FLOOR, out=tmp)
    tmp /= np.maximum(s, FLOOR)
    np.sqrt(tmp, out=tmp)
    tmp *= g
    w -= tmp
    tmp *= tmp
    tmp *= 1 - pace.momentum
    v *= pace.momentum
    v += tmp


def adam(w: Floats, g: Floats, state: Sequence[Floats], pace: Pace, tmp: Floats) -> None:
    """Update w and state (m, s); the division by 1 - mu^t is drawn into the rate."""
    m, s = state
    np.multiply(g, 1 - pace.momentum, out=tmp)
    m *= pace.momentum
    m += tmp
    np.multiply(g, g, out=tmp)
    tmp *= 1 - pace.beta2
    s *= pace.beta2
    s += tmp
    np.multiply(s, pace.correction, out=tmp)
    np.sqrt(tmp, out=tmp)
    tmp += EPSILON
    np.divide(m, tmp, out=tmp)
    tmp *= pace.corrected_rate
    w -= tmp


@dataclass(frozen=True, slots=True)
class Rule:
    """An update rule: its function, its number of state arrays, and how zero gradients act on it."""

    update: Update
    states: int
    still: bool  # without l1 and l2, a zero gradient changes neither weights nor state
    decoupled: bool = False  # l2 acts on the weights, not through the gradient
    moves: bool = True  # without l1 and l2, a zero gradient moves the weights
    rests: bool = False  # ... by less and less, so that they come to rest


RULES = {
    "sgd": Rule(sgd, 0, still=True, moves=False),
    "momentum": Rule(momentum, 1, still=False, rests=True),
    "nesterov": Rule(nesterov, 1, still=False),
    "adagrad": Rule(adagrad, 1, still=True, moves=False),
    "rmsprop": Rule(rmsprop, 1, still=False, moves=False),
    "adadelta": Rule(adadelta, 2, still=False, moves=False),
    "adam": Rule(adam, 2, still=False, rests=True),
    "adamw": Rule(adam, 2, still=False, decoupled=True, rests=True),
}


def _scaled_by_root(w: Floats, g: Floats, v: Floats, rate: float, tmp: Floats) -> None:
    np.maximum(v, FLOOR, out=tmp)
    np.sqrt(tmp, out=tmp)
    np.divide(g, tmp, out=tmp)
    tmp *= rate
    w -= tmp
