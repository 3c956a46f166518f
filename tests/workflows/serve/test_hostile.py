"""Clients who mean no good: slow, large, wrong, or many."""

import http.client
import json
import socket
import threading
import time

import pytest

from regiondag.serve import guard as guard_module
from regiondag.serve import http_server
from regiondag.serve.guard import Guard, Rules, refuse
from regiondag.serve.http_server import HttpServer, listen
from regiondag.serve.metrics import Counters
from tests.workflows.serve.served import make_shop, serving

SOON = 0.3  # seconds, in place of ten and more
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
TOKEN, OTHER = "t" * 40, "o" * 40
BERG = "/v1/regions/berg"


class Played:
    """The guard and the protocol in a thread, around an application that waits or answers."""

    def __init__(self, rules=None):
        self.said, self.accessed, self.gate = [], [], threading.Event()
        self.counters = Counters()
        listener = listen("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        guard = Guard(self.answer, rules or Rules(), self.counters, self.accessed.append, self.said.append)
        self.server = HttpServer(guard, listener)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()

    async def answer(self, scope, receive, send):
        if scope["path"] == "/fault":
            raise ZeroDivisionError("secret text")
        if scope["path"] == "/large":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(200):
                await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        if scope["path"] == "/wait":
            import asyncio

            while not self.gate.is_set():
                await asyncio.sleep(0.01)
        if scope["path"] == "/refuse":
            raise refuse(404, "no")
        body = f"{len(scope['body'])}".encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def raw(self, data, *more, pause=0.0):
        """Return all that comes back until the service closes."""
        with self.connect() as connection:
            connection.sendall(data)
            for piece in more:
                time.sleep(pause)
                try:
                    connection.sendall(piece)
                except OSError:
                    break
            return read_all(connection)

    def end(self):
        self.gate.set()
        self.server.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def read_all(connection):
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


@pytest.fixture
def soon(monkeypatch):
    for name in ("HEAD_SECONDS", "IDLE_SECONDS"):
        monkeypatch.setattr(http_server, name, SOON)
    for name in ("BODY_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(guard_module, name, SOON)


@pytest.fixture
def played(soon):
    server = Played()
    yield server
    server.end()


def failure(raw):
    head, _, body = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["message"]


@pytest.mark.parametrize("begin", [b"", b"G", GET, GET + b"X: "])
def test_headers_that_do_not_come_end_the_connection(played, begin):
    assert failure(played.raw(begin)) == (408, f"no request within {SOON:.0f} seconds")


def test_headers_that_drip_end_the_connection(played):
    found = played.raw(GET, *[b"X: y\r\n"] * 100, pause=SOON / 5)
    assert found == b"" or failure(found)[0] == 408


def test_headers_that_never_end_are_too_large(played):
    found = played.raw(GET, *[b"X-%d: " % n + b"y" * 8000 + b"\r\n" for n in range(20)])
    assert found == b"" or failure(found)[0] == 431
    assert failure(played.raw(GET + b"X: " + b"y" * 100_000))[0] == 431


def test_headers_and_addresses_that_end_are_too_large_all_the_same(played):
    assert failure(played.raw(GET + b"X: " + b"y" * 17_000 + b"\r\n\r\n"))[0] == 431
    assert failure(played.raw(b"GET /" + b"y" * 17_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 431
    assert failure(played.raw(b"GET /?" + b"y" * 17_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"))[0] == 431


def test_a_body_that_does_not_come_ends_the_request(played):
    head = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
    assert failure(played.raw(head))[0] == 408
    assert failure(played.raw(head, *[b"1"] * 9, pause=SOON / 5))[0] == 408


def test_bodies_are_bounded_whether_their_length_is_said_or_not(played):
    head = b"POST /x HTTP/1.1\r\nHost: localhost\r\n"
    assert failure(played.raw(head + b"Content-Length: 1048577\r\n\r\n"))[0] == 413
    assert failure(played.raw(head + b"Content-Length: 99999999999999999999999\r\n\r\n"))[0] in (400, 413)
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    assert failure(played.raw(head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 40))[0] == 413
    just = b"Connection: close\r\nContent-Length: 1048576\r\n\r\n"
    assert played.raw(head + just + b"x" * 1048576).endswith(b"\r\n\r\n1048576")


def test_an_answer_that_does_not_come_is_told(played):
    assert failure(played.raw(b"GET /wait HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))[0] == 503


def test_a_client_that_does_not_read_is_left(played):
    with played.connect() as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        deadline = time.monotonic() + 30
        while not played.accessed:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(read_all(connection)) < 200 * 100_000


def test_an_idle_connection_is_closed(played):
    with played.connect() as connection:
        connection.sendall(GET + b"\r\n")
        assert read_all(connection).endswith(b"\r\n\r\n0")


@pytest.mark.parametrize(
    "data",
    [
        b"\0\1\2\3\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX\0Y: z\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # somebody speaks TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_legal_http_is_refused_and_harms_nobody(played, data):
    found = played.raw(data)
    assert found == b"" or found.split()[1] in (b"400", b"408", b"404", b"200", b"413")
    assert played.raw(GET + b"Connection: close\r\n\r\n").endswith(b"\r\n\r\n0")
    assert played.said == []


def test_upgrades_are_not_made(played):
    found = played.raw(GET + b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n")
    assert not found.startswith(b"HTTP/1.1 101")


def test_requests_in_a_pipe_are_answered_in_order(played):
    post = b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
    found = played.raw(b"".join(post % (n, b"x" * n) for n in range(1, 50)) + GET + b"Connection: close\r\n\r\n")
    assert [int(part.split(b"HTTP")[0]) for part in found.split(b"\r\n\r\n")[1:]] == [*range(1, 50), 0]


def test_a_fault_has_a_number_and_keeps_its_text_for_the_log(played):
    status, message = failure(played.raw(b"GET /fault HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    assert status == 500 and "secret" not in message
    [said] = played.said
    assert message.split()[-1] in said and "ZeroDivisionError: secret text" in said
    assert played.accessed[0].status == 500


def test_more_at_a_time_than_there_may_be_are_told_to_come_again():
    server = Played(Rules(most_requests=2))
    connections = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(3)]

    def answer_of(connection):
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers["retry-after"]

    try:
        for connection in connections[:2]:
            connection.request("GET", "/wait")
        deadline = time.monotonic() + 30
        while server.counters.in_flight < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        connections[2].request("GET", "/x")
        assert answer_of(connections[2]) == (503, "1")
        connections[2].request("GET", "/healthz")
        assert answer_of(connections[2])[0] == 200
        server.gate.set()
        assert [answer_of(connection)[0] for connection in connections[:2]] == [200, 200]
    finally:
        for connection in connections:
            connection.close()
        server.end()


def test_connections_are_bounded(monkeypatch):
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 3)
    server = Played()
    try:
        held = [server.connect() for _ in range(3)]
        time.sleep(0.3)
        assert failure(server.raw(b""))[0] == 503
        for connection in held:
            connection.close()
        time.sleep(0.3)
        assert server.raw(GET + b"Connection: close\r\n\r\n").endswith(b"\r\n\r\n0")
    finally:
        server.end()


def test_there_are_fewer_connections_where_fewer_files_may_be_open(monkeypatch):
    limits = [(1024, 1200)]
    monkeypatch.setattr(http_server.resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(http_server.resource, "setrlimit", lambda _, new: limits.append(new))
    assert http_server._allow_connections() == 1000 and limits[-1] == (1200, 1200)
    limits.append((1024, 1 << 20))
    assert http_server._allow_connections() == 2000 and limits[-1] == (2200, 1 << 20)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    shop = make_shop(tmp_path_factory.mktemp("guarded"), "berg")
    tokens = shop / "tokens"
    tokens.write_text(f"{TOKEN}\n{OTHER}\n")
    tokens.chmod(0o600)
    with serving(shop, "--token-file", tokens, "--host", "0.0.0.0") as service:  # noqa: S104
        service.wait_ready(1)
        yield service


def test_tokens_open_everything_but_health_which_is_open(guarded):
    for path in ("/healthz", "/readyz"):
        assert guarded.ask(path)[0] == 200
    for path in ("/metrics", "/openapi.json", "/v1/regions", BERG, "/nowhere", f"{BERG}/customers/c7/recommendations"):
        status, found, headers = guarded.ask(path)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert found["problems"][0]["seen"] == "nothing"
        for token in (TOKEN, OTHER):
            assert guarded.ask(path, Authorization=f"Bearer {token}")[0] in (200, 404)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Token {TOKEN}", TOKEN],
)
def test_wrong_tokens_are_refused_and_not_shown(guarded, header):
    status, found, _ = guarded.ask(BERG, Authorization=header)
    assert status == 401 and TOKEN[:8] not in json.dumps(found)


def test_no_token_is_in_the_log(guarded):
    guarded.ask(BERG, Authorization=f"Bearer {TOKEN}")
    guarded.ask(f"{BERG}?token={TOKEN}", Authorization=f"Bearer {TOKEN}x")
    assert TOKEN[:20] not in guarded.log.read_text()


def test_with_tokens_the_service_answers_to_any_name(guarded):
    assert guarded.ask(BERG, Host="shop.example", Authorization=f"Bearer {TOKEN}")[0] == 200
