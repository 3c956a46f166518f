"""Which code runs the inner loops: compiled ones where Numba is installed, else NumPy's.

NNLIB_BACKEND=numpy or numba asks for one of them. Where compiled code cannot be kept from one start to the next (nnlib
in a zip, and no folder for caches), every start would compile for ten seconds; there NumPy is used unless Numba is
asked for.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType

from nnlib.errors import MachineError, NnlibError

VARIABLE = "NNLIB_BACKEND"
NAMES = ("auto", "numpy", "numba")


def _loops() -> ModuleType | None:
    wanted = os.environ.get(VARIABLE, "auto").lower() or "auto"
    if wanted not in NAMES:
        raise NnlibError(f"{VARIABLE}: {wanted!r} is not legal, legal: {', '.join(NAMES)}")
    if wanted == "numpy" or (wanted == "auto" and not _can_be_kept()):
        return None
    try:
        return importlib.import_module("nnlib.compiled.loops")
    except ImportError as error:
        if wanted == "auto":
            return None
        raise MachineError(f"{VARIABLE} is numba, and {error}; install regiondag[fast]") from error


def _can_be_kept() -> bool:
    """Whether compiled code finds a place: beside this file, else among the user's caches."""
    if Path(__file__).is_file():
        return True
    try:
        place = cache_folder()
        place.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return False
    return os.access(place, os.W_OK)


def cache_folder() -> Path:
    """Return the folder for what may be made anew; RuntimeError when the user has no home."""
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "nnlib"


LOOPS = _loops()
NAME = "numba" if LOOPS else "numpy"
