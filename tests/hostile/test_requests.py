"""A service that listens meets what no honest client sends, all of it at a time, and goes on answering."""

from __future__ import annotations

import re
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.hostile.requests import REQUESTS, Request
from tests.hostile.running import STEERS
from tests.workflows.serve.served import make_shop, serving

SECONDS, MEMORY = 40, 2 << 30  # until an answer ends; bytes of addresses of the service
MOST = 20_000  # bytes of an answer to what is refused


@pytest.fixture(scope="module")
def met(tmp_path_factory):
    """Return what came of each request, by its name, and what the service said."""
    shop = make_shop(tmp_path_factory.mktemp("shop"), "berg")
    with serving(shop) as service:
        service.wait_ready(1)
        resource.prlimit(service.process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        honest = service.get("/v1/regions/berg/customers/c1/recommendations")
        with ThreadPoolExecutor(16) as pool:
            found = dict(
                zip([one.name for one in REQUESTS], pool.map(lambda one: send(service, one), REQUESTS), strict=True)
            )
        assert service.get("/v1/regions/berg/customers/c1/recommendations") == honest
        assert service.end() == 0
        found["said"] = service.log.read_text()
    return found


def send(service, one: Request) -> tuple[bytes, float]:
    began, found = time.monotonic(), b""
    with socket.create_connection((service.host, int(service.port)), timeout=SECONDS) as connection:
        try:
            for piece in one.pieces:
                connection.sendall(piece)
                time.sleep(one.pause)
        except OSError:  # it has closed
            pass
        try:
            while piece := connection.recv(65536):
                found += piece
        except ConnectionResetError:
            pass
    return found, time.monotonic() - began


@pytest.mark.parametrize("one", REQUESTS, ids=lambda one: one.name)
def test_a_request_is_answered_refused_or_left(met, one):
    found, seconds = met[one.name]
    status = int(found.split()[1]) if found else None
    assert status in one.statuses, found[:500]
    assert seconds < SECONDS
    text = found.decode(errors="backslashreplace")
    assert not re.search(r"Traceback|root:|File \"", text) and len(text) < MOST
    assert "<script" not in text or "content-type: application/json" in text  # which no browser runs
    assert not STEERS.search(text.replace("\r\n", "\n"))
    assert text.count("HTTP/1.1 ") <= 1 + text.count("HTTP/1.1 100")


def test_the_service_says_of_none_that_it_is_its_own_fault(met):
    assert not re.search("Traceback|fault", met["said"])
    assert not STEERS.search(met["said"])
