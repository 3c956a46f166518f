"""The operators of ONNX that are read, with their attributes and what they become."""

from __future__ import annotations

from docs._generate.markdown import code, escape, table
from nnlib.onnx_files.folding import FOLDED
from nnlib.onnx_files.operators import OPERATORS


def render_onnx_operators() -> str:
    """Return a table of operators on values, and those on arrays of the graph."""
    rows = [
        (code(name), escape(one.becomes), ", ".join(map(code, one.attributes)))
        for name, one in sorted(OPERATORS.items())
    ]
    arrays = ", ".join(map(code, sorted({*FOLDED, "Constant", "Shape"})))
    return f"{table(('operator', 'becomes', 'attributes'), rows)}\n\nOf arrays of the graph alone: {arrays}."
