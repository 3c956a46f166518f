"""A moving mean of a network's parameters over the updates of a training."""

from __future__ import annotations

import math

from nnlib.model.network import Network


class Average:
    """The mean of the parameters: those of update t count 1 - d, the mean before d = min(decay, (1 + t) / (10 + t)).

    So the first, random weights are soon forgotten (as TensorFlow's ExponentialMovingAverage with num_updates). The
    parameters are looked at when an epoch ends, and count as those of every update in it: rows that no batch touches
    are brought up to date then anyway, so that a mean costs one pass over the parameters an epoch.
    """

    def __init__(self, network: Network, decay: float) -> None:
        """Begin with `network`, which becomes the mean."""
        self.network, self._decay = network, decay

    def add(self, network: Network, first: int, last: int) -> None:
        """Take in the parameters after the updates from `first` up to `last`."""
        kept = math.prod(min(self._decay, (1 + t) / (10 + t)) for t in range(first, last + 1))
        for (_, mean), (_, array) in zip(self.network.arrays(), network.arrays(), strict=True):
            mean += mean.dtype.type(1 - kept) * (array - mean)
