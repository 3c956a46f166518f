"""A stand-in for Amazon's time service: answers SNTP (RFC 4330) with this machine's time, and counts who asked."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Self

ADDRESS = "169.254.169.123"
PORT = 123
SINCE_1900 = 2_208_988_800  # seconds to 1970
REQUEST_BYTES = 48
# No leap second ahead, version 4, a server; stratum 1, a poll every 16 s, precision 2^-20 s; root delay and dispersion.
HEAD = struct.pack("!BBbb II 4s", 0o44, 1, 4, -20, 0, 0, b"TEST")


def answer(request: bytes, now: float) -> bytes:
    """Return the answer to a client's request at a Unix time; nothing for what is none."""
    if len(request) < REQUEST_BYTES or request[0] & 7 != 3:  # 3: a client
        return b""
    stamp = _stamp(now)
    return HEAD + stamp + request[40:48] + stamp + stamp


def _stamp(now: float) -> bytes:
    seconds = int(now)
    return struct.pack("!II", (seconds + SINCE_1900) % 2**32, int((now - seconds) * 2**32))


class TimeServer:
    """The service at `address`:`port` (0: any that is free), within `with`."""

    def __init__(self, address: str = ADDRESS, port: int = PORT) -> None:
        """Take the address."""
        self.asked = 0  # requests that were answered
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.settimeout(0.2)
        self._socket.bind((address, port))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._socket.getsockname()
        return str(host), int(port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            try:
                request, client = self._socket.recvfrom(1024)
            except TimeoutError:
                continue
            if said := answer(request, time.time()):
                self._socket.sendto(said, client)
                self.asked += 1
