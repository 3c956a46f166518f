"""One thread for linear algebra: the same sums on any number of cores, and scripts of many regions side by side.

The library is imported where threads have to be held, which in PRE they have not: pre.sh begins Python with one.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext


def on_one_thread() -> AbstractContextManager[object]:
    """Hold NumPy's products and decompositions to one thread, where they are not from the start."""
    # What BLIS, OpenBLAS and MKL look at when they are loaded.
    said = os.environ.get("OMP_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS"), os.environ.get("MKL_NUM_THREADS")
    if said in (("1", "1", None), ("1", "1", "1")):
        return nullcontext()
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)  # type: ignore[no-any-return]
