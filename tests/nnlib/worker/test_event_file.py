"""TensorBoard's event files, made here byte by byte as its writers do.

Files of tensorboard 2.21's and tensorboardX 2.6's own writers were read the same.
"""

from __future__ import annotations

import doctest
import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.worker import event_file
from nnlib.worker.event_file import LONGEST, masked_crc32c, read_records, scalars_of


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def message(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def summary(tag, value):
    return message(5, message(1, message(1, tag.encode()) + value))


def event(step, **scalars):
    """An event of one scalar, with the time of day that writers put first."""
    [(tag, value)] = scalars.items()
    return (
        b"\x09" + struct.pack("<d", 1.7e9) + b"\x10" + varint(step) + summary(tag, b"\x15" + struct.pack("<f", value))
    )


def record(data):
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc32c(head)) + data + struct.pack("<I", masked_crc32c(data))


def scalars(data):
    return [one for found, _ in read_records(io.BytesIO(data), 0, 1 << 20) for one in scalars_of(found)]


def test_doctests():
    assert doctest.testmod(event_file).failed == 0


def test_a_record_as_tensorboard_writes_it():
    # the first record of any file of tensorboardX 2.6.5: the version of the format
    raw = bytes.fromhex("1800000000000000a37f4b22") + b"\t\x00\x00\xc0\x80\xd3\x42\xda\x41\x1a\rbrain.Event:2"
    assert record(raw[12:])[:12] == raw[:12]


@pytest.mark.parametrize(
    "tensor",
    [
        b"\x08\x01\x22\x04" + struct.pack("<f", 0.5),
        b"\x08\x01\x12\x00" + message(5, struct.pack("<f", 0.5)),
        b"\x08\x02\x22\x08" + struct.pack("<d", 0.5),
        b"\x08\x02" + message(6, struct.pack("<d", 0.5)),
    ],
)
def test_scalars_as_tensors_are_read_as_those_that_are_simple(tensor):
    data = b"\x10\x07" + summary("auc", message(8, tensor))
    assert list(scalars_of(data)) == [(7, "auc", 0.5)] == list(scalars_of(event(7, auc=0.5)))


def test_pictures_are_passed_over_and_what_is_torn_or_damaged_ends_it():
    good, long = record(event(1, auc=0.5)), record(b"\x00" * (LONGEST + 1))
    assert scalars(long + good) == [(1, "auc", 0.5)]
    assert scalars(good + good[:-1]) == [(1, "auc", 0.5)]
    for place in (3, 9, 15, len(good) - 1):
        bad = bytearray(good)
        bad[place] ^= 1
        assert scalars(good + bytes(bad) + good) == [(1, "auc", 0.5)]
    huge = struct.pack("<Q", 1 << 63)
    assert scalars(huge + struct.pack("<I", masked_crc32c(huge))) == []


def test_a_step_below_nothing_and_tensors_of_several_numbers_are_none():
    assert list(scalars_of(b"\x10" + b"\xff" * 9 + b"\x01" + summary("a", b"\x15" + struct.pack("<f", 1)))) == []
    assert list(scalars_of(summary("a", message(8, b"\x08\x01\x22\x08" + struct.pack("<ff", 1, 2))))) == []
    assert list(scalars_of(summary("a", message(8, b"\x08\x07\x22\x04abcd")))) == []


@given(st.binary(max_size=200))
def test_whatever_the_bytes_nothing_is_raised(data):
    for step, tag, value in [*scalars_of(data), *scalars(record(data)), *scalars(data)]:
        assert step >= 0 and tag and isinstance(value, float)


@given(st.integers(0, 2**40), st.text(min_size=1, max_size=20), st.floats(width=32, allow_nan=False))
def test_what_is_written_is_read(step, tag, value):
    assert scalars(record(event(step, **{tag: value}))) == [(step, tag, value)]
