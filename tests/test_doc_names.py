"""What pages name is there: the files of the checkout, and the glossary's names in the code."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED_FILE = re.compile(r"`((?:workflows|nnlib|kernels|templates|scripts|ami|tests|docs)/[\w./-]*)`")
NAMED_IN_CODE = re.compile(r"`((?:regiondag|nnlib)\.[\w.]+)`")
MOST_LINES = 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = NAMED_FILE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_glossary_names_what_the_code_has() -> None:
    named = NAMED_IN_CODE.findall((ROOT / "docs" / "concepts" / "glossary.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    for name in named:
        pkgutil.resolve_name(name)  # AttributeError or ModuleNotFoundError for what is not there


def test_the_readme_is_read_to_its_end() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES
