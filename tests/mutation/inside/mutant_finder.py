"""Gives the tests of a mutant, and every Python that they start, the mutant instead of the module.

The code comes from a file of its own and says that it comes from the module's, which nobody touches; nothing is kept
in `__pycache__`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType

NAME, CHANGED = "REGIONDAG_MUTANT", "REGIONDAG_MUTANT_SOURCE"  # environment: the module, and the file to run for it


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, changed: str) -> None:
        super().__init__(fullname, path)
        self._changed = changed

    def get_code(self, fullname: str) -> CodeType:
        return compile(Path(self._changed).read_bytes(), self.path, "exec", dont_inherit=True)


class Finder:
    """Finds one module only."""

    def __init__(self, name: str, changed: str) -> None:
        self._name = name
        self._changed = changed

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Return the module's own place with another loader, or None for any other module."""
        if fullname != self._name:
            return None
        found = PathFinder.find_spec(fullname, path)
        if found is None or found.origin is None:
            return None
        loader = _Loader(fullname, found.origin, self._changed)
        return spec_from_file_location(
            fullname, found.origin, loader=loader, submodule_search_locations=found.submodule_search_locations
        )


def install() -> None:
    """Give the mutant that the environment names, if any."""
    if NAME in os.environ:
        sys.meta_path.insert(0, Finder(os.environ[NAME], os.environ[CHANGED]))
