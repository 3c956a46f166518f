"""The report's page without a run's figures in it, and plotly.js: what the page needs of this installation.

`generate` packs both into the archive that travels with the run, because the Python that writes the page at a run's end
may have neither. plotly.js is MIT-licensed; it is the one that the package `plotly` ships, behind a line for browsers.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from regiondag.run.layout import PAGE_LIBRARY, PAGE_SHELL
from regiondag.util.resources import resource_dir
from regiondag.util.templates import render_html

# Chromium then compiles all of it at once, not each function twice: 0.5 s of 2. Other browsers read a comment.
HINT = b"//# allFunctionsCalledOnLoad\n"
LEVEL = 4  # of gzip: the ninth takes twice as long and saves 4 % of 1.5 MB


def page_parts(archives: Iterable[Path] = ()) -> dict[str, bytes]:
    """Return the shell and the library by their names in the archive; nothing where there is no library.

    Where plotly is not installed, the library is that of the first of the `archives` of earlier runs that holds one.
    """
    library = _find_installed_library() or _find_packed_library(archives)
    if library is None:
        return {}
    return {PAGE_SHELL: render_page_shell(source_hash(library)).encode(), PAGE_LIBRARY: _compress(library)}


@lru_cache(maxsize=1)
def _compress(library: bytes) -> bytes:
    return gzip.compress(library, LEVEL, mtime=0)


def _find_installed_library() -> bytes | None:
    found = find_spec("plotly")  # not imported: only the file is wanted
    for folder in (found.submodule_search_locations or ()) if found else ():
        script = Path(folder) / "package_data" / "plotly.min.js"
        if script.is_file():
            return HINT + script.read_bytes()
    return None


def _find_packed_library(archives: Iterable[Path]) -> bytes | None:
    for path in archives:
        try:
            if path.stat().st_uid != os.getuid():  # a stranger's script would run in this study's page
                continue
            with zipfile.ZipFile(path) as archive:
                return gzip.decompress(archive.read(PAGE_LIBRARY))
        except (OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error):
            continue
    return None


PAGE_SCRIPTS = (
    "base.js",
    "verdicts.js",
    "table.js",
    "map.js",
    "running.js",
    "plots.js",
    "region.js",
    "timeline.js",
    "page.js",
)  # one after the other in one script


def source_hash(script: bytes) -> str:
    """Return what a content security policy calls a script.

    >>> source_hash(b"")
    'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='
    """
    return f"sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}"


def render_page_shell(library: str) -> str:
    """Return the report's page without figures; `library` is the hash by which its policy lets plotly.js run."""
    folder = resource_dir("templates") / "report"
    script = "".join((folder / name).read_text(encoding="utf-8") for name in PAGE_SCRIPTS)
    script = f'(() => {{\n"use strict";\n{script}}})();\n'
    page, style = ((folder / name).read_text(encoding="utf-8") for name in ("page.html.j2", "page.css"))
    return render_html(page, style=style, script=script, hashes=[source_hash(script.encode()), library])
