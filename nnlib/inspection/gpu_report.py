"""`nnlib doctor-gpu`: what was found of a machine's GPUs, as text for people and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

from nnlib.contract import Exit
from nnlib.engines import Difference, KernelCheck
from nnlib.inspection.gpu_machine import GpuMachine
from nnlib.util.columns import fold_text

MOST = 3  # differences of a kernel that are shown


def exit_code(check: KernelCheck | None) -> Exit:
    """Return 0 for kernels that all agree, 1 where some differ, 75 where there is no GPU or not all could be run."""
    if check is None or check.failure:
        return Exit.MACHINE
    if check.differ:
        return Exit.BUG
    return Exit.MACHINE if check.left_out else Exit.OK


def describe(machine: GpuMachine, check: KernelCheck | None, missing: str, room: int) -> str:
    """Return lines of at most `room` columns; `missing` says why no kernel was run."""
    blocks = list(_facts(machine, check))
    blocks.append(("kernels", [f"none was run: {missing}"] if check is None else list(_kernels(check))))
    blocks.append(("what to do", list(machine.advice) or ["nothing"]))
    lines = []
    for title, inside in blocks:
        lines += [title, *(f"  {part}" for line in inside for part in fold_text(line, room - 2, "  ")), ""]
    return "\n".join(lines[:-1])


def _facts(machine: GpuMachine, check: KernelCheck | None) -> Iterator[tuple[str, list[str]]]:
    facts = {"driver": machine.driver or "none"} | dict(check.facts if check else {})
    yield "software", [f"{name}: {value}" for name, value in facts.items()]
    for n, gpu in enumerate(machine.gpus):
        own = [f"{name}: {value}" for name, value in gpu.items() if name not in ("GPU", "driver")]
        yield f"GPU {gpu.get('GPU', n)}", own
    if len(machine.gpus) > 1:
        yield "links between GPUs", list(machine.links) or ["not known"]
    if machine.environment:
        yield "environment", [f"{name}={value}" for name, value in machine.environment.items()]
    if machine.xids:
        yield "errors in the kernel's log, the latest last", list(machine.xids)


def _kernels(check: KernelCheck) -> Iterator[str]:
    count = len(check.agree) + len(check.differ) + len(check.left_out)
    yield f"{len(check.agree)} of {count} agree with NumPy, in {check.seconds:.1f} s"
    for name, differences in check.differ.items():
        for difference in differences[:MOST]:
            yield f"{name} DIFFERS: {_difference(difference)}"
    if check.differ:
        yield (
            "A GPU that is well gives what NumPy gives: run this again. Other numbers each time: the GPU is faulty, or "
            "its clocks are set too high. The same numbers: a bug, please report it with all of this."
        )
    if check.failure:
        yield f"the GPU failed at {check.failure}"
    if check.left_out:
        why = "after it had failed" if check.failure else "in time: something else may use the GPU or this machine"
        yield f"{len(check.left_out)} were not run {why}: {', '.join(check.left_out)}"


def _difference(difference: Difference) -> str:
    return (
        f"{difference.count} of {difference.size} numbers in {difference.array}, the worst at [{difference.place}] is "
        f"{difference.found:.9g}, NumPy's {difference.wanted:.9g}"
    )


def to_json(machine: GpuMachine, check: KernelCheck | None, missing: str) -> str:
    """Return everything; numbers that JSON lacks are texts."""
    kernels = {"missing": missing} if check is None else dataclasses.asdict(check)
    found = {"exit_code": int(exit_code(check)), **dataclasses.asdict(machine), "kernels": kernels}
    return json.dumps(_plain(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return str(value)
    return value
