"""Kernels compiled by g++ behind cuda_host.h, as functions that check their arguments: see host.py."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nnlib.gpu.kernels import source
from tests.kernels.cache import cached, replaced

SHIM = Path(__file__).with_name("cuda_host.h")
FLAGS = ("-O2", "-std=c++17", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-gnu-unique", "-fvisibility=hidden")
WARNINGS = ("-Wall", "-Wno-sign-compare", "-Wno-unused", "-Wno-unknown-pragmas", "-Werror")
SANITIZE = ("-fsanitize=undefined,float-cast-overflow", "-fno-sanitize=vptr", "-fno-sanitize-recover=all")
POISON = 0x7FFCDEAD  # as in cuda_host.h: NaN as float32, two of them NaN as float64, a huge number as an int

# What may be passed by value, and what arrays hold, by C type.
SCALARS: dict[str, type[np.generic]] = {
    "int": np.int32,
    "unsigned int": np.uint32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "double": np.float64,
}
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
KERNEL = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)')
DYNAMIC = re.compile(r"extern\s+__shared__\s+([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")

ORDERS = FORWARDS, BACKWARDS, MIXED = range(3)  # as in cuda_host.h
Extent = Sequence[int]  # of a grid or a block: one to three numbers


class KernelError(AssertionError):
    """A kernel did what it must not do."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: `type` is the C type without const, and without the last * of a pointer."""

    name: str
    declared: str
    type: str
    pointer: bool
    constant: bool  # the kernel does not write through it

    @staticmethod
    def parse(text: str) -> Parameter:
        words = text.replace("__restrict__", " ").replace("*", " * ").split()
        declared, name = words[:-1], words[-1]
        pointer = "*" in declared
        last = len(declared) - 1 - declared[::-1].index("*") if pointer else len(declared)
        plain = " ".join(word for word in declared[:last] if word != "const").replace(" *", "*")
        innermost = declared[: declared.index("*")] if pointer else []
        return Parameter(name, " ".join(declared), plain, pointer, "const" in innermost)


def signatures(text: str) -> dict[str, list[Parameter]]:
    """Return the kernels of a text with their parameters."""
    found = KERNEL.findall(COMMENT.sub(" ", text))
    return {name: [Parameter.parse(one) for one in inside.split(",") if one.strip()] for name, inside in found}


class Kernel:
    """A kernel that is launched like a cupy.RawKernel."""

    def __init__(self, name: str, parameters: list[Parameter], start: Any) -> None:
        self.name = name
        self.parameters = parameters
        self._start = start

    def __call__(
        self, grid: Extent, block: Extent, args: Sequence[Any], shared_mem: int = 0, order: int = FORWARDS
    ) -> None:
        """Run the kernel on the arrays themselves; `order` is that of the blocks and threads."""
        extents = [_extent(self.name, what, extent) for what, extent in (("grid", grid), ("block", block))]
        if not 0 <= shared_mem <= 48 << 10:
            raise KernelError(f"{self.name}: {shared_mem} bytes of shared memory")
        if len(args) != len(self.parameters):
            raise TypeError(f"{self.name}: {len(args)} arguments for {len(self.parameters)} parameters")
        values = [self._value(*pair) for pair in zip(self.parameters, args, strict=True)]
        pointers = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(value) for value in values])
        message = self._start(*extents, shared_mem, order, pointers)
        if message:
            raise KernelError(f"{self.name}: {message.decode()}")

    def _value(self, parameter: Parameter, arg: Any) -> Any:
        """Return the argument as C data; TypeError if it is not what the parameter takes."""

        def wrong(wanted: str) -> TypeError:
            seen = f"{type(arg).__name__} {getattr(arg, 'dtype', '')}".strip()
            return TypeError(
                f"{self.name}, parameter {parameter.name}: {parameter.declared} needs {wanted}, not {seen}"
            )

        if not parameter.pointer:
            wanted = SCALARS[parameter.type]
            if type(arg) is not wanted:
                raise wrong(f"a {wanted.__name__}")
            return np.ctypeslib.as_ctypes_type(wanted)(arg.item())
        if arg is None:
            return ctypes.c_void_p(0)
        held = np.dtype(SCALARS.get(parameter.type, np.uint64))  # an array of pointers holds addresses
        if getattr(arg, "dtype", held) != held:
            raise wrong(f"an array of {held}")
        if hasattr(arg, "ctypes_pointer"):
            return ctypes.c_void_p(arg.ctypes_pointer)
        if not isinstance(arg, np.ndarray) or not arg.flags.c_contiguous:
            raise wrong("a contiguous array or None")
        if not (parameter.constant or arg.flags.writeable):
            raise wrong("a writable array")
        return ctypes.c_void_p(arg.ctypes.data)


def _extent(kernel: str, what: str, extent: Extent) -> Any:
    """Return a grid or a block as C data; KernelError if CUDA would refuse it."""
    full = (*extent, 1, 1, 1)[:3]
    most = ((1 << 31) - 1, 65535, 65535) if what == "grid" else (1024, 1024, 64)
    fits = 1 <= len(extent) <= 3 and all(1 <= size <= limit for size, limit in zip(full, most, strict=True))
    if not fits or (what == "block" and full[0] * full[1] * full[2] > 1024):
        raise KernelError(f"{kernel}: a {what} of {tuple(extent)}")
    return (ctypes.c_uint * 3)(*full)


class Library:
    """The kernels of a text, compiled for the CPU."""

    def __init__(self, path: Path, text: str) -> None:
        self._loaded = ctypes.PyDLL(str(path))  # keeps Python's lock: a launch uses memory that all launches share
        self.kernels = signatures(text)

    def kernel(self, name: str) -> Kernel:
        """Return a kernel by its name."""
        start = getattr(self._loaded, f"cuda_host_launch_{name}")
        start.restype = ctypes.c_char_p
        start.argtypes = [*[ctypes.c_void_p] * 2, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        return Kernel(name, self.kernels[name], start)


def family(name: str, sanitize: bool | None = None) -> Library:
    """Return a family's kernels."""
    return compiled(source(name), sanitize)


def compiled(text: str, sanitize: bool | None = None, flags: tuple[str, ...] = ()) -> Library:
    """Return the kernels of a text; what was compiled before comes from a folder of ~/.cache."""
    if sanitize is None:
        sanitize = os.environ.get("KERNELS_SANITIZE") == "1"
    return _compiled(text, (*FLAGS, *WARNINGS, *(SANITIZE if sanitize else ()), *flags))


@cache
def _compiled(text: str, flags: tuple[str, ...]) -> Library:
    made = _for_cpu(text)
    library = cached(repr((made, SHIM.read_text(encoding="utf-8"), flags, _compiler())), ".so")
    if library.exists():
        os.utime(library)
    else:
        with replaced(library) as new:
            _build(made, flags, new)
    return Library(library, text)


def _build(made: str, flags: tuple[str, ...], library: Path) -> None:
    text, machine_code = library.with_suffix(".cpp"), library.with_suffix(".o")
    text.write_text(made, encoding="utf-8")
    compile_it = ["g++", *flags, "-fPIC", "-I", SHIM.parent, "-c", text, "-o", machine_code]
    link_it = ["g++", "-shared", machine_code, "-o", library]  # without flags: cuda_host.h is the sanitizer's runtime
    for command in (compile_it, link_it):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise KernelError(done.stderr)


@cache
def _compiler() -> str:
    found = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True)
    return f"{platform.machine()} {found.stdout.splitlines()[0]}"


def _for_cpu(text: str) -> str:
    """Return C++ from a text of kernels: what the preprocessor cannot do, and a way in for each kernel."""
    text = DYNAMIC.sub(r"\1* \2 = __dynamic_shared__(\1);", text)
    inside = text.replace('extern "C" __global__', "__global__")  # `div` is another function in C
    ways_in = "\n".join(_way_in(name, parameters) for name, parameters in signatures(text).items())
    head = f'#include "{SHIM.name}"\nnamespace {{ namespace kernels {{\n#line 1 "kernels"\n'
    return f"{head}{inside}\n}} }}\n{ways_in}\n"


def _way_in(name: str, parameters: list[Parameter]) -> str:
    values = ", ".join(f"*({one.declared}*)args[{number}]" for number, one in enumerate(parameters))
    return (
        f"static void call_{name}(void** args) {{ kernels::{name}({values}); }}\n"
        f'extern "C" __attribute__((visibility("default"))) const char* cuda_host_launch_{name}('
        "const unsigned int* grid, const unsigned int* block, size_t shared, int order, void** args)\n"
        f"{{ return cuda_host::launch(call_{name}, args, grid, block, shared, (cuda_host::Order)order); }}"
    )
