"""The worked examples of docs/contributing: each page's patch fits this tree, its commands run in a patched copy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, blocks_of
from tests.support.checkout import copy_of_the_tree

PAGES = sorted((DOCS / "contributing").glob("add-*.md"))


def blocks(page: Path, language: str) -> list[str]:
    """Return the texts of a page's blocks of a language."""
    return [block.text for block in blocks_of(page) if block.language == language]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem, marks=pytest.mark.xdist_group(page.stem)) for page in PAGES]
)
def test_a_newcomer_who_follows_the_page_gets_there(page, tmp_path):
    tree, packages = copy_of_the_tree(tmp_path / "tree"), tmp_path / "packages"
    packages.mkdir()  # which Python searches before it finds this checkout
    (packages / "regiondag").symlink_to(tree / "workflows")
    (packages / "nnlib").symlink_to(tree / "nnlib")
    environment = os.environ | {
        "PYTHONPATH": str(packages),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTEST_ADDOPTS": "-n 0 -q",
        "GIT_CEILING_DIRECTORIES": str(tmp_path),  # in a folder of a checkout git would apply the patch to nothing
    }

    def run(*command: str, given: str = "") -> None:
        done = subprocess.run(command, input=given, cwd=tree, env=environment, capture_output=True, text=True)
        print(*command, done.stdout, done.stderr, sep="\n")
        assert done.returncode == 0, page.name

    # Lines around a change may have changed since; where they are nowhere to be found, the page is to be made again.
    run("git", "apply", "-C1", "-", given="".join(blocks(page, "diff")))
    for commands in blocks(page, "sh"):
        run("sh", "-ec", commands)
