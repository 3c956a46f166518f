"""Public sets without times: their files, the part that settings are chosen on, and what others have published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nnlib.data.events import Events, Window
from nnlib.data.rows import Csr
from scripts.bench.common.processes import NotMeasuredError

VALIDATION = 0.1  # of each user's training items, one at least
Published = Mapping[str, tuple[float, float]]  # method -> Recall@20, NDCG@20


@dataclass(frozen=True)
class Pairs:
    """Two parts of the same users and items: what is learned from, and what is asked for."""

    known: Events
    wanted: sparse.csr_array  # (users, items), ones

    @property
    def asked(self) -> NDArray[np.int64]:
        """The users who want something."""
        return np.flatnonzero(np.diff(self.wanted.indptr))

    def window(self) -> Window:
        """Return the same as the families' own measure and blend take it."""
        return Window(self.known, to_csr(self.wanted))


@dataclass(frozen=True)
class Set:
    """A public set: how it is read, what must be reached, and what was."""

    read: Callable[[Path], Pairs]
    goal: float  # Recall@20
    published: Published


def read_lists(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read lines of a user and his items; return users and items, a pair an entry."""
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except FileNotFoundError as error:
        raise NotMeasuredError(f"{path} is missing; scripts/bench/README.md says where the sets come from") from error
    rows = [np.array(line.split(), np.int64) for line in lines if line.strip()]
    return np.repeat([row[0] for row in rows], [len(row) - 1 for row in rows]), np.concatenate([r[1:] for r in rows])


def read_text(folder: Path) -> Pairs:
    """Read train.txt and test.txt, as LightGCN and UltraGCN have them."""
    train, test = read_lists(folder / "train.txt"), read_lists(folder / "test.txt")
    users, items = (int(max(a.max(), b.max())) + 1 for a, b in zip(train, test, strict=True))
    return Pairs(to_events(ones(*train, (users, items))), ones(*test, (users, items)))


def read_adjacency(folder: Path) -> Pairs:
    """Read test.txt, and the training pairs from LightGCN's matrix of users and items by users and items."""
    test = read_lists(folder / "test.txt")
    both = sparse.load_npz(folder / "s_adj_mat.npz").tocsr()
    users = int(test[0].max()) + 1
    known = sparse.csr_array(both)[:users, users:]
    if known.nnz * 2 != both.nnz:
        raise NotMeasuredError(f"{folder}: {users} users by test.txt; the matrix has pairs of users or of items then")
    row, column = known.nonzero()
    return Pairs(to_events(ones(row, column, known.shape)), ones(*test, known.shape))


def ones(users: NDArray[np.integer], items: NDArray[np.integer], shape: tuple[int, int]) -> sparse.csr_array:
    """Return ones at the pairs, each once, items of a user ascending."""
    found = sparse.csr_array((np.ones(len(users), np.float32), (users, items)), shape)
    found.sum_duplicates()
    found.data[:] = 1
    return found


def to_events(pairs: sparse.csr_array) -> Events:
    """Return what users took, at no time and in no region."""
    users, items = pairs.shape
    return Events(to_csr(pairs), tuple(map(str, range(items))), np.zeros(users, np.int32), ("",))


def to_csr(pairs: sparse.csr_array) -> Csr:
    """Return pairs in nnlib's form."""
    return Csr(pairs.indptr.astype(np.int64), pairs.indices.astype(np.int32), pairs.shape[1])


def cut(known: Events, seed: int) -> Pairs:
    """Take a tenth of each user's items away at random, as what is wanted; who has one item keeps it."""
    bought = known.bought
    counts = np.diff(bought.indptr)
    user = np.repeat(np.arange(known.customers), counts)
    order = np.lexsort((np.random.default_rng(seed).random(bought.nonzeros), user))
    rank = np.empty(bought.nonzeros, np.int64)
    rank[order] = np.arange(bought.nonzeros) - bought.indptr[user]
    taken = np.where(counts > 1, np.maximum(1, np.round(counts * VALIDATION)), 0)
    held = rank < taken[user]
    shape = (known.customers, bought.width)
    left, wanted = (ones(user[part], bought.indices[part], shape) for part in (~held, held))
    return Pairs(to_events(left), wanted)


GOWALLA = {
    "ItemCF": (0.1570, 0.1214),
    "SLIM": (0.1699, 0.1382),
    "EASE": (0.1765, 0.1467),
    "LightGCN": (0.1820, 0.1547),
    "GF-CF": (0.1849, 0.1518),
    "UltraGCN": (0.1862, 0.1580),
    "SimpleX": (0.1872, 0.1557),
    "BSPM": (0.1920, 0.1597),
}
SETS = {
    "gowalla": Set(read_adjacency, 0.1872, GOWALLA),
    "ml-1m": Set(read_text, 0.2787, {"UltraGCN": (0.2787, 0.2642)}),
    "amazon-cds": Set(read_text, 0.1622, {"UltraGCN": (0.1622, 0.1043)}),
}
