"""The notebook of the guides is run as its reader would run it, on the real pool."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.blocks import DOCS

NOTEBOOK = DOCS / "guides" / "notebook.ipynb"


def texts_of(cell) -> str:
    """Return what a cell printed and showed, as text."""
    parts = [out.get("text", "") or out.get("data", {}).get("text/plain", "") for out in cell.outputs]
    return "\n".join(parts)


@pytest.mark.condor
def test_the_notebook_runs_from_its_first_cell_to_its_last(pool, run_area, monkeypatch):
    monkeypatch.setenv("REGIONDAG_POOL", pool.name)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(run_area)}}).execute()
    said = [texts_of(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert "3 of 3 regions have their champion" in said[2]
    assert "Belgium" in said[4] and "Portugal" in said[4]
    assert "nobody" in said[5] and "False" in said[5]
    assert "shape: (3, 3)" in said[6]


def test_every_cell_has_what_it_printed_and_no_path_of_a_machine():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert not any(str(place) in text for place in (Path.home(), "/tmp", "/work"))
