"""What a job and its ranks say arrives as it was said, or is refused."""

from __future__ import annotations

import json
import os
import socket
import threading

import numpy as np
import pytest

from nnlib.parallel.wire import MAGIC, PREFIX, Channel, GoneError


@pytest.fixture
def ends():
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def test_values_arrays_and_a_descriptor_arrive(ends, tmp_path):
    one, other = map(Channel, ends)
    file = os.open(tmp_path / "shared", os.O_RDWR | os.O_CREAT)
    os.write(file, b"for all")
    arrays = {
        "weights": np.arange(6, dtype=np.float32).reshape(2, 3)[:, ::2],
        "rows": np.array([2**40, -1]),
        "none": np.zeros((0, 4), np.float32),
        "mask": np.array([True, False]),
    }
    one.send("engine", {"step": 3, "error": float("inf"), "names": ["Ä"]}, arrays, file)
    message = other.receive()
    os.close(file)
    assert (message.operation, message.fields) == ("engine", {"step": 3, "error": float("inf"), "names": ["Ä"]})
    assert message.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(message.arrays[name], array)
        assert message.arrays[name].dtype == array.dtype
    assert os.pread(message.shared, 7, 0) == b"for all"
    os.close(message.shared)
    one.send("go")
    assert other.receive().shared is None


def test_what_is_larger_than_the_socket_holds_arrives(ends):
    one, other = map(Channel, ends)
    large = np.arange(3_000_000, dtype=np.float32)
    sender = threading.Thread(target=one.send, args=("pull", {}, {"large": large}))
    sender.start()
    np.testing.assert_array_equal(other.receive().arrays["large"], large)
    sender.join()


def test_the_end_of_the_other_side_is_told_wherever_it_comes(ends):
    one, other = ends
    Channel(one).send("go")
    other.recv(1)  # the rest of the message stays
    one.shutdown(socket.SHUT_WR)
    with pytest.raises(RuntimeError, match="begins with"):
        Channel(other).receive()
    fresh, far = socket.socketpair()
    fresh.sendall(PREFIX.pack(MAGIC, 100, 0) + b'["go"')
    fresh.close()
    with far, pytest.raises(GoneError):
        Channel(far).receive()
    other.close()
    with pytest.raises(GoneError):
        Channel(one).send("go")


@pytest.mark.parametrize(
    ("about", "size"),
    [
        ([["rows", "<i8", [3]]], 16),  # more than follows
        ([["rows", "<i8", [1]]], 16),  # less
        ([["rows", "|O", [1]]], 16),  # no number
        ([["rows", "<i8", [2**62, 4]]], 16),  # whose size overflows 64 bits
    ],
)
def test_arrays_that_do_not_fit_what_follows_are_refused_before_memory_is_taken(ends, about, size):
    header = json.dumps(["go", {}, about]).encode()
    ends[0].sendall(PREFIX.pack(MAGIC, len(header), size) + header + bytes(size))
    with pytest.raises(RuntimeError, match="a message of ranks"):
        Channel(ends[1]).receive()


def test_who_waits_is_called_now_and_then_and_may_leave(ends):
    calls = []

    def idle():
        calls.append(1)
        if len(calls) == 3:
            raise TimeoutError("leaves")

    waiting = Channel(ends[0], idle)
    with pytest.raises(TimeoutError, match="leaves"):
        waiting.receive()
    calls.clear()
    with pytest.raises(TimeoutError, match="leaves"):  # nobody reads
        waiting.send("engine", {}, {"large": np.zeros(10_000_000)})
