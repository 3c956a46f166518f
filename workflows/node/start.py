"""How PRE and POST start. A run has two of them a trial, and imports cost the manager more than all that they do.

`python -S` leaves out `site`. The paths of installed packages, and what their `.pth` files say, are added where first
something is imported that neither the archive nor the standard library has: as a rule NumPy, where a model is fitted.
Modules of the archive, and what `dataclasses` would compile for each class, lie compiled in one file of it. Of the
standard library some modules stand in sys.modules that are imported when something is asked of them. A process that has
imported nothing else ends without taking itself apart. Whatever of it a Python does not know costs time and nothing
else. The archive has this text as its `__main__`.
"""

from __future__ import annotations

import gc
import importlib.util
import marshal
import os
import sys
from contextlib import suppress
from importlib.machinery import ModuleSpec
from io import BufferedReader
from types import ModuleType
from zipimport import zipimporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# Modules of the standard library that wait until something is asked of them.
LATE = ("ast", "base64", "bz2", "copy", "ipaddress", "lzma", "pickle", "platform", "random", "unicodedata", "zlib")
OURS = ("regiondag", "nnlib")
SHORT = 1 << 19  # bytes; of more OpenSSL's SHA-256 is faster, with what loading it takes
JYTHON = "org"  # what `copy` and `pickle` import if they can
COLLECTED = 100_000  # new objects until Python looks for garbage: what is imported is none


def start(program: str, codes: str) -> None:
    """Run `main()` of a module of the archive, which has a file of `codes` for it; end with its exit code."""
    gc.set_threshold(COLLECTED)
    late = _LateSite()
    if sys.flags.no_site:
        sys.meta_path.append(late)
    for module in (*map(_Late, LATE), *(kind(name) for name, kind in LATE_IN_PART.items())):
        sys.modules.setdefault(module.__name__, module)
    _take_codes(codes)
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
    """A module of the standard library, but no package, that is imported when first something in it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name == "__path__":  # `from` asks for it
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


class _LateTyping(_Late):
    """Has for modules of ours the names that stand in annotations alone, which nobody looks at."""

    def __getattr__(self, name: str) -> Any:
        known = {"TYPE_CHECKING": False, "Any": object, "BinaryIO": object, "Protocol": object}
        return known[name] if name in known and _asking().split(".")[0] in OURS else super().__getattr__(name)

    def __bool__(self) -> bool:
        """Tell `dataclasses` that no class has a field of `typing.ClassVar`: who asks for that has the real module."""
        return False


class _LateInspect(_Late):
    """Answers NumPy, which while it is imported asks for hundreds of texts that only people read, and `dataclasses`."""

    def get_annotations(self, of: object, **more: object) -> Any:
        """Return a class's annotations, for which `dataclasses` asks here since Python 3.13."""
        own = vars(of).get("__annotations__", {}) if isinstance(of, type) and not more else None
        return dict(own) if isinstance(own, dict) else super().__getattr__("get_annotations")(of, **more)

    def cleandoc(self, text: str) -> Any:
        """Return a text as it stands in a source; to others as it is read."""
        return text if _asking().startswith("numpy.") else super().__getattr__("cleandoc")(text)

    def signature(self, of: object, **more: object) -> Any:
        """Return nothing, which NumPy keeps until somebody asks what it stands for; to others a signature."""
        return None if _asking().startswith("numpy.") else super().__getattr__("signature")(of, **more)


class _LateHashlib(_Late):
    """Gives the SHA-256 of what is short by Python's own code: to load OpenSSL takes longer."""

    def sha256(self, data: bytes = b"", **more: Any) -> Any:
        """Return the digest of some bytes."""
        home = "_sha2" if "_sha2" in sys.stdlib_module_names else "_sha256"  # since Python 3.12, and before
        with suppress(ImportError):
            if len(data) <= SHORT:
                return importlib.import_module(home).sha256(data, **more)
        return super().__getattr__("sha256")(data, **more)

    def file_digest(self, file: Any, name: str, **more: Any) -> Any:
        """Return the digest of what is left of a file."""
        if name == "sha256" and type(file) is BufferedReader and os.fstat(file.fileno()).st_size <= SHORT:
            return self.sha256(file.read())
        return super().__getattr__("file_digest")(file, name, **more)


LATE_IN_PART = {
    "hashlib": _LateHashlib,
    "inspect": _LateInspect,
    "typing": _LateTyping,
}


def _asking() -> str:
    """Return the name of the module that called who calls this."""
    return str(sys._getframe(2).f_globals.get("__name__"))  # as `warnings` does


class _Packed:
    """Finds modules whose code was read at the start, in one piece: to look into the archive for each takes longer."""

    def __init__(self, archive: str, codes: Mapping[str, tuple[str, bytes]]) -> None:
        self.archive, self.codes = archive, codes

    def find_spec(self, name: str, *_more: object) -> ModuleSpec | None:
        """Return where a module is, by the name of its file in the archive."""
        if name not in self.codes:
            return None
        file = f"{self.archive}/{self.codes[name][0]}"
        folder, _, last = file.rpartition("/")
        spec = ModuleSpec(name, self, origin=file, is_package=last == "__init__.py")  # type: ignore[arg-type]
        spec.has_location = True
        if spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(folder)
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the code."""
        exec(marshal.loads(self.codes[module.__name__][1]), vars(module))  # noqa: S102, S302  # as Python itself a .pyc

    def get_source(self, name: str) -> str | None:
        """Return a module's text, as for the traceback of a bug."""
        return self._ordinary(name).get_source(name)

    def get_resource_reader(self, name: str) -> object:
        """Return what reads files that lie beside a module."""
        return self._ordinary(name).get_resource_reader(name)

    def _ordinary(self, name: str) -> zipimporter:
        return zipimporter("/".join((self.archive, *name.split(".")[:-1])))


def _take_codes(file: str) -> None:
    """Let modules be found, and `dataclasses` run what was compiled of its texts, when the run was made.

    By the same Python, that is; another one does it all as ever.
    """
    import dataclasses

    archive = sys.path[0]
    try:
        packed: bytes = __loader__.get_data(f"{archive}/{file}")  # type: ignore[name-defined]
    except OSError:
        return
    magic = importlib.util.MAGIC_NUMBER
    if not packed.startswith(magic):
        return
    modules, texts = marshal.loads(memoryview(packed)[len(magic) :])  # noqa: S302  # as Python itself reads a .pyc
    sys.meta_path.insert(0, _Packed(archive, modules))

    def run(text: str, *spaces: dict[str, object]) -> None:
        known = texts.get(text)
        code = compile(text, "<string>", "exec", dont_inherit=True) if known is None else marshal.loads(known)  # noqa: S302
        exec(code, *spaces)  # noqa: S102  # what dataclasses has written

    dataclasses.exec = run  # type: ignore[attr-defined]  # its own name for the built-in one
