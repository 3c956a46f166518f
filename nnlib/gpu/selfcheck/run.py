"""All kernels beside their references, and cuDNN where it is asked for; a few seconds of work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnlib.engines import Difference, KernelCheck
from nnlib.errors import MachineError
from nnlib.gpu.kernels import read_signatures
from nnlib.gpu.runtime import Array, Runtime
from nnlib.gpu.selfcheck import convolutions, elementwise, inputs, layers, maps, outputs
from nnlib.gpu.selfcheck.by_cudnn import check_cudnn
from nnlib.gpu.selfcheck.case import Case


def cases() -> Iterator[Case]:
    """Yield at least one case for every kernel."""
    for module in (elementwise, layers, outputs, inputs, convolutions, maps):
        yield from module.cases()


def check_kernels(runtime: Runtime, seconds: float) -> KernelCheck:
    """Run every case once, for so many seconds at most; what a GPU does after it has failed says nothing."""
    started, failure = time.perf_counter(), ""
    seen: dict[str, list[Difference]] = {}
    with runtime.faults():
        facts = runtime.versions | runtime.device
    for case in cases():
        if time.perf_counter() - started > seconds:
            break
        try:
            with runtime.faults():
                found = launch(runtime, case)
        except MachineError as error:
            failure = f"{case.kernel}: {error}"
            break
        seen.setdefault(case.kernel, []).extend(case.differences(found))
    if runtime.cudnn is not None and not failure:
        try:
            with runtime.faults():
                for name, differences in check_cudnn(runtime):
                    seen.setdefault(name, []).extend(differences)
        except MachineError as error:
            failure = f"cuDNN: {error}"
        facts |= runtime.cudnn.versions
    runtime.close()
    return KernelCheck(
        facts,
        [name for name, differences in seen.items() if not differences],
        {name: differences for name, differences in seen.items() if differences},
        [name for name in read_signatures() if name not in seen],
        failure,
        time.perf_counter() - started,
    )


def launch(runtime: Runtime, case: Case) -> dict[str, Any]:
    """Return what the arrays that matter hold after a launch, by the name of the argument."""
    held: list[Array] = []  # until the launch is over

    def sent(values: Any) -> Array:
        array = runtime.zeros(values.shape, values.dtype)
        runtime.upload(array, values)
        held.append(array)
        return array

    given: dict[str, Any] = {}
    for name, value in case.arguments.items():
        several = isinstance(value, list)
        given[name] = (
            [sent(one) for one in value] if several else sent(value) if isinstance(value, np.ndarray) else value
        )
    arrays = {name: value for name, value in given.items() if isinstance(value, list)}
    pointers = {name: sent(np.array([one.data.ptr for one in some], np.uint64)) for name, some in arrays.items()}
    names = [name for name, _ in read_signatures()[case.kernel].parameters]
    runtime.launch(case.kernel, case.grid, *((given | pointers)[name] for name in names))
    return {
        name: [runtime.download(one) for one in given[name]] if name in arrays else runtime.download(given[name])
        for name in case.wanted
    }
