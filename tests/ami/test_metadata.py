"""The worker's client of the metadata service, against a strict one."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from regiondag.bake.boot.imds_server import MetadataServer
from tests.ami.conftest import load

metadata = load("metadata")


def test_it_asks_as_version_2_does(imds):
    client = metadata.Metadata()
    assert client.get("meta-data/instance-id") == "i-0123456789abcdef0"
    assert client.get("meta-data/nothing") is None
    assert not imds.asked_without_token
    assert [request.method for request in imds.requests] == ["PUT", "GET", "GET"]  # one token for both


def test_tags_have_names_with_colons(imds):
    imds.set("meta-data/tags/instance/regiondag:fleet", "night")
    assert metadata.Metadata().get("meta-data/tags/instance/regiondag:fleet") == "night"


def test_a_revoked_token_is_replaced_once(imds):
    client = metadata.Metadata()
    client.get("meta-data/mac")
    imds.revoke()
    assert client.get("meta-data/mac") == "52:54:00:12:34:56"
    assert [request.status for request in imds.requests] == [200, 200, 401, 200, 200]
    imds.fail(status=401)
    with pytest.raises(metadata.MetadataError, match="401"):
        client.get("meta-data/mac")


def test_a_token_is_renewed_before_it_ends(imds):
    now = [0.0]
    client = metadata.Metadata(clock=lambda: now[0])
    client.get("meta-data/mac")
    now[0] = 0.89 * 21600
    client.get("meta-data/mac")
    now[0] = 0.91 * 21600
    client.get("meta-data/mac")
    assert [request.method for request in imds.requests] == ["PUT", "GET", "GET", "PUT", "GET"]


@pytest.mark.parametrize("status", [400, 403, 500, 503])
def test_refusals_name_the_endpoint_and_the_status(imds, status):
    imds.fail(status=status)
    with pytest.raises(metadata.MetadataError, match=rf"http://127\.0\.0\.1:\d+ .*{status}"):
        metadata.Metadata().get("meta-data/mac")


def test_a_service_that_hangs_is_not_waited_for(imds):
    imds.fail(hang=30)
    started = time.monotonic()
    with pytest.raises(metadata.MetadataError, match="timed out"):
        metadata.Metadata(timeout=0.2).get("meta-data/mac")
    assert time.monotonic() - started < 5


def test_nobody_listens():
    with MetadataServer() as server:
        endpoint = server.endpoint
    with pytest.raises(metadata.MetadataError, match="refused"):
        metadata.Metadata(endpoint).get("meta-data/mac")


def test_a_proxy_of_the_environment_is_not_asked(imds, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert metadata.Metadata().get("meta-data/mac")


@pytest.mark.parametrize("answer", [b"", b"rubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx\ny"])
def test_rubbish_is_an_error_like_any_other(answer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer_once, args=(server, answer))
        thread.start()
        try:
            with pytest.raises(metadata.MetadataError):
                metadata.Metadata(f"http://127.0.0.1:{server.getsockname()[1]}").get("meta-data/mac")
        finally:
            thread.join()


def _answer_once(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(1000)
        connection.sendall(answer)
