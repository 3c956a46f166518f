"""How PRE and POST start. A run has two of them a trial, and imports cost the manager more than all that they do.

`python -S` leaves out `site`. The paths of installed packages, and what their `.pth` files say, are added where first
something is imported that neither the archive nor the standard library has: as a rule NumPy, where a model is fitted.
What `dataclasses` would compile for each class lies compiled in the archive. A process that has imported nothing else
ends without taking itself apart. Whatever of it a Python does not know costs time and nothing else.
"""

from __future__ import annotations

import gc
import importlib.util
import marshal
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType

LATE = ("inspect", "hashlib")  # `dataclasses` asks the first of them for classes without a docstring alone
JYTHON = "org"  # what `copy` and `pickle` import if they can
COLLECTED = 100_000  # new objects until Python looks for garbage: what is imported is none


def start(program: str, codes: str) -> None:
    """Run `main()` of a module of the archive, which has compiled `codes` for dataclasses; end with its exit code."""
    gc.set_threshold(COLLECTED)
    late = _LateSite()
    if sys.flags.no_site:
        sys.meta_path.append(late)
    for name in LATE:
        sys.modules.setdefault(name, _Late(name))
    _give_codes(codes)
    code = int(importlib.import_module(program).main())
    if late in sys.meta_path:  # then nobody wants to hear of the end but who reads what was printed
        with suppress(OSError, ValueError):  # else Python says it, by its exit code
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    sys.exit(code)


class _LateSite:
    """The last to be asked for a module: does once what Python would have done when it started, and looks again."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find an installed package; what lies inside of one that is imported others find."""
        if path is not None or name == JYTHON or name in sys.stdlib_module_names:
            return None
        sys.meta_path.remove(self)
        import site

        site.main()
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path)
        return next(filter(None, found), None)


class _Late(ModuleType):
    """A module of the standard library that is imported when first something in it is asked for."""

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _give_codes(file: str) -> None:
    """Let `dataclasses` run what was compiled of the same text when the run was made, by the same Python."""
    import dataclasses

    try:
        packed: bytes = __loader__.get_data(f"{sys.path[0]}/{file}")  # type: ignore[name-defined]
    except OSError:
        return
    magic = importlib.util.MAGIC_NUMBER
    if not packed.startswith(magic):
        return
    codes: dict[str, bytes] = marshal.loads(packed[len(magic) :])  # noqa: S302  # as Python itself reads a .pyc

    def run(text: str, *spaces: dict[str, object]) -> None:
        known = codes.get(text)
        code = compile(text, "<string>", "exec", dont_inherit=True) if known is None else marshal.loads(known)  # noqa: S302
        exec(code, *spaces)  # noqa: S102  # what dataclasses has written

    dataclasses.exec = run  # type: ignore[attr-defined]  # its own name for the built-in one
