"""HTTP on a socket: uvicorn, with bounds that it lacks. The only module that imports it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regiondag.serve.guard import MOST_HEAD, App, encode
from regiondag.serve.messages import Failure

HEAD_SECONDS = 10.0  # until a connection has sent its next request's headers, once it began
IDLE_SECONDS = 30  # until a connection without a request is closed
DRAIN_SECONDS = 35  # for requests in flight, when the service ends
UNREAD_SECONDS = 30  # until a connection is dropped whose client does not read
MOST_CONNECTIONS = 2000
OTHER_FILES = 200  # that are open besides: models while they are read, libraries, pipes
BACKLOG = 2048


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose headers have to come soon and to be small; how long idle ones may stay is uvicorn's part."""

    def __init__(self, *arguments: Any, most: int, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._most = most  # connections
        self._heading = False  # a request's headers have begun and not ended
        self._head_bytes = 0
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; a client that says nothing gets no more time than one that says half of its headers."""
        super().connection_made(transport)
        if len(self.connections) > self._most:
            self._refuse(503, "too many connections")
            return
        self._late = self.loop.call_later(HEAD_SECONDS, self._time_out)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._on_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a piece; the parser keeps headers for itself until they are whole, so its pieces are counted here."""
        super().data_received(data)
        if not self._heading:
            self._on_time()
            return
        self._head_bytes += len(data)
        if self._head_bytes > 2 * MOST_HEAD:  # the piece before may have had the end of another request
            self._refuse(431, f"the address and the headers are too large, legal: {MOST_HEAD} bytes")
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._time_out)

    def on_message_begin(self) -> None:
        """Note that headers begin."""
        self._heading, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that they have ended."""
        self._heading = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Answer what is no HTTP, as all failures are answered."""
        self._refuse(400, "no legal HTTP request")

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, and at once one whose client has not read its last answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _on_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _time_out(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self._refuse(408, f"no request within {HEAD_SECONDS:.0f} seconds")

    def _refuse(self, status: int, message: str) -> None:
        if self.transport.is_closing():
            return
        body = encode(Failure(status, message))
        head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which end the process by the signal that they got."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


class HttpServer:
    """Serves an application on a socket until `stop` is called, from any thread or a signal's handler."""

    def __init__(self, app: App, listener: socket.socket) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # `Guard` tells what is of interest
        config = uvicorn.Config(
            app,
            http=cast(Any, partial(BoundedProtocol, most=_allow_connections())),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        self._server, self._listener = _Server(config), listener

    def run(self) -> None:
        """Serve; when it is to stop, finish the requests in flight."""
        self._server.run([self._listener])

    def stop(self) -> None:
        """Let `run` end."""
        self._server.should_exit = True


def _allow_connections() -> int:
    """Return how many connections there may be, by the files that this process may open; it takes what it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, soft - OTHER_FILES))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that takes connections from now on; OSError where it cannot."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections have it from here.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
