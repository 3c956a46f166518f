"""Events that the families are tried on."""

import numpy as np

from nnlib.data.events import Events
from nnlib.data.rows import Csr, offsets_of


def few_events(customers=60, items=25, seed=1, regions=("",), density=0.2):
    """Two groups of customers and items that like their own; the last customer and the last item have nothing."""
    random = np.random.default_rng(seed)
    liked = np.arange(customers)[:, None] % 2 == np.arange(items) % 2
    taken = random.random((customers, items)) < density * np.where(liked, 1.8, 0.2)
    taken[-1] = taken[:, -1] = False
    row, column = np.nonzero(taken)
    bought = Csr(offsets_of(np.bincount(row, minlength=customers)), column.astype(np.int32), items)
    days = random.integers(0, 100, len(column)).astype(np.int32)
    region = (np.arange(customers) % len(regions)).astype(np.int32)
    return Events(bought, tuple(f"i{n}" for n in range(items)), region, tuple(regions), days, 100)
