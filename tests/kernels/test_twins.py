"""A kernel's comment names its reference in NumPy, which is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TWIN = re.compile(r"\bTwins?: ([^;\n]*)")
NAME = re.compile(r"\b([a-z_]+)\.([A-Za-z_]+(?:\.[a-z_]+)?)\b")
OTHERS = ("numpy", "np", "csr_array", "x")  # NumPy and SciPy by themselves


def twins() -> list[tuple[str, str]]:
    found = []
    for path in sorted((ROOT / "kernels").glob("*.cu*")):
        text = path.read_text().replace("\n// ", " ")
        found += [(module, name) for twin in TWIN.findall(text) for module, name in NAME.findall(twin.split(". ")[0])]
    return sorted({(module, name) for module, name in found if module not in OTHERS and name not in ("py", "sum")})


@pytest.mark.parametrize(("module", "name"), twins())
def test_the_reference_of_a_kernel_is_there(module, name):
    homes = list((ROOT / "nnlib").rglob(f"{module}.py")) or [
        path for path in (ROOT / "nnlib").rglob("*.py") if f"class {module}" in path.read_text()
    ]
    assert any(
        re.search(rf"^ *(def|class) {part}\b", home.read_text(), re.M)
        for home in homes
        for part in [name.split(".")[-1]]
    )


def test_there_are_some():
    assert len(twins()) > 10


CPU, GPU = ({path.name: path for path in (ROOT / "nnlib" / device).glob("[a-z]*.py")} for device in ("cpu", "gpu"))


@pytest.mark.parametrize("name", sorted(CPU.keys() & GPU.keys()))
def test_modules_of_one_name_are_twins(name):
    for files, other in ((CPU, "gpu"), (GPU, "cpu")):
        assert f"Twin: {other}/{name}." in files[name].read_text().split('"""')[1]
