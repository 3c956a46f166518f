"""The files of a run directory and of a registry, from where their names are."""

from __future__ import annotations

from docs._generate.markdown import code, escape, table
from regiondag.registry.read import FILES as REGISTRY_FILES
from regiondag.run.layout import FILES, RunFile


def render_files() -> str:
    """Return one row for each file: its path, who writes it, and what it holds."""
    return _render(FILES)


def render_registry_files() -> str:
    """Return the same of a study's registry."""
    return _render(REGISTRY_FILES)


def _render(files: tuple[RunFile, ...]) -> str:
    return table(("path", "written by", "holds"), ((code(f.path), escape(f.writer), escape(f.holds)) for f in files))
