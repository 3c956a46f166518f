"""How loops are compiled: the only module that imports Numba. Import it, and all of `loops`, only where Numba is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit, types
from numba.extending import overload

Function = TypeVar("Function", bound=Callable[..., Any])

SUMS = frozenset({"contract", "reassoc", "nsz"})  # sums over SIMD lanes; NaN and infinity keep their meaning
FUSED = frozenset({"contract"})  # a product and a sum may become one instruction; the order stays


def _stamp() -> str:
    """Return a digest of all loops, part of the names under which they are kept.

    By itself Numba compiles a loop anew only when its own file changes, not when that of a loop it calls does.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("loops*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


STAMP = _stamp()


def compiled(function: Function) -> Function:
    """Compile with every operation as written, in the order written, so that the bits are NumPy's."""
    return _compile(function, frozenset())


def compiled_sums(function: Function) -> Function:
    """Compile with sums in an order that suits SIMD: another one than written, the same each time."""
    return _compile(function, SUMS)


def for_both(name: Callable[[Any], Any], single: Callable[[Any], Any], double: Callable[[Any], Any]) -> None:
    """Let compiled loops call `name`, a function of one number: `single` for float32, `double` for float64."""

    def choose(x: Any) -> Any:  # Numba wants the same names and annotations as in `single` and `double`
        return single if x == types.float32 else double

    overload(name, jit_options={"fastmath": set(FUSED)})(choose)


def _compile(function: Function, flags: frozenset[str]) -> Function:
    function.__qualname__ += f"_{STAMP}"
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(flags)}
    try:
        found = njit(function, cache=True, **options)
    except (RuntimeError, OSError):  # no place to keep compiled code: the package is in a zip, no folder is writable
        found = njit(function, **options)
    return cast(Function, found)
