"""Which device computes, and everything that a user does, on a GPU that a stand-in plays."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from nnlib import cli, devices
from nnlib.api.network import Network
from nnlib.api.predictor import Predictor
from nnlib.api.trainer import Trainer
from nnlib.errors import MachineError, NnlibError
from nnlib.gpu import kernels, runtime
from nnlib.gpu.backend import Gpu
from nnlib.gpu.maps import cudnn
from nnlib.worker import main
from tests.kernels.standin import Cupy, Products
from tests.nnlib.samples import random_matrix

RAW = {
    "Layers": [
        {"Name": "I", "N": "auto", "DataSet": "input"},
        {"Kind": "Hidden", "Name": "H", "N": 8, "Activation": "Tanh", "pDropout": 0.2},
        {"Kind": "Output", "Name": "O", "N": "auto", "DataSet": "input"},
    ]
}
NO_GPU = "no GPU can be used: cudaErrorNoDevice"


class CUDARuntimeError(RuntimeError):
    """As CuPy's."""

    __module__ = "cupy_backends.cuda.api.runtime"


@pytest.fixture
def present(cupy: Cupy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cupy:
    """CuPy is here and has a GPU."""
    monkeypatch.setattr(runtime, "cubin_folder", lambda: tmp_path)
    monkeypatch.setattr(runtime, "_cupy", lambda: cupy)
    monkeypatch.setattr(runtime, "Cublas", Products)
    return cupy


@pytest.fixture
def absent(cupy: Cupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy is here and finds no GPU."""

    def no_device() -> int:
        raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")

    cupy.is_available = lambda: False
    cupy.cuda.runtime.getDeviceCount = no_device
    monkeypatch.setattr(runtime, "_cupy", lambda: cupy)


@pytest.mark.usefixtures("present")
def test_a_gpu_is_used_where_there_is_one(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    assert [devices.choose_device(name) for name in devices.DEVICES] == ["gpu", "cpu", "gpu"]
    monkeypatch.setenv("NNLIB_DEVICE", "CPU")
    assert [devices.choose_device(name) for name in devices.DEVICES] == ["cpu", "cpu", "gpu"]
    assert (devices.backend_of("gpu"), devices.backend_of("cpu")) == ("cupy", devices.select.NAME)


@pytest.mark.usefixtures("absent")
def test_processors_are_used_where_there_is_none(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: object())
    assert devices.choose_device("auto") == "cpu"
    with pytest.raises(MachineError, match=f"{NO_GPU}.*nvidia-smi"), devices.open_device("gpu", 1):
        pass


def test_a_broken_cupy_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    runtime._cupy.cache_clear()
    try:
        assert not runtime.usable()
        with pytest.raises(MachineError, match=r"no GPU can be used: .*cupy.*; install regiondag\[gpu-cuda13\]"):
            runtime.Runtime.open()
    finally:
        runtime._cupy.cache_clear()


def test_precisions_of_a_gpu(cupy):
    backend = Gpu(cupy.runtime())
    found = [backend.choose_precision(name) for name in ("float32", "tf32", "bf16", "auto")]
    assert found == ["float32", "tf32", "bf16", "tf32"]
    assert devices.precision_note("gpu", "auto") == "precision auto is tf32 on GPUs from compute capability 8.0 on"
    assert devices.precision_note("gpu", "bf16") == ""


def test_precisions_of_an_older_gpu(cupy):
    backend = Gpu(cupy.runtime())
    backend.device = {"name": "T4", "compute_capability": "7.5"}
    assert [backend.choose_precision(name) for name in ("float32", "tf32", "auto")] == ["float32", "tf32", "float32"]
    wanted = "precision: bf16 is not legal on T4, compute capability 7.5, but from 8.0 on; legal here: float32 and auto"
    with pytest.raises(NnlibError, match=wanted):
        backend.choose_precision("bf16")


@pytest.mark.parametrize("home", ["/proc/none", None])
def test_cupy_gets_a_folder_where_there_is_no_home(monkeypatch, tmp_path, home):
    """HTCondor's jobs often have none, and CuPy makes a folder there when it is imported."""
    monkeypatch.setenv("_CONDOR_SCRATCH_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    monkeypatch.setenv("CUPY_CACHE_DIR", "")
    monkeypatch.delenv("CUPY_CACHE_DIR")
    monkeypatch.setenv("HOME", home or str(tmp_path / "home"))
    kernels.prepare_cupy()
    folder = os.environ.pop("CUPY_CACHE_DIR", None)
    assert (folder is not None and Path(folder).parent == tmp_path) == (home is not None)
    assert kernels.cubin_folder().parent == tmp_path


def test_kernels_are_compiled_once(cupy, tmp_path, monkeypatch):
    path = kernels.ensure_cubin(cupy, "reduce", tmp_path)
    monkeypatch.delattr(cupy.cuda, "compiler")
    assert kernels.ensure_cubin(cupy, "reduce", tmp_path) == path
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
    with pytest.raises(AttributeError):
        kernels.ensure_cubin(cupy, "gather", tmp_path)


def test_a_library_that_is_missing_is_told_on_one_line(monkeypatch):
    def incomplete() -> None:
        raise ImportError('Failure finding "libcublasLt.so.13"\nlistdir("nvidia/cu13/lib"):\n  libnvrtc.so.13')

    monkeypatch.setattr(runtime, "_cupy", incomplete)
    said = r'no GPU can be used: Failure finding "libcublasLt\.so\.13"; install regiondag\[gpu-cuda13\] [^\n]*$'
    with pytest.raises(MachineError, match=said):
        runtime.Runtime.open()


def test_a_gpu_that_is_busy(present, monkeypatch):
    def busy(**_: object) -> None:
        raise CUDARuntimeError("cudaErrorDevicesUnavailable: all are busy")

    monkeypatch.setattr(present.cuda, "Stream", busy)
    assert not runtime.usable()
    with pytest.raises(MachineError, match=r"no GPU can be used: cudaErrorDevicesUnavailable: all are busy$"):
        runtime.Runtime.open()


@pytest.mark.usefixtures("present")
def test_a_gpu_whose_convolutions_are_asked_of_what_is_not_legal_or_not_here(monkeypatch):
    """The first is wrong wherever a job runs, the second on this machine; neither says that there is no GPU."""
    monkeypatch.setenv(cudnn.VARIABLE, "fast")
    with pytest.raises(NnlibError, match=r"^NNLIB_CONVOLUTIONS: 'fast' is not legal") as wrong:
        runtime.Runtime.open()
    assert not isinstance(wrong.value, MachineError)
    monkeypatch.setenv(cudnn.VARIABLE, cudnn.CUDNN)
    monkeypatch.setattr(cudnn, "LIBRARY", "libcudnn.so.none")
    with pytest.raises(MachineError, match=r"^NNLIB_CONVOLUTIONS is cudnn, and "):
        runtime.Runtime.open()


def test_illegal_devices(monkeypatch):
    with pytest.raises(NnlibError, match="device: 'tpu' is not legal, legal: auto, cpu, gpu"):
        Trainer(Network.from_json(RAW), device="tpu")
    monkeypatch.setenv("NNLIB_DEVICE", "tpu")
    with pytest.raises(NnlibError, match="NNLIB_DEVICE: 'tpu' is not legal, legal: auto, cpu, gpu"):
        devices.choose_device("auto")


@pytest.mark.usefixtures("present")
def test_from_python():
    x = random_matrix(60, 30, 1)
    settings = {"epochs": 3, "batch": 16, "learning_rate": 0.01, "optimizer": "momentum"}
    found = {}
    for device in ("cpu", "gpu"):
        network = Trainer(Network.from_json(RAW), device=device, **settings).fit(x, valid=x, metric="p@3")
        predictor = Predictor(network, device=device)
        found[device] = (
            *predictor.top_k(x, k=5),
            predictor.outputs(x),
            predictor.embed(x, "H"),
            network.weights("I", "H"),
        )
    for one, other in zip(found["gpu"], found["cpu"], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("present")
def test_an_example_that_is_not_finite_is_named():
    x = random_matrix(300, 30, 1)
    network = Trainer(Network.from_json(RAW), epochs=1, device="cpu").fit(x)
    assert network.model is not None
    table = x.toarray()
    unit = int(np.flatnonzero(table[280])[0])
    first = int(np.flatnonzero(table[:, unit])[0])
    network.model.network.stores[0][unit] = np.nan
    with pytest.raises(NnlibError, match=f'^example {first}: an output of layer "O" is not a finite number'):
        Predictor(network, device="gpu").top_k(x, k=5)


@pytest.mark.usefixtures("present")
def test_the_commands(tmp_path, make_trial, capsys):
    folder = make_trial().parent
    data, model = str(folder / "held.nc"), str(tmp_path / "model.nc")
    network = str(folder / "network.json")
    options = ["--set", "denoising=0.2", "--set", "hidden=8", "--epochs", "2", "--device", "gpu"]
    assert cli.main(["train", network, str(folder / "train.nc"), "--out", model, "--verbose", *options]) == 0
    assert "backend cupy" in capsys.readouterr().err
    found = {}
    for device in ("cpu", "gpu"):
        results = tmp_path / f"{device}.json"
        assert cli.main(["evaluate", model, data, "--json", str(results), "--device", device]) == 0
        assert cli.main(["predict", model, data, "-k", "3", "--out", str(tmp_path / device), "--device", device]) == 0
        metrics = json.loads(results.read_text())["metrics"]
        found[device] = {name: one["value"] for name, one in metrics.items()}
    assert found["gpu"] == pytest.approx(found["cpu"], rel=1e-5)
    assert (tmp_path / "gpu").read_text().split()[::4] == (tmp_path / "cpu").read_text().split()[::4]


def job(trial, capsys):
    code = main.train(trial, device="gpu")
    return code, json.loads((trial.parent / "result.json").read_text()), capsys.readouterr().err


@pytest.fixture
def _signals(monkeypatch):
    monkeypatch.setattr(main.signal, "signal", lambda *_: None)


@pytest.mark.usefixtures("present", "_signals")
def test_a_job_on_a_gpu(make_trial, capsys):
    code, result, _ = job(make_trial(), capsys)
    assert (code, result["status"], result["backend"]) == (0, "ok", "cupy")
    assert result["versions"]["gpu"] == "no GPU"
    assert result["versions"]["cuda"] == "13.0"
    gpu = {name: value for name, value in result["gpu"].items() if name != "driver"}  # there may be one
    uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert gpu == {"name": "no GPU", "uuid": uuid, "compute_capability": "9.0", "cuda": "13.0"}


@pytest.mark.usefixtures("absent", "_signals")
def test_a_job_that_wants_a_gpu_and_finds_none(make_trial, capsys):
    code, result, _ = job(make_trial(), capsys)
    assert (code, result["status"]) == (75, "machine")
    assert result["reason"].startswith(NO_GPU)


@pytest.mark.usefixtures("absent", "_signals")
def test_a_job_where_gpus_are_simulated(make_trial, capsys, monkeypatch):
    monkeypatch.setenv("NNLIB_SIMULATED_GPUS", "1")
    code, result, said = job(make_trial(), capsys)
    assert (code, result["backend"]) == (0, devices.select.NAME)
    assert "GPUs are simulated" in said


@pytest.mark.usefixtures("_signals")
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CUDARuntimeError("cudaErrorECCUncorrectable"), "the GPU failed: CUDARuntimeError: cudaErrorECCUncorrectable"),
        (MemoryError("Out of memory allocating 5 bytes"), "the GPU has too little memory: Out of memory"),
    ],
)
def test_a_gpu_that_fails_is_the_machines_fault(present, make_trial, capsys, monkeypatch, error, words):
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(present, "RawModule", fail)
    code, result, _ = job(make_trial(), capsys)
    assert (code, result["status"]) == (75, "machine")
    assert words in result["reason"]
