"""The peer PyTorch: a matrix product, what is owned set to minus infinity, topk. It has an environment of its own."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from scripts.bench.recommend.problem import ITEM_ITEM, K, read, serve

BLOCK = 256  # customers of a product: larger and smaller ones are slower


def main() -> None:
    """Serve the kind named on the command line."""
    torch.set_num_threads(1)
    kind, folder, block = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    histories, likeness, items, customers = read(folder)
    if kind == ITEM_ITEM:
        ways = [
            ranking(histories, sparse_scores(histories, likeness)),
            ranking(histories, dense_scores(histories, likeness)),
        ]
        step = min(ways, key=_seconds)
    else:
        step = ranking(histories, product(items, customers))
    serve(step, histories.shape[0], block)


def _seconds(step: Callable[[Any], Any]) -> float:
    step(np.arange(256))
    begin = time.process_time()
    step(np.arange(512))
    return time.process_time() - begin


def ranking(histories: Any, scores_of: Callable[[Any], torch.Tensor]) -> Callable[[Any], Any]:
    """Return what ranks the items of some customers, a block at a time."""

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step(rows: Any) -> Any:
        found = []
        for low in range(0, len(rows), BLOCK):
            some = rows[low : low + BLOCK]
            scores, had = scores_of(some), histories[some]
            owner = np.repeat(np.arange(len(some)), np.diff(had.indptr))
            scores[torch.from_numpy(owner), torch.from_numpy(had.indices.astype(np.int64))] = -math.inf
            found.append(torch.topk(scores, K)[1])
        return torch.cat(found).numpy()

    return cast(Callable[[Any], Any], step)


def product(items: Any, customers: Any) -> Callable[[Any], torch.Tensor]:
    """Return what multiplies factors."""
    left, right = torch.from_numpy(customers), torch.from_numpy(np.ascontiguousarray(items.T))
    return lambda rows: left[torch.from_numpy(rows)] @ right


def _sparse(matrix: Any) -> torch.Tensor:
    parts = (torch.from_numpy(part.astype(np.int64)) for part in (matrix.indptr, matrix.indices))
    return torch.sparse_csr_tensor(*parts, torch.from_numpy(matrix.data), size=matrix.shape)


def sparse_scores(histories: Any, likeness: Any) -> Callable[[Any], torch.Tensor]:
    """Return the product of two sparse matrices, made dense."""
    right = _sparse(likeness)
    return lambda rows: (_sparse(histories[rows]) @ right).to_dense()


def dense_scores(histories: Any, likeness: Any) -> Callable[[Any], torch.Tensor]:
    """Return the product of sparse histories and the dense likeness of items."""
    right = torch.from_numpy(likeness.toarray())
    return lambda rows: _sparse(histories[rows]) @ right


if __name__ == "__main__":
    main()
