"""NVRTC, NVIDIA's compiler of CUDA C, from its wheels: machine code without a GPU and without a driver."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from tests.kernels.cache import cached, replaced

Target = tuple[int, int]  # CUDA's major version, and an architecture: 75 is sm_75

# One architecture of each generation from Volta to Blackwell; another one of the same generation differs little.
GENERATIONS: list[Target] = [(12, 70), (13, 75), (13, 80), (13, 89), (13, 90), (13, 100), (13, 120)]
OLDEST = "12.4.127"  # of CUDA 12, the oldest that CuPy's wheels are used with; it knows no Blackwell
OLDEST_ARCHITECTURES = (75, 80, 89, 90)
WHEELS = {12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc"}  # they install into different folders
FIGURES = re.compile(
    r"Compiling entry function '(\w+)' for 'sm_\d+'.*?(\d+) bytes stack frame, (\d+) bytes spill stores.*?"
    r"Used (\d+) registers([^\n]*)",
    re.DOTALL,
)


class CompileError(Exception):
    """The compiler's messages."""


@dataclass(frozen=True)
class Figures:
    """What a kernel takes on one architecture."""

    registers: int  # of a thread
    shared: int  # bytes of a block, without dynamic shared memory
    stack: int  # bytes of a thread, in global memory; with them, spilled registers
    spilled: int


@cache
def library(major: int) -> ctypes.CDLL:
    """Return the newest installed NVRTC of a major version of CUDA."""
    return _load([Path(str(file.locate())) for file in metadata.files(WHEELS[major]) or []], major)


def _load(files: Sequence[Path], major: int) -> ctypes.CDLL:
    for path in files:
        if path.name.startswith("libnvrtc-builtins.so."):
            ctypes.CDLL(str(path))  # 13.0 does not look beside itself, but takes what is loaded
    [path] = [path for path in files if path.name == f"libnvrtc.so.{major}"]
    return ctypes.CDLL(str(path))


def oldest() -> ctypes.CDLL | None:
    """Return the oldest NVRTC, which pip brings into the folder of what is compiled; None where that fails."""
    folder = cached(OLDEST, "")
    if not folder.exists():
        with replaced(folder) as new:
            wanted = f"{WHEELS[12]}=={OLDEST}"
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(new), wanted]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                return None
    return _load(list(folder.rglob("libnvrtc*")), 12)


def figures_with(nvrtc: ctypes.CDLL, text: str, options: Sequence[str], architecture: int) -> dict[str, Figures]:
    """Compile a text with one NVRTC; return what each kernel takes, or raise CompileError."""
    with ThreadPoolExecutor(1) as pool:  # 12.4 leaves the thread's locale at C, and with it ASCII for its files
        return _parse(pool.submit(_compiled, nvrtc, text, _complete(options, architecture)).result())


def _complete(options: Sequence[str], architecture: int) -> tuple[str, ...]:
    return (*options, f"--gpu-architecture=sm_{architecture}", "--ptxas-options=-v")


def version(major: int) -> str:
    """Return the version of an NVRTC."""
    return metadata.version(WHEELS[major])


def architectures(major: int) -> list[int]:
    """Return what an NVRTC compiles for."""
    count = ctypes.c_int()
    library(major).nvrtcGetNumSupportedArchs(ctypes.byref(count))
    found = (ctypes.c_int * count.value)()
    library(major).nvrtcGetSupportedArchs(found)
    return list(found)


def targets() -> list[Target]:
    """Return all supported architectures: those of CUDA 13, and the one that only CUDA 12 knows."""
    return [(12, 70), *((13, architecture) for architecture in architectures(13))]


def figures(text: str, options: Sequence[str], wanted: Sequence[Target]) -> dict[Target, dict[str, Figures]]:
    """Compile a text to machine code for all these targets; return what each kernel takes, or raise CompileError.

    What was compiled before is not compiled again.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(wanted, pool.map(lambda target: _figures(target, text, options), wanted), strict=True))


def _figures(target: Target, text: str, options: Sequence[str]) -> dict[str, Figures]:
    major, architecture = target
    complete = _complete(options, architecture)
    path = cached(repr((text, complete, version(major))), ".json")
    if path.exists():
        os.utime(path)
        return {name: Figures(**raw) for name, raw in json.loads(path.read_text(encoding="utf-8")).items()}
    found = _parse(_compiled(library(major), text, complete))
    with replaced(path) as new:
        new.write_text(json.dumps({name: asdict(one) for name, one in found.items()}), encoding="utf-8")
    return found


def _parse(log: str) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for name, stack, spilled, registers, rest in FIGURES.findall(log):
        shared = re.search(r"(\d+) bytes smem", rest)
        found[name] = Figures(int(registers), int(shared[1]) if shared else 0, int(stack), int(spilled))
    return found


def _compiled(nvrtc: ctypes.CDLL, text: str, options: Sequence[str]) -> str:
    """Compile a text and return the log."""
    program = ctypes.c_void_p()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None):
        raise CompileError("no program")
    try:
        words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        failed = nvrtc.nvrtcCompileProgram(program, len(options), words)
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    if failed:
        raise CompileError(log.value.decode())
    return log.value.decode()
