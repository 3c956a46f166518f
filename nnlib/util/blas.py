"""Which kernels NumPy's products are computed with: OpenBLAS chooses them by the processor, when NumPy is imported.

`OPENBLAS_CORETYPE` in the environment chooses others, for other last bits, and on a newer processor at half the speed.
Nothing here sets it: whoever starts a program decides, and what came of it is recorded.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec

OPENBLAS = "openblas"
USERS = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")  # NumPy's module that is linked with it
PREFIXES, SUFFIXES = ("scipy_", ""), ("64_", "")  # of names: those of NumPy's wheels, and of distributions


@lru_cache(maxsize=1)
def find_kernels() -> Mapping[str, str]:
    """Return version and kernels of NumPy's OpenBLAS, such as `0.3.31 SkylakeX`, by its name; nothing for another BLAS.

    Nothing fails: what cannot be found out is left out.
    """
    for library in _loaded():
        config, core = (_ask(library, name) for name in ("config", "corename"))
        version = re.search(r"\d+(?:\.\d+)+", config)
        if core:
            return {OPENBLAS: f"{version[0] if version else ''} {core}".strip()}
    return {}


def _loaded() -> Iterator[ctypes.CDLL]:
    """Yield what finds the names of the BLAS that NumPy is linked with, of no other one."""
    for user in USERS:
        try:
            found = find_spec(user)
            if found is not None and found.origin:
                yield ctypes.CDLL(found.origin)
        except (ImportError, OSError):
            continue


def _ask(library: ctypes.CDLL, what: str) -> str:
    for name in (f"{prefix}openblas_get_{what}{suffix}" for prefix in PREFIXES for suffix in SUFFIXES):
        if function := getattr(library, name, None):
            function.restype = ctypes.c_char_p
            return (function() or b"").decode("ascii", "replace")
    return ""
