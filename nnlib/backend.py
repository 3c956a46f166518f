"""Which code runs the inner loops: compiled ones where Numba is installed, else NumPy's.

NNLIB_BACKEND=numpy or numba asks for one of them. From inside a zip, where compiled code cannot be kept, every start
would compile anew; there NumPy is used unless Numba is asked for.
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
    if wanted == "numpy" or (wanted == "auto" and not Path(__file__).is_file()):
        return None
    try:
        return importlib.import_module("nnlib.loops")
    except ImportError as error:
        if wanted == "auto":
            return None
        raise MachineError(f"{VARIABLE} is numba, and {error}; install regiondag[fast]") from error


LOOPS = _loops()
NAME = "numba" if LOOPS else "numpy"
