"""The files of a run directory, from where their names are."""

from __future__ import annotations

from docs._generate.markdown import code, escape, table
from regiondag.run.layout import FILES


def render_files() -> str:
    """Return one row for each file: its path, who writes it, and what it holds."""
    return table(("path", "written by", "holds"), ((code(f.path), escape(f.writer), escape(f.holds)) for f in FILES))
