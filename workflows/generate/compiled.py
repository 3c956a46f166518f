"""What Python would compile each time a script starts, compiled once: modules, and the methods of dataclasses."""

from __future__ import annotations

import importlib.util
import json
import marshal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

CODES_FILE = "dataclasses.codes"  # in the archive of PRE and POST

# Imports the modules named, after the archive, and prints what `dataclasses` had to compile for them.
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
print(json.dumps(list(texts)))
"""


@cache
def compile_module(name: str, source: bytes) -> bytes:
    """Return what a .pyc of this Python holds that is valid whenever its source was written (PEP 552)."""
    code = compile(source, name, "exec", dont_inherit=True)
    unchecked = (1).to_bytes(4, "little")
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + marshal.dumps(code)


@cache
def compile_dataclasses(archive: bytes, modules: Sequence[str]) -> bytes:
    """Return the code of all texts that `dataclasses` makes when `modules` are imported, for `node.start`.

    Nothing where that cannot be found out; then each script compiles them.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive.pyz"
        path.write_bytes(archive)
        watched = subprocess.run([sys.executable, "-c", _WATCH, path, *modules], capture_output=True, check=False)
    texts: list[str] = json.loads(watched.stdout) if watched.returncode == 0 else []
    codes = {text: marshal.dumps(compile(text, "<string>", "exec", dont_inherit=True)) for text in texts}
    return importlib.util.MAGIC_NUMBER + marshal.dumps(codes)
