"""The networks of PyTorch's sides, on a processor and on a GPU: parameters, batches, loss and optimizer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from scripts.bench.common.workload import Work, filled, images, purchases, weights

Tensors = tuple[torch.Tensor, ...]


class Autoencoder:
    """27278 - 3 x hidden - 27278: what training starts with, its batches, and the loss of one."""

    def __init__(self, work: Work, dense: bool = False, fixed: bool = False) -> None:
        """With `fixed` all batches have one shape: their rows are filled up."""
        self._dense, self._shape = dense, (work.batch, work.items)
        self._gate = math.log(work.zero_target / (1 - work.zero_target)) if work.zero_target else None
        found = purchases(work)
        table, *others = weights(work)
        first = torch.from_numpy(table)
        if dense:
            first = first.T.contiguous()
        elif fixed:
            first = torch.cat([first, torch.zeros(1, work.hidden)])
        self._padding = work.items if fixed and not dense else None
        self.start = _linear(first, others)
        most = max(len(indices) for _, indices in found)
        self.batches = [self._tensors(*filled(*batch, most, work.items) if fixed else batch) for batch in found]

    def _tensors(self, indptr: Any, indices: Any) -> Tensors:
        """Return a batch as items, where the items of each row start, and places in the flat target."""
        examples, items = self._shape
        rows = np.repeat(np.arange(examples), np.diff(indptr))
        places = np.where(indices < items, rows * items + indices, examples * items)
        starts = torch.from_numpy(indptr[:-1].astype(np.int32))
        return torch.from_numpy(indices.astype(np.int32)), starts, torch.from_numpy(places.astype(np.int64))

    def scores(self, parameters: list[Any], items: Any, starts: Any) -> torch.Tensor:
        """Return the sums of the last layer from the items of each row."""
        table, bias, *others = parameters
        h = F.embedding_bag(items, table, starts, mode="sum", padding_idx=self._padding) + bias
        return _above(F.relu(h), others)

    def loss(self, parameters: list[Any], items: Any, starts: Any, places: Any) -> torch.Tensor:
        """Return the cross entropy, summed over the units."""
        table, bias, *others = parameters
        size = self._shape[0] * self._shape[1]
        flat = torch.zeros(size + 1, device=places.device).scatter_(0, places, 1.0)  # the last one is for filling up
        target = flat[:size].view(self._shape)
        if self._dense:
            z = _above(F.relu(F.linear(target, table, bias)), others)
        else:
            z = self.scores(parameters, items, starts)
        gate = self._gate  # beyond it the marginal cross entropy is nothing, but for what was bought
        counts = None if gate is None else torch.logical_or(z.detach() > gate, target > 0).to(z.dtype)
        return F.binary_cross_entropy_with_logits(z, target, counts, reduction="sum") / self._shape[0]


class Classifier:
    """784 - 512 - 512 - 10."""

    def __init__(self, work: Work) -> None:
        first, *others = weights(work)
        self.start = _linear(torch.from_numpy(first).T.contiguous(), others)
        self.batches = [(torch.from_numpy(x), torch.from_numpy(classes)) for x, classes in images(work)]

    def loss(self, parameters: list[Any], x: Any, classes: Any) -> torch.Tensor:
        """Return the cross entropy."""
        weight, bias, *others = parameters
        return F.cross_entropy(_above(F.relu(F.linear(x, weight, bias)), others), classes)


def make_optimizer(work: Work, parameters: list[torch.nn.Parameter], **form: bool) -> torch.optim.Optimizer:
    """Return the fastest form of an optimizer, unless `form` says which."""
    if work.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=work.rate, **({} if "foreach" in form else {"fused": True}), **form)
    return torch.optim.RMSprop(parameters, lr=work.rate, alpha=0.9, **({"foreach": True} | form))


def _linear(first: torch.Tensor, others: list[Any]) -> list[torch.Tensor]:
    """Return weights (out, in) and biases, as nn.Linear has them; the first weights as they are."""
    found = [first]
    for matrix in others:
        found += [torch.zeros(matrix.shape[0]), torch.from_numpy(matrix).T.contiguous()]
    return [*found, torch.zeros(others[-1].shape[1])]


def _above(h: torch.Tensor, parameters: list[Any]) -> torch.Tensor:
    """Return the sums of the last layer."""
    *hidden, weight, bias = parameters
    for w, b in zip(hidden[::2], hidden[1::2], strict=True):
        h = F.relu(F.linear(h, w, b))
    return F.linear(h, weight, bias)
