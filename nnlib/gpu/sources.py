"""The text of the CUDA kernels, one family a file, with what they include."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
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
KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)')
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


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel takes: the name and the type of every parameter; pointers end with `*`."""

    family: str
    parameters: tuple[tuple[str, str], ...]


@cache
def signatures() -> Mapping[str, Signature]:
    """Return every kernel of every family by its name."""
    found = {}
    for family in FAMILIES:
        for name, parameters in KERNEL.findall(source(family)):
            pairs = [_parameter(text) for text in parameters.split(",")]
            found[name] = Signature(family, tuple(pairs))
    return found


def _parameter(text: str) -> tuple[str, str]:
    """Return name and type of `const float* __restrict__ x`: ("x", "float*")."""
    words = re.sub(r"\b(const|__restrict__)\b", "", text).replace("*", "* ").split()
    return words[-1], " ".join(words[:-1]).replace(" *", "*")
