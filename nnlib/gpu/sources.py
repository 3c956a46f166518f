"""The text of the CUDA kernels, one family a file, with what they include."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

FAMILIES = (
    "activation",
    "batchnorm",
    "elementwise",
    "gather",
    "limits",
    "output",
    "reduce",
    "rowwise",
    "top",
    "touched",
    "update",
)
INCLUDE = re.compile(r'^#include "([a-z_]+\.cuh)"$', re.MULTILINE)
OPTIONS = ("--std=c++17", "--fmad=false")  # of every compilation: see kernels/README.md


@cache
def source(family: str) -> str:
    """Return the text of a family with each included file in place of its first #include."""
    seen = set[str]()

    def text_of(name: str) -> str:
        def included(found: re.Match[str]) -> str:
            if found[1] in seen:
                return ""
            seen.add(found[1])
            return text_of(found[1]).replace("#pragma once\n", "")

        return INCLUDE.sub(included, (_folder() / name).read_text(encoding="utf-8"))

    return text_of(f"{family}.cu")


def _folder() -> Traversable:
    """Return where the kernels are: packaged as nnlib/kernels, in a checkout beside nnlib."""
    packaged = files("nnlib") / "kernels"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "kernels"
