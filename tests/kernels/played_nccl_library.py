"""NCCL as CuPy loads it: a library with NVIDIA's prototypes, whose calls go to played_nccl.py. See played_cuda.py."""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.kernels import played_nccl

LIBRARY = "libnccl.so.2"
FAILED = 3  # ncclInternalError
# As nccl.h declares them, but for the identity, which comes by value. Whatever else CuPy's module needs refuses.
PROTOTYPES = {
    "ncclSend": "void* buffer, size_t count, int type, int peer, void* comm, void* stream",
    "ncclRecv": "void* buffer, size_t count, int type, int peer, void* comm, void* stream",
    "ncclAllGather": "void* given, void* taken, size_t count, int type, void* comm, void* stream",
    "ncclGroupStart": "",
    "ncclGroupEnd": "",
    "ncclCommDestroy": "void* comm",
    "ncclGetUniqueId": "void* identity",
    "join": "void** comm, int ranks, void* identity, int rank",
}
TEXT = """
typedef struct { char internal[128]; } ncclUniqueId;
int ncclCommInitRankConfig(void** comm, int ranks, ncclUniqueId identity, int rank, void* config)
{ return played_join(comm, ranks, &identity, rank); }
const char* ncclGetErrorString(int status) { return status ? "played: it would fail or hang" : "no error"; }
int ncclGetVersion(int* version) { *version = 22703; return 0; }
"""
C_TYPES = {"size_t": ctypes.c_size_t, "int": ctypes.c_int}
_made: dict[int, played_nccl.NcclCommunicator] = {}
_kept: list[Any] = []


def _join(place: int, ranks: int, identity: int, rank: int) -> None:
    known = ctypes.string_at(identity, played_nccl.IDENTITY)
    communicator = played_nccl.NcclCommunicator(ranks, known, rank)
    _made[id(communicator)] = communicator
    ctypes.c_void_p.from_address(place).value = id(communicator)


def _identity(place: int) -> None:
    ctypes.memmove(place, played_nccl.get_unique_id(), played_nccl.IDENTITY)


WORKS: dict[str, Callable[..., Any]] = {
    "ncclSend": lambda at, count, kind, peer, comm, stream: _made[comm].send(at, count, kind, peer, stream),
    "ncclRecv": lambda at, count, kind, peer, comm, stream: _made[comm].recv(at, count, kind, peer, stream),
    "ncclAllGather": lambda at, to, count, kind, comm, stream: _made[comm].allGather(at, to, count, kind, stream),
    "ncclGroupStart": played_nccl.groupStart,
    "ncclGroupEnd": played_nccl.groupEnd,
    "ncclCommDestroy": lambda comm: _made.pop(comm) and None,
    "ncclGetUniqueId": _identity,
    "join": _join,
}


def install(device: Any) -> None:
    """Make and load the library, before CuPy asks for NCCL; who asks for it by its name gets this one."""
    lines = ["#include <stddef.h>"]
    for name, prototype in PROTOTYPES.items():
        names = ", ".join(re.findall(r"(\w+)(?:,|$)", prototype))
        lines.append(f"int (*played_{name})({prototype});")
        if name != "join":
            lines.append(f"int {name}({prototype}) {{ return played_{name}({names}); }}")
    text = "\n".join([*lines, TEXT])
    others = [name for name in _wanted() if not re.search(rf"\b{name}\(", text)]
    text += "\n".join(f"int {name}(void) {{ return {FAILED}; }}" for name in others)
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "nccl.c", Path(folder) / LIBRARY
        source.write_text(text, encoding="utf-8")
        subprocess.run(["gcc", "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", source, "-o", path], check=True)
        library = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    for name, prototype in PROTOTYPES.items():
        types = [C_TYPES.get(part.split()[0], ctypes.c_void_p) for part in prototype.split(", ") if part]
        function = ctypes.CFUNCTYPE(ctypes.c_int, *types)(_status(device, name))
        ctypes.c_void_p.in_dll(library, f"played_{name}").value = ctypes.cast(function, ctypes.c_void_p).value
        _kept.append(function)


def _status(device: Any, name: str) -> Any:
    def called(*arguments: int) -> int:
        try:
            WORKS[name](*arguments)
        except Exception as error:
            device.failures.append(f"{name}{arguments}: {type(error).__name__}: {error}")
            return FAILED
        return 0

    return called


def _wanted() -> list[str]:
    """Return what CuPy's module takes from NCCL."""
    found = find_spec("cupy_backends")
    assert found and found.submodule_search_locations
    [module] = Path(found.submodule_search_locations[0]).glob("cuda/libs/nccl.*.so")
    done = subprocess.run(["nm", "-D", "--undefined-only", module], capture_output=True, text=True, check=True)
    return re.findall(r"\b(nccl\w+)", done.stdout)
