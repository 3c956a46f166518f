"""Hostile requests, byte for byte as a client may send them to `regiondag serve`, and what may come back."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.hostile.inputs import STEERING

HOST = b"Host: localhost\r\n"
CLOSE = b"Connection: close\r\n\r\n"
BERG = "/v1/regions/berg"
ASK = f"{BERG}/recommendations"


@dataclass(frozen=True, slots=True)
class Request:
    """Bytes that a client sends, at once or in pieces, and the statuses that may come back; None: nothing may."""

    name: str
    pieces: tuple[bytes, ...]
    statuses: tuple[int | None, ...] = (400,)
    pause: float = 0.0  # seconds between pieces
    says: str = ""  # in the answer, a regular expression


def headed(*lines: bytes, body: bytes = b"") -> tuple[bytes, ...]:
    """Return a request for recommendations with these lines in its head."""
    return (b"".join([f"POST {ASK} HTTP/1.1\r\n".encode(), HOST, *(line + b"\r\n" for line in lines), CLOSE, body]),)


def of_host(*lines: bytes) -> tuple[bytes, ...]:
    """Return a request whose head has these lines in the place of an honest host."""
    return (b"".join([b"GET /v1/regions HTTP/1.1\r\n", *(line + b"\r\n" for line in lines), CLOSE]),)


def get(path: str | bytes, method: str = "GET", head: bytes = b"") -> tuple[bytes, ...]:
    raw = path.encode() if isinstance(path, str) else path
    return (method.encode() + b" " + raw + b" HTTP/1.1\r\n" + HOST + head + CLOSE,)


def post(body: bytes | str, path: str = ASK, kind: str = "application/json") -> tuple[bytes, ...]:
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    head = f"Content-Type: {kind}\r\nContent-Length: {len(raw)}\r\n".encode()
    return (f"POST {path} HTTP/1.1\r\n".encode() + HOST + head + CLOSE + raw,)


def ask(**more: object) -> tuple[bytes, ...]:
    return post(json.dumps({"customers": ["c1"], **more}))


def chunked(*pieces: bytes) -> tuple[bytes, ...]:
    head = f"POST {ASK} HTTP/1.1\r\n".encode() + HOST
    return (head + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n" + CLOSE, *pieces)


NOT_FOUND = (400, 404)
REQUESTS = (
    # --- addresses
    Request("a path above", get("/../../../../etc/passwd"), NOT_FOUND),
    Request("a path above, quoted", get("/v1/regions/%2e%2e%2f%2e%2e%2fetc%2fpasswd"), NOT_FOUND),
    Request("a path above, quoted twice", get("/v1/regions/%252e%252e%252fetc"), NOT_FOUND),
    Request("a path with a backslash", get("/v1/regions/..\\..\\etc"), NOT_FOUND),
    Request("a region of NUL", get("/v1/regions/a%00b"), NOT_FOUND),
    Request("a region of no UTF-8", get("/v1/regions/%ff%fe"), NOT_FOUND),
    Request("a region that steers", get("/v1/regions/%1b%5b2J"), NOT_FOUND),
    Request("a region of lines", get("/v1/regions/a%0d%0aSet-Cookie:x"), NOT_FOUND),
    Request("a region of a page", get("/v1/regions/%3Cscript%3Ealert(1)%3C/script%3E"), NOT_FOUND),
    Request("a region of 15 kB", get("/v1/regions/" + "r" * 15_000), (400, 404, 431)),
    Request("a customer of 15 kB", get(f"{BERG}/customers/{'c' * 15_000}/recommendations"), (400, 431)),
    Request("a customer that steers", get(f"{BERG}/customers/%1b%5b2J/recommendations"), (400,)),
    Request("a customer above", get(f"{BERG}/customers/..%2f..%2fsecret/recommendations"), (200, 404)),
    Request("an absolute address", get("http://evil.example/healthz"), (200, 400, 404, 421)),
    Request("an address of another service", get("ftp://localhost/etc/passwd"), (200, 400, 404, 421)),
    Request("a fragment", get("/healthz#x"), (200, 400, 404)),
    Request("slashes", get("/" * 10_000), (400, 404, 431)),
    # --- queries
    Request("k of 10^9", get(f"{BERG}/customers/c1/recommendations?k=1000000000")),
    Request("k of 10^400", get(f"{BERG}/customers/c1/recommendations?k=1" + "0" * 400)),
    Request("k below zero", get(f"{BERG}/customers/c1/recommendations?k=-1")),
    Request("k of NaN", get(f"{BERG}/customers/c1/recommendations?k=NaN")),
    Request("k in other digits", get(f"{BERG}/customers/c1/recommendations?k=%D9%A3")),
    Request("k twice", get(f"{BERG}/customers/c1/recommendations?k=1&k=2")),
    Request("a question that nobody knows", get(f"{BERG}?__class__=1")),
    Request("thousands of questions", get(f"{BERG}?" + "&".join(f"a{n}=1" for n in range(2000))), (400, 431)),
    Request("a thousand names alone", get(f"{BERG}?" + "&" * 14_000), (200, 400, 431)),
    Request("a study above", get(f"{BERG}?study=../../x"), NOT_FOUND),
    # --- bodies
    Request("no JSON", post("{")),
    Request("a body of nothing", post("")),
    Request("NaN", post('{"customers": ["c1"], "k": NaN}')),
    Request("1e999", post('{"customers": ["c1"], "k": 1e999}')),
    Request("a k of a million digits", post('{"customers": ["c1"], "k": ' + "9" * 900_000 + "}")),
    Request("a k of 10^9", ask(k=10**9)),
    Request("a k that is true", ask(k=True)),
    Request("a k of text", ask(k="10")),
    Request("brackets", post("[" * 500_000)),
    Request("objects in objects", post('{"a":' * 150_000)),
    Request("half of a character", post('{"customers": ["\\ud800"]}')),
    Request("no UTF-8", post(b'{"customers": ["\xff"]}')),
    Request("UTF-16", post('{"customers": ["c1"]}'.encode("utf-16")), (200, 400)),
    Request("a key twice", post('{"customers": ["c1"], "customers": ["c2"]}'), (200, 400)),
    Request("keys without end", post(json.dumps({f"k{n}": 1 for n in range(50_000)}))),
    Request("customers without end", post(json.dumps({"customers": ["c1"] * 100_000}))),
    Request("a customer who steers", ask(customers=[STEERING])),
    Request("a customer of 900 kB", ask(customers=["c" * 900_000])),
    Request("a history without end", post(json.dumps({"history": ["i1"] * 100_000}))),
    Request("both", ask(history=["i1"])),
    Request("a list", post("[1, 2]")),
    Request("a page's form", post("customers=c1", kind="application/x-www-form-urlencoded"), (400, 415)),
    Request("a kind of a page", post('{"customers": ["c1"]}', kind="text/plain"), (400, 415)),
    # --- sizes and lengths
    Request("a body of 10 MB", post(b" " * (10 << 20)), (413, None)),
    Request("a length of 10^30", headed(b"Content-Length: 1" + b"0" * 30), (400, 413, None)),
    Request("a length below zero", headed(b"Content-Length: -5")),
    Request("two lengths", headed(b"Content-Length: 2", b"Content-Length: 3", body=b"{}x")),
    Request(
        "a length and chunks",
        headed(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n"),
        (400, 415, None),
    ),
    Request("chunks of no number", chunked(b"zz\r\n{}\r\n0\r\n\r\n"), (400, None)),
    Request("a chunk of 2^64", chunked(b"fffffffffffffffff\r\n{}"), (400, 413, None)),
    Request("a chunk below zero", chunked(b"-1\r\n{}\r\n0\r\n\r\n"), (400, None)),
    Request("chunks without end", chunked(*[b"8000\r\n" + b" " * 0x8000 + b"\r\n"] * 100), (413, None)),
    Request(
        "a chunk's words without end", chunked(b"2;" + b"x" * 1_000_000 + b"\r\n{}\r\n0\r\n\r\n"), (400, 413, 431, None)
    ),
    Request("a tail of headers", chunked(b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 20_000 + b"\r\n"), (400, 413, 431, None)),
    Request(
        "headers without end",
        (b"GET / HTTP/1.1\r\n", *[b"X-%d: " % n + b"y" * 8000 + b"\r\n" for n in range(100)]),
        (431, None),
    ),
    Request("20,000 headers", get("/healthz", head=b"".join(b"X%d: y\r\n" % n for n in range(20_000))), (431, None)),
    Request("a header of 1 MB", get("/healthz", head=b"X: " + b"y" * 1_000_000 + b"\r\n"), (431, None)),
    # --- hosts, methods, protocols
    Request("another host", of_host(b"Host: evil.example"), (421,)),
    Request("a host of Unicode", of_host(b"Host: \xd1\x80\xd0\xb5.example"), (400, 421)),
    Request("a host of punycode", of_host(b"Host: xn--80ak6aa92e.com"), (421,)),
    Request("a host with a name before it", of_host(b"Host: localhost@evil.example"), (400, 421)),
    Request("two hosts", of_host(b"Host: localhost", b"Host: evil.example"), (400, 421)),
    Request("no host", of_host(), (200, 400, 421)),
    Request("another method", get(BERG, "DELETE"), (404, 405)),
    Request("a method of its own", get(BERG, "BREW" * 1000), (400, 404, 405, 431, None)),
    Request("a trace", get("/healthz", "TRACE"), (404, 405)),
    Request("a tunnel", (b"CONNECT evil.example:443 HTTP/1.1\r\n" + HOST + b"\r\n",), (400, 404, 405, None)),
    Request("the service as a whole", get("*", "OPTIONS"), (400, 404, 405)),
    Request("HTTP 9.9", (b"GET /healthz HTTP/9.9\r\n" + HOST + CLOSE,), (400, 505, None)),
    Request("HTTP 2", (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), (400, 404, 505, None)),
    Request("HTTP 0.9", (b"GET /healthz\r\n",), (400, 408, None)),
    Request("TLS", (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600),), (400, None)),
    Request("noise", (bytes(range(256)) * 100 + b"\r\n\r\n",), (400, 431, None)),
    Request(
        "a WebSocket",
        get("/healthz", head=b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"),
        (200, 400),
    ),
    Request("a header folded", get("/healthz", head=b"X: y\r\n z\r\n"), (200, 400)),
    Request("a header of NUL", get("/healthz", head=b"X: a\0b\r\n")),
    Request("a header without a name", get("/healthz", head=b": y\r\n")),
    Request("lines of one character", (b"GET /healthz HTTP/1.1\nHost: localhost\n\n",), (200, 400, 408, None)),
    # --- slow ones: ten seconds and more
    Request("nothing at all", (b"",), (408, None)),
    Request("a header a second", (b"GET / HTTP/1.1\r\n", *[b"X: y\r\n"] * 15), (408, None), pause=1),
    Request("a body a byte a second", (*headed(b"Content-Length: 100"), *[b" "] * 15), (408, 415, None), pause=1),
)
