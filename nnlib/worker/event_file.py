"""TensorBoard's event files: records of protobuf, of which only the scalars are read. Standard library only.

A record is its length (uint64, little endian), the length's masked CRC-32C, the data, and their masked CRC-32C
(tensorflow/core/lib/io/record_writer.h). Data are an Event (tensorflow/core/util/event.proto):

    Event   {int64 step = 2; Summary summary = 5}
    Summary {repeated Value value = 1}
    Value   {string tag = 1; float simple_value = 2; TensorProto tensor = 8}
    TensorProto {DataType dtype = 1; bytes tensor_content = 4; repeated float float_val = 5, double double_val = 6}
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

LONGEST = 1 << 16  # bytes of a record that is looked into: scalars are short, pictures and histograms are not
LONGEST_TAG = 256
_HEAD, _FOOT = struct.Struct("<QI"), struct.Struct("<I")
_DELTA = 0xA282EAD8
_FLOAT, _DOUBLE = 1, 2  # DataType


def _make_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _make_table()


def masked_crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of `data`, masked as records have it.

    >>> hex(masked_crc32c(b"123456789") - _DELTA & 0xFFFFFFFF)  # of 0xe3069283, rotated by 15 bits
    '0x2507c60d'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFFFFFF


def read_records(file: BinaryIO, offset: int, most: int) -> Iterator[tuple[bytes, int]]:
    """Yield records from where `file` stands, at `offset`, with the offset behind each, until `most` bytes were read.

    Long ones are empty. It ends before a record that is not whole yet, and for good at one that is damaged.
    """
    end, size = offset + most, file.seek(0, 2)
    while offset < end:
        file.seek(offset)
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return
        length, crc = _HEAD.unpack(head)
        after = offset + _HEAD.size + length + _FOOT.size
        if crc != masked_crc32c(head[:8]) or after > size:
            return
        data = b""
        if length <= LONGEST:
            data = file.read(length)
            if file.read(_FOOT.size) != _FOOT.pack(masked_crc32c(data)):
                return
        offset = after
        yield data, offset


def scalars_of(record: bytes) -> Iterator[tuple[int, str, float]]:
    """Yield (step, tag, value) of the scalars of an event; what is none of protobuf's has none."""
    try:
        fields = list(_fields(record))
        step = next((value for number, value in fields if number == 2 and isinstance(value, int)), 0)
        if step >= 1 << 63:  # of a negative number
            return
        for number, summary in fields:
            if number == 5 and isinstance(summary, bytes):
                for _, value in _fields(summary):
                    if isinstance(value, bytes) and (found := _scalar(value)) is not None:
                        yield step, *found
    except (ValueError, struct.error, IndexError):
        return


def _scalar(value: bytes) -> tuple[str, float] | None:
    tag, number = "", None
    for field, content in _fields(value):
        if not isinstance(content, bytes):
            continue
        if field == 1:
            tag = content[:LONGEST_TAG].decode(errors="replace")
        elif field == 2:
            number = _only("f", content)
        elif field == 8:
            number = _of_tensor(content)
    return (tag, number) if tag and number is not None else None


def _of_tensor(tensor: bytes) -> float | None:
    fields = dict(_fields(tensor))
    form = {_FLOAT: "f", _DOUBLE: "d"}.get(kind) if isinstance(kind := fields.get(1), int) else None
    content = fields.get(4) or fields.get({_FLOAT: 5, _DOUBLE: 6}.get(kind, 0) if isinstance(kind, int) else 0)
    return _only(form, content) if form and isinstance(content, bytes) else None


def _only(form: str, content: bytes) -> float | None:
    known = struct.Struct(f"<{form}")
    return float(known.unpack(content)[0]) if len(content) == known.size else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield a message's fields: number, and a whole number or bytes; ValueError where it is none."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            whole, at = _varint(message, at)
            yield key >> 3, whole
            continue
        if kind not in (1, 2, 5):
            raise ValueError("no message")
        length, at = _varint(message, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + length > len(message):
            raise ValueError("torn")
        yield key >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        byte = message[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("no number")
