"""Which device trains and predicts: the processors of this machine, or its GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager

from nnlib.compiled import select
from nnlib.cpu.backend import Cpu
from nnlib.cpu.probe import CpuProbe
from nnlib.cpu.products import describe_precision
from nnlib.engines import Backend, KernelCheck, LocalBackend, Probe
from nnlib.errors import NnlibError
from nnlib.model.examples import Examples
from nnlib.model.network import Network
from nnlib.util.threads import Each, map_in_turn, workers

VARIABLE = "NNLIB_DEVICE"
AUTO, CPU, GPU = "auto", "cpu", "gpu"
DEVICES = (AUTO, CPU, GPU)


def choose_device(device: str, where: str = "device") -> str:
    """Return `cpu` or `gpu`: what is asked for; for `auto` what NNLIB_DEVICE says, else a GPU where there is one."""
    if device not in DEVICES:
        raise NnlibError(f"{where}: {device!r} is not legal, legal: {', '.join(DEVICES)}")
    if device == AUTO:
        device = os.environ.get(VARIABLE, AUTO).lower() or AUTO
        if device not in DEVICES:
            raise NnlibError(f"{VARIABLE}: {device!r} is not legal, legal: {', '.join(DEVICES)}")
    if device != AUTO:
        return device
    if importlib.util.find_spec("cupy") is None:
        return CPU
    from nnlib.gpu.runtime import usable

    return GPU if usable() else CPU


def backend_of(device: str) -> str:
    """Return the name of the backend that a device, `cpu` or `gpu`, computes with."""
    return "cupy" if device == GPU else select.NAME


@contextmanager
def open_device(device: str, threads: int) -> Iterator[tuple[LocalBackend, Each]]:
    """Give what computes, and the threads for what is done beside it. MachineError when there is no usable GPU."""
    with workers(threads) as each:
        if choose_device(device) == CPU:
            yield Cpu(each), each
            return
        from nnlib.gpu.backend import Gpu

        with Gpu.open(threads) as backend:
            yield backend, each


def precision_note(device: str, wanted: str) -> str:
    """Return what a setting `precision` comes to on a device, `cpu` or `gpu`, in words; empty where it says so."""
    if device == CPU:
        return describe_precision(wanted.lower())
    return "precision auto is tf32 on GPUs from compute capability 8.0 on" if wanted.lower() == "auto" else ""


def check_gpu(seconds: float) -> KernelCheck:
    """Run each kernel beside its reference on this process' GPU, for so many seconds at most; MachineError for none."""
    from nnlib.gpu.runtime import Runtime
    from nnlib.gpu.selfcheck.run import check_kernels

    return check_kernels(Runtime.open(), seconds)


def processors(each: Each = map_in_turn) -> Backend:
    """Return what computes on this machine's processors, whatever else it has."""
    return Cpu(each)


def make_probe(network: Network, examples: Examples, seed: int = 1) -> Probe:
    """Return what checks gradients, which only the processors compute in double precision."""
    return CpuProbe(network, examples, seed)
