"""The stand-in for Amazon's time service."""

from __future__ import annotations

import socket
import struct

import pytest

from regiondag.bake.boot.time_server import SINCE_1900, TimeServer, answer

REQUEST = bytes([0o43]) + bytes(39) + b"whenSENT"


def test_an_answer_is_one_of_rfc_4330():
    said = answer(REQUEST, 1.5)
    assert len(said) == 48
    assert said[0] >> 3 & 7 == 4
    assert said[0] & 7 == 4, "a server"
    assert said[1] == 1, "stratum"
    assert said[24:32] == b"whenSENT", "the client's own time comes back"
    assert struct.unpack("!II", said[40:]) == (SINCE_1900 + 1, 1 << 31)


@pytest.mark.parametrize("request_", [b"", REQUEST[:47], bytes([0o44]) + REQUEST[1:]])
def test_what_is_no_request_gets_no_answer(request_):
    assert answer(request_, 1.5) == b""


def test_it_answers_and_counts():
    with TimeServer("127.0.0.1", 0) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(10)
        client.sendto(b"no request", server.address)
        client.sendto(REQUEST, server.address)
        assert len(client.recv(100)) == 48
    assert server.asked == 1
