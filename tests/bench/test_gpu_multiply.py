"""What the GPU benchmarks do without a GPU: their arithmetic, their rows, and that they say what is missing."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path, PurePosixPath
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tests.bench.conftest import BENCH


@pytest.fixture
def multiply(bench) -> ModuleType:
    return bench("gpu_multiply")


@pytest.fixture
def ways(bench) -> ModuleType:
    return bench("gpu_multiply_ways")


@pytest.fixture
def gpu_machine(bench) -> ModuleType:
    return bench("gpu_machine")


def test_nothing_of_a_gpu_is_imported_at_first():
    code = "import gpu_multiply, sys; sys.exit(any(name in sys.modules for name in ('cupy', 'torch', 'nnlib')))"
    subprocess.run([sys.executable, "-c", code], cwd=BENCH, env={"PYTHONPATH": str(BENCH)}, check=True)


def test_without_cupy_it_says_so(monkeypatch, multiply, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert multiply.main(["--quick"]) == 75
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gpu_multiply: CuPy is missing")


@pytest.mark.parametrize(("count", "reason"), [(0, "CUDA finds no GPU"), (None, "no GPU can be used: no driver")])
def test_without_a_gpu_it_says_so(monkeypatch, multiply, capsys, count, reason):
    def devices() -> int:
        if count is None:
            raise OSError("no driver")
        return count

    runtime = SimpleNamespace(getDeviceCount=devices, CUDARuntimeError=OSError)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    assert multiply.main([]) == 75
    assert capsys.readouterr().err == f"gpu_multiply: {reason}\n"


def test_a_call_reads_and_writes_four_bytes_a_float(multiply):
    assert multiply.bandwidth(1000, 1e-6) == pytest.approx(8e9)


def test_arrays_take_at_most_four_gigabytes_or_half_of_the_memory(multiply):
    large, small = 140 << 30, 2 << 30
    assert [multiply.arrays_of(n, large) for n in multiply.Sizes().floats] == [128] * 7 + [64, 16]
    assert multiply.arrays_of(64 << 20, small) == 4
    assert multiply.arrays_of(64 << 20, 1 << 20) == 2
    for n in multiply.Sizes().floats:
        for memory in (large, small):
            assert 4 * n * multiply.arrays_of(n, memory) <= min(4 << 30, memory // 2)


def test_large_arrays_are_multiplied_less_often(multiply):
    sizes = multiply.Sizes()
    assert multiply.passes_of(1 << 10, 128, sizes) == sizes.passes
    assert multiply.passes_of(64 << 20, 16, sizes) == 25
    assert multiply.passes_of(1 << 40, 128, sizes) == 1


def test_sizes_in_short(multiply):
    assert [multiply.label(n) for n in (1000, 1 << 10, 256 << 10, 1 << 20, 64 << 20)] == [
        "1000",
        "1K",
        "256K",
        "1M",
        "64M",
    ]


def test_ways_are_measured_in_turn_and_give_medians(multiply):
    calls: list[str] = []
    found = {
        "a": iter([multiply.Times(3, 30), multiply.Times(1, 10), multiply.Times(2, 90)]),
        "b": iter([multiply.Times(5, 5)] * 3),
    }

    def sample(way: str):
        calls.append(way)
        return next(found[way])

    medians = multiply.medians({"one": "a", "other": "b"}, 3, sample)
    assert medians == {"one": multiply.Times(2, 30), "other": multiply.Times(5, 5)}
    assert calls == ["a", "b"] * 3


def lines(multiply, **seconds: float) -> list:
    """Return lines of arrays of 1,024 floats by way and seconds of a call."""
    times = {way: multiply.Times(value, value / 2) for way, value in seconds.items()}
    return [multiply.Line(way, 1024, 128, True, found, 1e9) for way, found in times.items()]


def test_rows_set_ours_beside_those_that_were_measured(multiply):
    measured = lines(multiply, mul_c=4e-6, NPP=8e-6, multi_mul_c=1e-6)
    rows = {row.workload.partition(": ")[2]: row for row in multiply.rows_of(measured)}
    assert list(rows) == [
        "mul_c (peer: NPP)",
        "multi_mul_c (peer: mul_c)",
        "mul_c, bandwidth (peer: a copy)",
    ]
    row = rows["mul_c (peer: NPP)"]
    assert row.workload.startswith("data[i] *= c, 128 arrays of 1K floats (in L2): ")
    assert (row.ours, row.peer, row.ratio) == (pytest.approx(250_000), pytest.approx(125_000), pytest.approx(2))
    assert rows["mul_c, bandwidth (peer: a copy)"].ours == pytest.approx(8 * 1024 / 2e-6 / 1e9)
    assert rows["mul_c, bandwidth (peer: a copy)"].peer == pytest.approx(1)


def test_table_has_every_way(multiply):
    text = multiply.table(lines(multiply, mul_c=4e-6, copy=2e-6)).splitlines()
    assert text[0].split()[:4] == ["floats", "arrays", "way", "calls/s"]
    assert [line.split()[:6] for line in text[1:]] == [
        ["1K", "in", "L2", "128", "mul_c", "250,000"],
        ["1K", "in", "L2", "128", "copy", "500,000"],
    ]


def test_everything_measured_is_kept(multiply):
    kept = json.loads(json.dumps(multiply.to_keep(lines(multiply, mul_c=4e-6), {"NPP": "why"}, {"GPU": "name"})))
    assert kept["bench"] == "gpu_multiply"
    assert kept["gpu"] == {"GPU": "name"}
    assert kept["not measured"] == {"NPP": "why"}
    assert kept["lines"][0]["times"] == {"host": 4e-6, "device": 2e-6}
    assert len(kept["rows"]) == 1


def test_what_multiplies_wrongly_or_is_missing_is_not_measured(monkeypatch, multiply):
    def wrong(data):
        def way() -> None:
            data.arrays[0][:] = 0

        return way

    def missing(data):
        raise multiply.NotMeasuredError("not installed")

    def right(data):
        def way() -> None:
            for array in data.arrays:
                np.multiply(array, multiply.C, out=array)

        return way

    monkeypatch.setattr(multiply, "WAYS", {"right": right, "wrong": wrong, "missing": missing})
    data, absent = multiply.Set([np.ones(8, np.float32) for _ in range(3)], 8, None), {}
    assert [name for name, _ in multiply._prepared(data, absent)] == ["right"]
    assert absent == {"wrong": "gives other numbers than NumPy", "missing": "not installed"}


def test_no_measurement_leaves_the_finite_numbers(multiply):
    sizes = multiply.Sizes()
    times = (sizes.rounds + 2) * sizes.passes * len(multiply.WAYS)
    assert float(multiply.C) ** times < 1.01


def test_grid_covers_small_arrays_and_has_an_end(ways):
    assert [ways.blocks(n) for n in (0, 1, 1024, 1025)] == [1, 1, 1, 2]
    assert ways.blocks(1 << 40) == ways.MOST_BLOCKS


def test_context_of_npp_is_laid_out_as_in_its_header(ways):
    offsets = {name: getattr(ways.StreamContext, name).offset for name, _ in ways.StreamContext._fields_}
    assert offsets == {
        "stream": 0,
        "device": 8,
        "multiprocessors": 12,
        "threads_of_multiprocessor": 16,
        "threads_of_block": 20,
        "shared_of_block": 24,
        "major": 32,
        "minor": 36,
        "stream_flags": 40,
        "reserved": 44,
    }
    assert ctypes.sizeof(ways.StreamContext) == 48


class Installed(PurePosixPath):
    def locate(self) -> str:
        return f"/somewhere/{self}"


def test_npp_is_that_of_the_cuda_version(monkeypatch, ways):
    def files(package: str) -> list[Installed]:
        if package == "nvidia-npp":
            raise ways.metadata.PackageNotFoundError(package)
        return [Installed("nvidia/npp/lib/libnppc.so.12"), Installed("nvidia/npp/lib/libnpps.so.12")]

    monkeypatch.setattr(ways.metadata, "files", files)
    assert ways.npp_library(12) == Path("/somewhere/nvidia/npp/lib/libnpps.so.12")
    with pytest.raises(ways.NotMeasuredError, match="nvidia-npp is not installed"):
        ways.npp_library(13)
    monkeypatch.setattr(ways.metadata, "files", lambda package: [])
    with pytest.raises(ways.NotMeasuredError, match=r"nvidia-npp has no libnpps\.so\.13"):
        ways.npp_library(13)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        (None, "no driver with a GPU is loaded"),
        ("EnableMSI: 1\nCheckPCIConfigSpace: 0\n", "0"),
        ('EnableMSI: 1\nRegistryDwords: ""\nSomething\n', "not a parameter of this driver"),
    ],
)
def test_pci_check_as_the_driver_says(tmp_path, gpu_machine, params, said):
    if params is not None:
        file = tmp_path / "proc/driver/nvidia/params"
        file.parent.mkdir(parents=True)
        file.write_text(params)
    assert gpu_machine.pci_check(tmp_path) == said


def test_hypervisor_as_the_machine_says(tmp_path, gpu_machine):
    assert gpu_machine.hypervisor(tmp_path) == "no cpuinfo flags"
    texts = {
        "sys/hypervisor/type": "xen\n",
        "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
        "sys/class/dmi/id/product_name": "g2.2xlarge\n",
        "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu sse hypervisor\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert gpu_machine.hypervisor(tmp_path) == "xen, Amazon EC2, g2.2xlarge, virtual"
    (tmp_path / "proc/cpuinfo").write_text("flags: fpu sse\n")
    assert gpu_machine.hypervisor(tmp_path).endswith("no hypervisor flag")
