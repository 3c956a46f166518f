"""What all sides of the benchmark recommend from, and how a side is asked: a line of JSON for each turn."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

ITEM_ITEM, FACTORS, SOLVED = "item-item", "factors", "factors, solved"
K = 10
LIKENESS, HISTORIES, ITEM_FACTORS, CUSTOMER_FACTORS = "likeness.npz", "histories.npz", "items.npy", "customers.npy"


def draw_histories(customers: int, items: int, mean: int, seed: int = 1) -> sparse.csr_matrix:
    """Return who has what: popular items far more often than others, customers of very different zeal."""
    random = np.random.default_rng(seed)
    lengths = np.minimum(items // 4, 1 + random.geometric(1 / mean, customers))
    rows = np.repeat(np.arange(customers), lengths)
    columns = (random.random(len(rows)) ** 3 * items).astype(np.int64)
    # Tastes: two thirds of what a customer takes is of his tenth of the catalogue, or neighbours would mean nothing.
    own = random.random(len(rows)) < 2 / 3
    columns[own] = (columns[own] // 10 * 10 + rows[own] % 10) % items
    found = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (customers, items))
    found.data[:] = 1
    found.sort_indices()
    return found


def read(folder: Path) -> tuple[Any, Any, Any, Any]:
    """Return histories, likeness of items, factors of items and of customers."""
    return (
        sparse.load_npz(folder / HISTORIES).tocsr(),
        sparse.load_npz(folder / LIKENESS).tocsr(),
        np.load(folder / ITEM_FACTORS),
        np.load(folder / CUSTOMER_FACTORS),
    )


def serve(step: Callable[[Any], Any], customers: int, block: int) -> None:
    """Answer each line with the processor's seconds for the next block of customers, and a digest of the lists."""
    print(json.dumps({"ready": True}), flush=True)
    low = 0
    for _ in sys.stdin:
        rows = np.arange(low, low + block) % customers
        low = (low + block) % customers
        begin = time.process_time()
        items = step(rows)
        seconds = time.process_time() - begin
        print(json.dumps({"seconds": seconds, "first": np.asarray(items)[:50].tolist()}), flush=True)
