"""A stand-in for EC2's instance metadata service, version 2: a real HTTP server that insists on session tokens.

`regiondag bake test` lets a booted image believe that it is an EC2 instance, and tests ask it for trouble. What it
serves can change while it runs, which is how a spot notice arrives.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

LONGEST_TTL = 21600
IDLE_SECONDS = 10  # a connection that says nothing that long is closed


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """One answered request."""

    method: str
    path: str  # with its version, such as /latest/meta-data/instance-id
    status: int
    tokenless: bool  # asked for metadata without any token, as IMDSv1 did


def make_instance_tree(
    instance_id: str = "i-0123456789abcdef0",
    instance_type: str = "g5.xlarge",
    region: str = "us-east-1",
    address: str = "10.0.2.15",
    mac: str = "52:54:00:12:34:56",
    spot: bool = True,
    tags: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the metadata of an instance, as much of it as cloud-init and a worker ask for."""
    host = f"ip-{address.replace('.', '-')}.ec2.internal"
    document = {"instanceId": instance_id, "region": region, "instanceType": instance_type, "privateIp": address}
    return {
        "meta-data/ami-id": "ami-0123456789abcdef0",
        "meta-data/hostname": host,
        "meta-data/instance-id": instance_id,
        "meta-data/instance-life-cycle": "spot" if spot else "on-demand",
        "meta-data/instance-type": instance_type,
        "meta-data/local-hostname": host,
        "meta-data/local-ipv4": address,
        "meta-data/mac": mac,
        "meta-data/placement/availability-zone": f"{region}a",
        "meta-data/placement/region": region,
        "meta-data/services/domain": "amazonaws.com",
        "dynamic/instance-identity/document": json.dumps(document),
        **{f"meta-data/tags/instance/{name}": value for name, value in (tags or {}).items()},
    }


class MetadataServer:
    """The service at `address`:`port` (0: any that is free), from `with` or `start` on until `stop`."""

    def __init__(
        self,
        tree: Mapping[str, str] | None = None,
        user_data: bytes | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._lock = threading.Lock()
        self._tree = dict(make_instance_tree() if tree is None else tree)
        self._user_data = user_data
        self._tokens: dict[str, float] = {}
        self._requests: list[MetadataRequest] = []
        self._fault: tuple[int | None, float] = (None, 0.0)
        self._disabled = False
        self._ended = threading.Event()
        self._server = _Server((address, port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def endpoint(self) -> str:
        """Where it listens, as a URL without a path."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End it and every connection; no thread is left."""
        self._ended.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()  # waits for the threads of connections

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def set(self, path: str, value: str | None) -> None:
        """Let `path`, such as `meta-data/spot/instance-action`, hold `value`; None removes it."""
        with self._lock:
            if value is None:
                self._tree.pop(path, None)
            else:
                self._tree[path] = value

    def fail(self, status: int | None = None, hang: float = 0.0) -> None:
        """From now on wait `hang` seconds, then answer `status` to everything; without arguments answer as usual."""
        with self._lock:
            self._fault = (status, hang)

    def disable(self, disabled: bool = True) -> None:
        """Answer 403 to everything, as an instance does whose metadata are switched off."""
        self._disabled = disabled

    def revoke(self) -> None:
        """Forget all tokens given out, so that they get a 401."""
        with self._lock:
            self._tokens.clear()

    @property
    def requests(self) -> tuple[MetadataRequest, ...]:
        """All requests answered so far."""
        with self._lock:
            return tuple(self._requests)

    @property
    def asked_without_token(self) -> bool:
        """Whether anybody asked as in version 1, which a real instance of ours would refuse."""
        return any(request.tokenless for request in self.requests)

    def answer(self, method: str, path: str, headers: Message) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers of the answer to a request, and remember it."""
        with self._lock:
            fault, hang = self._fault
        if hang:
            self._ended.wait(hang)
        token = headers.get("X-aws-ec2-metadata-token")
        extra: dict[str, str] = {}
        if fault is not None:
            status, body = fault, b""
        elif self._disabled:
            status, body = 403, b""
        elif method == "PUT":
            status, body, extra = self._make_token(path, headers)
        elif token is None or not self._is_good(token):
            status, body = 401, b""
        else:
            found = self._find(path)
            status, body = (404, b"") if found is None else (200, found)
        with self._lock:
            self._requests.append(MetadataRequest(method, path, status, method != "PUT" and token is None))
        return status, body, extra

    def _make_token(self, path: str, headers: Message) -> tuple[int, bytes, dict[str, str]]:
        name = "X-aws-ec2-metadata-token-ttl-seconds"
        ttl = headers.get(name, "")
        if path != "/latest/api/token":
            return 404, b"", {}
        if "X-Forwarded-For" in headers:  # EC2 takes that for a proxy that somebody left open
            return 403, b"", {}
        if not (ttl.isascii() and ttl.isdigit() and 1 <= int(ttl) <= LONGEST_TTL):
            return 400, b"", {}
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[token] = time.monotonic() + int(ttl)
        return 200, token.encode(), {name: ttl}

    def _is_good(self, token: str) -> bool:
        with self._lock:
            return self._tokens.get(token, 0.0) > time.monotonic()

    def _find(self, path: str) -> bytes | None:
        """Return what is at `path`: a value, or a list of what is below it."""
        version, _, wanted = path.split("?")[0].lstrip("/").partition("/")
        if version != "latest" and not version.startswith("20"):
            return None
        if wanted == "user-data":
            return self._user_data
        with self._lock:
            tree = dict(self._tree)
        if wanted in tree:
            return tree[wanted].encode()
        folder = f"{wanted.rstrip('/')}/" if wanted.strip("/") else ""
        below = [name.removeprefix(folder) for name in tree if name.startswith(folder)]
        names = {head + slash for head, slash, _ in (name.partition("/") for name in below)}
        if not folder and self._user_data is not None:
            names.add("user-data")
        return "\n".join(sorted(names)).encode() if names else None


class _Server(ThreadingHTTPServer):
    # Waited for by server_close; none can stay long, for a connection ends with its answer.
    daemon_threads = False
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that did not wait for their answer."""


def _handler(service: MetadataServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = IDLE_SECONDS

        def do_GET(self) -> None:
            """Answer with metadata."""
            self._reply()

        def do_PUT(self) -> None:
            """Answer with a token."""
            self._reply()

        def _reply(self) -> None:
            status, body, extra = service.answer(self.command, self.path, self.headers)
            self.send_response(status)
            for name, value in {**extra, "Content-Type": "text/plain", "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: `requests` has it."""

    return Handler
