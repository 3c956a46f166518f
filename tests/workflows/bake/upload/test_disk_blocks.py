"""Blocks of sparse disks: nothing that holds data is missed, wherever the holes are."""

from __future__ import annotations

import errno
import hashlib
import os

from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.contract import sha256_of
from regiondag.bake.upload import disk_blocks
from regiondag.bake.upload.disk_blocks import BLOCK, ZEROS, list_used_blocks, read_block, read_disk
from regiondag.bake.upload.snapshot import linear_checksum
from tests.workflows.bake.conftest import write_disk


@settings(max_examples=40)
@given(
    st.dictionaries(st.integers(0, 11), st.sampled_from([b"x", b"\0\0", b"y" * 5000, bytes(4096)])),
    st.integers(0, 12 * BLOCK + 7),
)
def test_a_disk_is_the_sum_of_its_blocks(tmp_path_factory, parts, size):
    path = tmp_path_factory.mktemp("disk") / "disk.raw"
    write_disk(path, parts, size)
    plain = path.read_bytes()
    disk = read_disk(path)
    assert (disk.size, disk.sha256) == (size, sha256_of(path))
    expected = {}
    for number in range(-(-size // BLOCK)):
        block = plain[number * BLOCK : (number + 1) * BLOCK].ljust(BLOCK, b"\0")
        if any(block):
            expected[number] = hashlib.sha256(block).hexdigest()
    assert disk.blocks == expected
    assert disk.gib == 1


def test_holes_are_not_read(tmp_path):
    path = tmp_path / "disk.raw"
    write_disk(path, {1: b"a", 9: b"b" * (BLOCK + 1)}, 5 << 30)
    with path.open("rb") as file:
        used = list_used_blocks(file.fileno())
    assert {1, 9, 10} <= set(used)
    assert len(used) < 10
    assert used == sorted(used)


def test_a_file_system_without_holes(tmp_path, monkeypatch):
    path = tmp_path / "disk.raw"
    write_disk(path, {1: b"a"}, 4 * BLOCK)

    def unknown(descriptor: int, offset: int, whence: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "lseek", unknown)
    with path.open("rb") as file:
        assert list_used_blocks(file.fileno()) == [0, 1, 2, 3]
    assert list(read_disk(path).blocks) == [1]


def test_short_reads_and_the_last_block(tmp_path, monkeypatch):
    path = tmp_path / "disk.raw"
    write_disk(path, {0: b"a" * BLOCK, 1: b"tail"}, BLOCK + 4)
    real = os.pread
    monkeypatch.setattr(
        disk_blocks.os, "pread", lambda descriptor, size, offset: real(descriptor, min(size, 1000), offset)
    )
    with path.open("rb") as file:
        assert read_block(file.fileno(), 0) == b"a" * BLOCK
        assert read_block(file.fileno(), 1) == b"tail".ljust(BLOCK, b"\0")
        assert read_block(file.fileno(), 2) == ZEROS


def test_linear_checksum_joins_the_digests_in_order_of_the_blocks():
    one, two = hashlib.sha256(b"1"), hashlib.sha256(b"2")
    joined = hashlib.sha256(one.digest() + two.digest()).digest()
    import base64

    assert linear_checksum({9: two.hexdigest(), 2: one.hexdigest()}) == base64.b64encode(joined).decode()
