"""What ranks have saved, put together and made a digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from scripts.bench.level3.rank import cut_of, problem
from scripts.bench.level3.work import Ranked, split


def digest_of(work: Ranked, ranks: int) -> str:
    """Return the SHA-256 of all parameters and states that the ranks of a work have saved, whole and in their order."""
    network, _ = problem(work)
    parts = []
    for one in split(work, ranks, ""):
        with np.load(Path(work.kept) / f"{one.rank}.npz") as saved:
            parts.append((cut_of(one, network), dict(saved)))
    found = hashlib.sha256()
    for name in sorted(parts[0][1]):
        whole = np.concatenate([local[name] for _, local in parts]) if parts[0][0].rows_of(name) else parts[0][1][name]
        if parts[0][0].rows_of(name):
            for cut, local in parts:
                cut.put(name, local[name], whole)
        found.update(name.encode() + whole.tobytes())
    return found.hexdigest()
