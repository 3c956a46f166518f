"""The stand-in for EC2's metadata service: as strict as the real one."""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from regiondag.bake.boot import imds_server
from regiondag.bake.boot.imds_server import MetadataRequest, MetadataServer, make_instance_tree

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
HEADER = "X-aws-ec2-metadata-token"


def ask(
    server: MetadataServer, path: str, method: str = "GET", timeout: float = 5, **headers: str
) -> tuple[int, bytes]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(server.endpoint + path, method=method, headers=given)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def token(server: MetadataServer, seconds: str = "60") -> str:
    status, body = ask(server, "/latest/api/token", "PUT", **{TTL: seconds})
    assert status == 200
    return body.decode()


def get(server: MetadataServer, path: str) -> tuple[int, bytes]:
    return ask(server, path, **{HEADER: token(server)})


def test_without_a_token_nothing_is_told_and_it_is_remembered():
    with MetadataServer() as server:
        assert ask(server, "/latest/meta-data/instance-id") == (401, b"")
        assert server.asked_without_token
        assert server.requests == (MetadataRequest("GET", "/latest/meta-data/instance-id", 401, True),)


def test_with_a_token_it_tells_and_nobody_is_blamed():
    with MetadataServer() as server:
        assert get(server, "/latest/meta-data/instance-id") == (200, b"i-0123456789abcdef0")
        assert get(server, "/2021-03-23/meta-data/instance-type") == (200, b"g5.xlarge")
        assert ask(server, "/latest/meta-data/mac", **{HEADER: "made up"})[0] == 401
        assert not server.asked_without_token
        assert [request.status for request in server.requests] == [200, 200, 200, 200, 401]


@pytest.mark.parametrize("seconds", ["0", "21601", "-1", "x", "", "²"])
def test_bad_lifetimes(seconds):
    with MetadataServer() as server, socket.create_connection(server._server.server_address[:2], timeout=5) as line:
        line.sendall(f"PUT /latest/api/token HTTP/1.0\r\n{TTL}: {seconds}\r\n\r\n".encode())
        assert line.recv(100).split()[1] == b"400"


def test_a_lifetime_is_needed_and_kept(monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(imds_server, "time", SimpleNamespace(monotonic=lambda: now))
    with MetadataServer() as server:
        assert ask(server, "/latest/api/token", "PUT")[0] == 400
        assert ask(server, "/latest/api/other", "PUT", **{TTL: "60"})[0] == 404
        short = token(server, "1")
        assert ask(server, "/latest/meta-data/mac", **{HEADER: short})[0] == 200
        now += 1.1
        assert ask(server, "/latest/meta-data/mac", **{HEADER: short})[0] == 401


def test_a_proxy_gets_no_token():
    with MetadataServer() as server:
        assert ask(server, "/latest/api/token", "PUT", **{TTL: "60", "X-Forwarded-For": "1.2.3.4"})[0] == 403


def test_folders_are_listed_as_ec2_does():
    with MetadataServer({"meta-data/a": "1", "meta-data/b/c": "2"}, user_data=b"x") as server:
        assert get(server, "/latest/") == (200, b"meta-data/\nuser-data")
        assert get(server, "/latest/meta-data/") == (200, b"a\nb/")
        assert get(server, "/latest/meta-data/b") == (200, b"c")
        assert get(server, "/latest/meta-data/nothing") == (404, b"")
        assert get(server, "/elsewhere/meta-data/a") == (404, b"")


def test_what_cloud_init_reads():
    """DataSourceEc2 asks for these by name, or lists their folders; without instance-id it gives up."""
    with MetadataServer(user_data=b"#cloud-config\n\xff") as server:
        listed = get(server, "/latest/meta-data/")[1].decode().split("\n")
        assert {"instance-id", "ami-id", "local-hostname", "mac", "placement/"} <= set(listed)
        document = json.loads(get(server, "/latest/dynamic/instance-identity/document")[1])
        assert document["region"] == "us-east-1"
        assert get(server, "/latest/user-data") == (200, b"#cloud-config\n\xff")
    with MetadataServer() as server:
        assert get(server, "/latest/user-data") == (404, b"")


def test_changes_are_seen_at_once():
    path = "meta-data/spot/instance-action"
    with MetadataServer(make_instance_tree(tags={"regiondag:fleet": "f"})) as server:
        assert get(server, f"/latest/{path}")[0] == 404
        server.set(path, "{}")
        assert get(server, f"/latest/{path}") == (200, b"{}")
        server.set(path, None)
        assert get(server, f"/latest/{path}")[0] == 404
        assert get(server, "/latest/meta-data/tags/instance/regiondag:fleet") == (200, b"f")


def test_faults():
    with MetadataServer() as server:
        known = token(server)
        server.fail(status=500)
        assert ask(server, "/latest/meta-data/mac", **{HEADER: known})[0] == 500
        server.fail(hang=30)
        with pytest.raises(TimeoutError):
            ask(server, "/latest/meta-data/mac", timeout=0.2, **{HEADER: known})
        server.fail()
        assert ask(server, "/latest/meta-data/mac", **{HEADER: known})[0] == 200
        server.revoke()
        assert ask(server, "/latest/meta-data/mac", **{HEADER: known})[0] == 401
        server.disable()
        assert ask(server, "/latest/api/token", "PUT", **{TTL: "60"})[0] == 403


def test_no_thread_is_left_even_of_a_request_that_hangs():
    before = threading.active_count()
    server = MetadataServer().start()
    server.fail(hang=60)
    with pytest.raises(TimeoutError):
        ask(server, "/latest/meta-data/mac", timeout=0.2)
    started = time.monotonic()
    server.stop()
    assert time.monotonic() - started < 5
    assert threading.active_count() == before


def test_a_server_that_never_started_can_be_stopped():
    server = MetadataServer()
    assert server.endpoint.startswith("http://127.0.0.1:")
    server.stop()
