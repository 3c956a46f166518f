"""What every request passes before it is read: who asks, how much, for how long; and what is noted of it after."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from regiondag.serve.messages import Failure
from regiondag.serve.metrics import FAULTS, GONE, IN_FLIGHT, OTHER, Counters
from regiondag.serve.routes import ROUTES
from regiondag.serve.tokens import is_allowed
from regiondag.serve.typed import Problem, RefusedError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

MOST_BODY = 1 << 20  # bytes
MOST_HEAD = 16 << 10  # bytes of address and headers
BODY_SECONDS = 10.0
ANSWER_SECONDS = 30.0
OPEN = {route.path for route in ROUTES if route.open}
ALWAYS: tuple[Header, ...] = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may ask, and how many at a time. Without tokens the service answers to its loopback names only."""

    tokens: tuple[bytes, ...] = ()
    most_requests: int = 128
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Access:
    """A request that has ended; `address` is without its query, as it came."""

    client: str
    method: str
    address: str
    status: int
    size: int
    seconds: float


Note = Callable[[Access], None]
Say = Callable[[str], None]


class FailureError(Exception):
    """A request ends without what it asked for."""

    def __init__(self, failure: Failure, headers: Iterable[Header] = ()) -> None:
        super().__init__(failure.message)
        self.failure, self.headers = failure, tuple(headers)


def refuse(
    status: int, message: str, *problems: Problem, retry: int = 0, headers: Iterable[Header] = ()
) -> FailureError:
    """Return the error that ends a request so; `retry` is after how many seconds to ask again."""
    more = [(b"retry-after", str(retry).encode())] if retry else []
    return FailureError(Failure(status, message, problems), [*headers, *more])


class Guard:
    """An ASGI application around another one: `note` is told of each request that has ended, `say` of faults."""

    def __init__(self, app: App, rules: Rules, counters: Counters, note: Note, say: Say) -> None:
        self._app, self._rules, self._counters, self._note, self._say = app, rules, counters, note, say

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever comes."""
        if scope["type"] != "http":
            return
        begin = time.perf_counter()
        sender = _Sender(send)
        self._counters.add(IN_FLIGHT)
        try:
            await self._answer(scope, receive, sender)
        except FailureError as error:
            await sender.fail(error)
        except ConnectionResetError:
            sender.status = GONE
        except TimeoutError:
            if sender.status:  # the client does not read: the connection is of no use any more
                raise
            await sender.fail(refuse(503, f"no answer within {ANSWER_SECONDS:.0f} seconds", retry=5))
        except RefusedError as error:
            await sender.fail(refuse(400, "the request cannot be read", *error.problems))
        except Exception:
            number = secrets.token_hex(4)
            self._counters.add(FAULTS)
            self._say(f"fault {number}:\n{traceback.format_exc()}")
            if sender.status:
                raise
            await sender.fail(refuse(500, f"a fault of the service; its log has more under {number}"))
        finally:
            self._counters.add(IN_FLIGHT, -1)
            seconds = time.perf_counter() - begin
            self._counters.count(scope.get("route_name", OTHER), sender.status or 500, seconds)
            client = (scope.get("client") or ("-",))[0]
            address = (scope.get("raw_path") or b"").decode("latin-1")
            self._note(Access(client, scope["method"], address, sender.status or 500, sender.size, seconds))

    async def _answer(self, scope: Scope, receive: Receive, sender: _Sender) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._check(scope, headers)
        body = b""
        if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
            body = await _read_body(receive, headers)
        scope["body"] = body
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._app(scope, receive, sender)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) for name, value in scope["headers"])
        if size > MOST_HEAD:
            legal = Problem("headers", f"{size} bytes with the address", f"{MOST_HEAD} bytes at most")
            raise refuse(431, "the address and the headers are too large", legal, headers=[(b"connection", b"close")])
        if scope["path"] in OPEN:
            return
        rules = self._rules
        if rules.tokens:
            if not is_allowed(rules.tokens, headers.get(b"authorization", b"")):
                problem = Problem("Authorization", "nothing" if b"authorization" not in headers else "no legal token",
                                  "Bearer and one of the service's tokens")  # fmt: skip
                raise refuse(401, "a token is needed", problem, headers=[(b"www-authenticate", b"Bearer")])
        elif not _is_own_name(headers.get(b"host"), rules.host):
            problem = Problem("Host", "another name", f"{rules.host} or localhost, where the service has no tokens")
            raise refuse(421, "without tokens the service answers to its own machine only", problem)
        if self._counters.in_flight > rules.most_requests:
            raise refuse(503, "too many requests at a time", retry=1)


class _Sender:
    """Passes on what is sent, with headers that all answers have, and remembers status and size."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status, self.size = 0, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *ALWAYS]
        else:
            self.size += len(message.get("body", b""))
        await self._send(message)

    async def fail(self, error: FailureError) -> None:
        """Answer with a failure."""
        body = encode(error.failure)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self(
            {"type": "http.response.start", "status": error.failure.status, "headers": [*headers, *error.headers]}
        )
        await self({"type": "http.response.body", "body": body})


def encode(answer: object) -> bytes:
    """Return a message as JSON."""
    return _JSON.encode(answer).encode(errors="replace")


def _fields_of(answer: object) -> dict[str, object]:
    """Return what a message holds, as JSON's encoder asks for it: several times as fast as `dataclasses.asdict`."""
    return {name: getattr(answer, name) for name in answer.__slots__}  # type: ignore[attr-defined]


_JSON = json.JSONEncoder(default=_fields_of, ensure_ascii=False, allow_nan=False)


async def _read_body(receive: Receive, headers: dict[bytes, bytes]) -> bytes:
    """Return the body, which is neither too large nor too slow."""
    close = [(b"connection", b"close")]  # nobody reads the rest
    large = refuse(413, "the body is too large", Problem("body", "more", f"{MOST_BODY} bytes at most"), headers=close)
    said = headers.get(b"content-length", b"0")
    if not said.isdigit() or int(said[:20]) > MOST_BODY:
        raise large
    found = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ConnectionResetError
                found += message.get("body", b"")
                if len(found) > MOST_BODY:
                    raise large
                if not message.get("more_body"):
                    return bytes(found)
    except TimeoutError:
        raise refuse(408, f"the body took more than {BODY_SECONDS:.0f} seconds", headers=close) from None


def _is_own_name(host: bytes | None, bound: str) -> bool:
    """Say whether a Host header names this machine: a page in a browser may have made another name point here."""
    if host is None:
        return True
    name = host.decode("latin-1").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return name in ("localhost", bound.lower()) or is_loopback(name)


def is_loopback(name: str) -> bool:
    """Say whether a host's name or number is reached from its own machine alone."""
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False
