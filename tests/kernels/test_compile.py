"""Every kernel as machine code of every generation of GPUs, and what it takes there."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from nnlib.gpu.kernels import FAMILIES, OPTIONS, source
from tests.kernels import nvrtc
from tests.kernels.library import signatures

KEPT = Path(__file__).parents[2] / "scripts" / "bench" / "results" / "kernels.json"
KERNELS = Path(__file__).parents[2] / "kernels"
NVCC = 75  # no text asks for its architecture, and NVRTC compiles for all of them
MOST_SHARED = 48 << 10  # bytes of a block that any GPU has without being asked


def check(family: str, targets: list[nvrtc.Target]) -> None:
    """Compile a family: all kernels are there, and keep their values in registers."""
    names = set(signatures(source(family)))
    assert names
    for target, found in nvrtc.figures(source(family), OPTIONS, targets).items():
        assert set(found) == names, target
        check_figures(found, target)


def check_figures(found: dict[str, nvrtc.Figures], target: object) -> None:
    for name, one in found.items():
        assert one.spilled == 0, (name, target)
        assert one.stack == 0, (name, target)  # local memory
        assert one.shared <= MOST_SHARED, (name, target)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_compiles_for_every_generation(family):
    check(family, nvrtc.GENERATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_compiles_for_every_architecture(family):
    check(family, nvrtc.targets())


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_compiles_with_the_oldest_nvrtc(family):
    compiler = nvrtc.oldest()
    if compiler is None:
        pytest.skip(f"pip cannot bring NVRTC {nvrtc.OLDEST}")
    for architecture in nvrtc.OLDEST_ARCHITECTURES:
        found = nvrtc.figures_with(compiler, source(family), OPTIONS, architecture)
        assert set(found) == set(signatures(source(family))), architecture
        check_figures(found, architecture)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on the PATH")
@pytest.mark.parametrize("family", FAMILIES)
def test_nvcc_compiles_a_file_as_it_is(family, tmp_path):
    words = [
        "--fmad=false",
        f"-I{KERNELS}",
        f"-arch=sm_{NVCC}",
        "-c",
        KERNELS / f"{family}.cu",
        "-o",
        tmp_path / "found.o",
    ]
    done = subprocess.run(["nvcc", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_text_asks_for_its_architecture():
    assert [file.name for file in KERNELS.iterdir() if "__CUDA_ARCH__" in file.read_text(encoding="utf-8")] == []


def test_the_generations_are_among_the_architectures():
    assert set(nvrtc.GENERATIONS) <= set(nvrtc.targets())


def test_a_name_belongs_to_one_kernel():
    names = [name for family in FAMILIES for name in signatures(source(family))]
    assert len(names) == len(set(names))


def test_messages_of_the_compiler_are_passed_on():
    with pytest.raises(nvrtc.CompileError, match="nothing"):
        nvrtc.figures('extern "C" __global__ void f() { nothing; }', OPTIONS, [(13, 80)])


def test_spilled_registers_are_seen():
    text = """extern "C" __global__ void __launch_bounds__(1024, 2) f(const float* x, float* y, int n)
    {
        float kept[99], all[4];
    #pragma unroll
        for (int i = 0; i < 99; ++i) kept[i] = x[i * n + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 4; ++i) all[i] = x[i];
        for (int i = 0; i < 99; ++i) y[i * n + threadIdx.x] = kept[98 - i] + all[n % 4];
    }"""
    [figures] = nvrtc.figures(text, OPTIONS, [(13, 80)]).values()
    assert figures["f"].stack > 16
    assert figures["f"].spilled > 0
    assert figures["f"].registers == 32


def test_the_kept_figures_are_those_of_all_kernels():
    rows = json.loads(KEPT.read_text(encoding="utf-8"))["rows"]
    wanted = [f"{family}: {name}" for family in FAMILIES for name in signatures(source(family))]
    assert [row["workload"] for row in rows] == wanted, "run python -m tests.kernels.figures"
