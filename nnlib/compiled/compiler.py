"""How loops are compiled: the only module that imports Numba. Import it, and all of `loops`, only where Numba is."""

from __future__ import annotations

import hashlib
import os
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from llvmlite import binding
from llvmlite import ir as ir
from numba import __version__ as numba_version
from numba import njit, types
from numba.extending import intrinsic, overload

from nnlib.util.files import write_atomically

Function = TypeVar("Function", bound=Callable[..., Any])

MODULES = (
    "bf16",
    "compiler",
    "convolution",
    "depthwise",
    "gemm",
    "laying",
    "maps",
    "output",
    "pictures",
    "replay",
    "rows",
    "rules",
    "sparse",
    "tiles",
    "top",
    "vectors",
)
SUMS = frozenset({"contract", "reassoc", "nsz"})  # sums over SIMD lanes; NaN and infinity keep their meaning
FUSED = frozenset({"contract"})  # a product and a sum may become one instruction; the order stays


def compile_loop(function: Function) -> Function:
    """Compile with every operation as written, in the order written, so that the bits are NumPy's."""
    return _compile(function, frozenset())


def compile_within(function: Function) -> Function:
    """As `compile_loop`, as a part of the loops that call it.

    A call counts who has each array that it is given, and waits for memory with that: for a row, twice the time.
    """
    return _compile(function, frozenset(), inline="always")


def compile_sums(function: Function) -> Function:
    """Compile with sums in an order that suits SIMD: another one than written, the same each time."""
    return _compile(function, SUMS)


def overload_both(name: Callable[[Any], Any], single: Callable[[Any], Any], double: Callable[[Any], Any]) -> None:
    """Let compiled loops call `name`, a function of one number: `single` for float32, `double` for float64."""

    def choose(x: Any) -> Any:  # Numba wants the same names and annotations as in `single` and `double`
        return single if x == types.float32 else double

    overload(name, jit_options={"fastmath": set(FUSED)})(choose)


def has(feature: str) -> bool:
    """Return whether this processor has what LLVM calls by that name."""
    return bool(binding.get_host_cpu_features().get(feature, False))


def is_zen() -> bool:
    """Return whether this processor is one of AMD's Zen, whose cores have a last cache by groups."""
    return str(binding.get_host_cpu_name()).startswith("znver")


def emit(write: Callable[..., None]) -> Callable[..., None]:
    """Return what compiled loops call with six whole numbers, and whose instructions `write` gives to LLVM.

    `write` takes a builder of llvmlite's `ir`, and the six as its values.
    """
    signature = types.void(*[types.int64] * 6)

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
        write(builder, *values)
        return context.get_dummy_value()

    def choose(context: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:  # noqa: ARG001
        return signature, generate

    return cast(Callable[..., None], intrinsic(choose))


def _compile(function: Function, flags: frozenset[str], **more: str) -> Function:
    options = {"nogil": True, "error_model": "numpy", "fastmath": set(flags), **more}
    function.__qualname__ += f"_{STAMP}"
    try:
        _give_file(function)
        found = njit(function, cache=True, **options)
    except (RuntimeError, OSError):  # there is no place where compiled code can be kept
        found = njit(function, **options)
    return cast(Function, found)


def _sources() -> dict[str, bytes]:
    names = [f"{name}.py" for name in MODULES]
    return {name: pkgutil.get_data(__package__, name) or b"" for name in names}


def _stamp() -> str:
    """Return a digest of all loops and Numba's version, which is part of the names under which they are kept.

    By itself Numba compiles a loop anew only when its own file changes, not when that of a loop it calls does, and two
    versions in turn each throw away, or load halves of, what the other has kept.
    """
    return hashlib.sha256(b"".join([numba_version.encode(), *_sources().values()])).hexdigest()[:12]


STAMP = _stamp()


def _give_file(function: Callable[..., Any]) -> None:
    """Say of a loop from a zip, as jobs have it, that it comes from a copy: Numba keeps code beside files only.

    Without this each job would spend its first ten seconds on compiling.
    """
    name = Path(function.__code__.co_filename)
    if name.is_file():
        return
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    copy = Path(caches) / "nnlib" / f"loops-{STAMP}" / name.name
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(copy, _sources()[name.name])
    function.__code__ = function.__code__.replace(co_filename=str(copy))
