"""The burn with nnlib's kernels: on the processor, by CuPy on a GPU or on a CUDA that is played, and compiled."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.ami.gpu_fakes import ROOT, load
from tests.kernels import nvrtc
from tests.kernels.library import Library, family

SMALL = {"rows": 37, "columns": 36, "examples": 5, "entries": 4, "maps": 2, "channels": 5, "side": 6}


@pytest.fixture
def burn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with the kernels of this checkout beside it as a bake lays them there."""
    loaded = load("gpu_burn")
    kernels = tmp_path / "kernels"
    shutil.copytree(ROOT / "kernels", kernels, ignore=shutil.ignore_patterns("*.md"))
    monkeypatch.setattr(loaded, "KERNELS", kernels)
    return loaded


class DeviceArray:
    """Memory of the device, which NumPy does not take for its own."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.dtype, self.ctypes_pointer = array, array.dtype, array.ctypes.data

    def get(self) -> np.ndarray:
        return self.array.copy()


class Module:
    """Machine code, which is the name of its family."""

    def load(self, code: bytes) -> None:
        self.library: Library = family(code.decode())

    def get_function(self, name: str) -> Any:
        return self.library.kernel(name)


def fake_cupy(burn: ModuleType) -> Any:
    """As much of CuPy as the burn uses; kernels run on the processor."""
    made = []

    def compile_using_nvrtc(text: str, options: tuple[str, ...]) -> tuple[bytes, None]:
        assert options == ("--std=c++17", "--fmad=false", f"-I{burn.KERNELS}")
        made.append(next(name for name in burn.NAMES if text == (ROOT / f"kernels/{name}.cu").read_text()))
        return made[-1].encode(), None

    class Device(contextlib.nullcontext):  # type: ignore[type-arg]
        compute_capability = "90"

        def __init__(self, number: int = 0) -> None:
            super().__init__()

    compiler = SimpleNamespace(compile_using_nvrtc=compile_using_nvrtc)
    cupy: Any = ModuleType("cupy")
    cupy.asarray = lambda array: DeviceArray(array.copy())
    cupy.zeros = lambda shape, dtype: DeviceArray(np.zeros(shape, dtype))
    cupy.cuda = SimpleNamespace(Device=Device, compiler=compiler, function=SimpleNamespace(Module=Module))
    cupy.made = made
    return cupy


def small_work(burn: ModuleType) -> list[Any]:
    return list(burn.make_work(burn.Sizes(**SMALL)))


def run_twice(one: Any) -> set[str]:
    for _ in range(2):
        one.launch()
        one.look()
    return set(one.wrong)


def test_the_kernels_give_what_numpy_gives(burn):
    cupy = fake_cupy(burn)
    for number in range(2):
        one = burn.KernelBurn(cupy, number, small_work(burn))
        assert run_twice(one) == set()
    assert cupy.made == list(burn.NAMES), "compiled once for all GPUs of a kind"
    assert {work.kernel for work in small_work(burn)} == {"mul_c", "column_sums", "gather", "convolution"}


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("fault", [1.0, np.nan, np.inf])
def test_one_wrong_number_of_one_kernel_is_told(burn, place, fault):
    """The first look is this machine's, later ones are the GPU's own: each must see it alone."""
    some = small_work(burn)
    expected = some[place].expected.copy()
    expected.reshape(-1)[7] += fault
    some[place] = dataclasses.replace(some[place], expected=expected)
    one = burn.KernelBurn(fake_cupy(burn), 0, some)
    assert one.wrong == {some[place].kernel}
    one.wrong.clear()
    assert run_twice(one) == {some[place].kernel}


def test_a_kernel_that_goes_wrong_later_is_told_from_then_on(burn):
    one = burn.KernelBurn(fake_cupy(burn), 0, small_work(burn))
    right = one._functions["gather"]

    def wrong(grid: Any, block: Any, arguments: Any) -> None:
        right(grid, block, arguments)
        arguments[7].array[0, 0] += 1

    one._functions["gather"] = wrong
    one.launch()
    one._functions["gather"] = right
    one.look()
    assert run_twice(one) == {"gather"}


def test_all_results_are_whole_numbers_that_float32_has(burn):
    for work in burn.make_work(burn.Sizes()):
        assert np.abs(work.expected).max() < 1 << 24, work.kernel
        assert (work.expected == np.rint(work.expected)).all()
        assert np.ptp(work.expected) or work.kernel == "mul_c", "numbers that differ"


def test_a_folder_without_sources(burn):
    (burn.KERNELS / "gather.cu").unlink()
    with pytest.raises(FileNotFoundError, match=r"kernels/gather\.cu"):
        burn.KernelBurn(fake_cupy(burn), 0, small_work(burn))


def test_nvidias_compiler_takes_the_sources_as_they_lie_on_an_image(burn):
    targets = [(12, 70), (13, 120)]
    for name, kernels in burn.NAMES.items():
        text = (burn.KERNELS / f"{name}.cu").read_text()
        found = nvrtc.figures(text, (*burn.OPTIONS, f"-I{ROOT / 'kernels'}"), targets)
        assert all(set(kernels) <= set(found[target]) for target in targets)


@pytest.mark.gpu
def test_cupy_takes_the_same(burn):
    import cupy

    one = burn.KernelBurn(cupy, 0, small_work(burn))
    assert run_twice(one) == set()
    wrong = small_work(burn)
    wrong[0] = dataclasses.replace(wrong[0], expected=wrong[0].expected + 1)
    assert run_twice(burn.KernelBurn(cupy, 0, wrong)) == {"mul_c"}
