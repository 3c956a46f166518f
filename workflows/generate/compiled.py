"""What Python would compile and look for each time a script starts, once: modules, and the methods of dataclasses."""

from __future__ import annotations

import importlib.util
import io
import json
import marshal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

CODES_FILE = "start.codes"  # in the archive of PRE and POST

# Imports the modules named, after the archive, and prints which files of it they took, by the modules' names, and what
# `dataclasses` had to compile for them.
_WATCH = """
import builtins, dataclasses, importlib, json, sys
archive, *modules = sys.argv[1:]
sys.path.insert(0, archive)
texts = {}
def watch(text, *spaces):
    texts.setdefault(text)
    builtins.exec(text, *spaces)
dataclasses.exec = watch
for name in modules:
    importlib.import_module(name)
known = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if name != "__main__"}
inside = {name: file.removeprefix(f"{archive}/") for name, file in known.items() if file.startswith(f"{archive}/")}
print(json.dumps([inside, list(texts)]))
"""
HEADER = 16  # bytes of a .pyc before its code


@cache
def compile_module(name: str, source: bytes) -> bytes:
    """Return what a .pyc of this Python holds that is valid whenever its source was written (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    unchecked = (1).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code)


@cache
def compile_start(archive: bytes, modules: Sequence[str]) -> bytes:
    """Return, for `node.start`, the code of all that is imported with `modules`, and of what `dataclasses` makes then.

    Nothing where that cannot be found out; then each script looks for modules, and compiles the texts.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive.pyz"
        path.write_bytes(archive)
        watched = subprocess.run([sys.executable, "-c", _WATCH, path, *modules], capture_output=True, check=False)
    taken, texts = json.loads(watched.stdout) if watched.returncode == 0 else ({}, [])
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        compiled = {name: file for name, file in taken.items() if file.endswith(".pyc")}
        codes = {name: (file.removesuffix("c"), packed.read(file)[HEADER:]) for name, file in compiled.items()}
    texts = {text: marshal.dumps(compile(text, "<string>", "exec", dont_inherit=True)) for text in texts}
    return importlib.util.MAGIC_NUMBER + marshal.dumps((codes, texts))


def list_taken(codes: bytes) -> set[str]:
    """Return the files of an archive whose code is in what `compile_start` has returned."""
    taken: dict[str, tuple[str, bytes]] = marshal.loads(codes[len(importlib.util.MAGIC_NUMBER) :])[0]  # noqa: S302
    return {file for file, _ in taken.values()}
