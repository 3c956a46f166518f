"""What a job and its ranks say to each other: messages over a stream socket, each a JSON header and raw arrays.

A message begins with PREFIX; then come the header, `[operation, fields, [[name, type, shape], ...]]`, and the bytes of
the arrays in that order. A file descriptor may go along. Both ends are of one nnlib, so there are no versions; what is
checked is that the stream is in step.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

PREFIX = struct.Struct("<4sIQ")  # MAGIC, bytes of the header, bytes of the arrays
MAGIC = b"rank"
MOST_HEADER = 1 << 28  # bytes; a header is a few kilobytes, or the names of many layers
TICK = 0.1  # seconds between two looks at whoever is waited for
KINDS = "biuf"  # of numbers that travel
SILENT = "go"  # the operation that the first rank alone answers when it is done; others only what has failed
NOTHING: Mapping[str, Any] = {}

T = TypeVar("T")


class GoneError(Exception):
    """The other end is not there any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What was said: an operation, plain values, arrays; `shared` is a file descriptor that the receiver closes."""

    operation: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    shared: int | None = None


class Channel:
    """One end of a socket pair. While it waits `idle` is called every TICK seconds, and may raise."""

    def __init__(self, end: socket.socket, idle: Callable[[], None] | None = None) -> None:
        self._end, self._idle = end, idle
        end.settimeout(TICK if idle else None)

    def close(self) -> None:
        """Let the other end know that nothing more comes."""
        self._end.close()

    def send(
        self,
        operation: str,
        fields: Mapping[str, Any] = NOTHING,
        arrays: Mapping[str, NDArray[Any]] = NOTHING,
        shared: int | None = None,
    ) -> None:
        """Say something; GoneError when nobody is there."""
        flat = [(name, np.ascontiguousarray(array)) for name, array in arrays.items()]
        about = [[name, array.dtype.str, array.shape] for name, array in flat]
        size = sum(array.nbytes for _, array in flat)
        self._write(memoryview(pack(operation, fields, about, size)), shared)
        for _, array in flat:
            self._write(view_bytes(array))

    def tell(self, message: bytes) -> None:
        """Say what `pack` made, as is said again and again; GoneError when nobody is there."""
        self._write(memoryview(message))

    def receive(self) -> Message:
        """Wait for what is said next; GoneError when nothing comes any more, RuntimeError for what is no message."""
        prefix, shared = self._begin()
        magic, length, size = PREFIX.unpack(prefix)
        if magic != MAGIC or length > MOST_HEADER:
            raise RuntimeError(f"a message of ranks begins with {bytes(prefix[:8])!r}")
        header = bytearray(length)
        self._read(memoryview(header))
        operation, fields, about = json.loads(header)
        arrays = {name: _empty(kind, shape, size) for name, kind, shape in about}
        if sum(array.nbytes for array in arrays.values()) != size:
            raise RuntimeError(f"a message of ranks, {operation}: its arrays do not have the {size} bytes that follow")
        for array in arrays.values():
            self._read(view_bytes(array))
        return Message(operation, fields, arrays, shared)

    def _begin(self) -> tuple[bytes, int | None]:
        """Return the prefix of a message, and the file descriptor that came with its first byte."""
        first, shared, _, _ = self._patiently(socket.recv_fds, self._end, PREFIX.size, 1)
        if not first:
            raise GoneError
        rest = bytearray(PREFIX.size - len(first))
        self._read(memoryview(rest))
        return first + bytes(rest), shared[0] if shared else None

    def _write(self, data: memoryview, shared: int | None = None) -> None:
        while data:
            if shared is None:
                sent = self._patiently(self._end.send, data)
            else:
                sent = self._patiently(socket.send_fds, self._end, [data], [shared])
            data, shared = data[sent:], None

    def _read(self, data: memoryview) -> None:
        while data:
            count = self._patiently(self._end.recv_into, data)
            if not count:
                raise GoneError
            data = data[count:]

    def _patiently(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return what a call of the socket gives, however long it takes; GoneError when the other end is not there."""
        while True:
            try:
                return call(*arguments)
            except TimeoutError:
                if self._idle is not None:
                    self._idle()
            except ConnectionError as error:
                raise GoneError from error


def pack(operation: str, fields: Mapping[str, Any] = NOTHING, about: Sequence[Any] = (), size: int = 0) -> bytes:
    """Return the beginning of a message, or one without arrays; `about` says what arrays of `size` bytes follow."""
    header = json.dumps([operation, dict(fields), about]).encode()
    return PREFIX.pack(MAGIC, len(header), size) + header


def view_bytes(array: NDArray[Any]) -> memoryview:
    """Return the bytes of a row-contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data


def _empty(kind: str, shape: list[int], most: int) -> NDArray[Any]:
    """Return room for an array of numbers, of so many bytes at most."""
    dtype = np.dtype(kind)
    if dtype.kind not in KINDS or math.prod(shape) * dtype.itemsize > most:
        raise RuntimeError(f"a message of ranks has an array of type {kind} and shape {shape}")
    return np.empty(shape, dtype)
