"""NVRTC, NVIDIA's compiler of CUDA C, from its wheels: machine code without a GPU and without a driver."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

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
    files = metadata.files(WHEELS[major]) or []
    [path] = [Path(str(file.locate())) for file in files if file.name == f"libnvrtc.so.{major}"]
    return ctypes.CDLL(str(path))


def architectures(major: int) -> list[int]:
    """Return what an NVRTC compiles for: 75 is sm_75."""
    count = ctypes.c_int()
    library(major).nvrtcGetNumSupportedArchs(ctypes.byref(count))
    found = (ctypes.c_int * count.value)()
    library(major).nvrtcGetSupportedArchs(found)
    return list(found)


def figures(major: int, architecture: int, text: str, options: tuple[str, ...]) -> dict[str, Figures]:
    """Compile a text to machine code; return what each kernel takes, or raise CompileError."""
    wanted = (*options, f"--gpu-architecture=sm_{architecture}", "--ptxas-options=-v")
    log = _compiled(library(major), text, wanted)
    found: dict[str, Figures] = {}
    for name, stack, spilled, registers, rest in FIGURES.findall(log):
        shared = re.search(r"(\d+) bytes smem", rest)
        found[name] = Figures(int(registers), int(shared[1]) if shared else 0, int(stack), int(spilled))
    return found


def _compiled(nvrtc: ctypes.CDLL, text: str, options: tuple[str, ...]) -> str:
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
