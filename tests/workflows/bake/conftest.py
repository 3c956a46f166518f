"""A small baked image that has passed its test, and a region of AWS to upload it to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest
from botocore.loaders import create_loader

from nnlib.contract import sha256_of
from regiondag.bake.artifact import DiskImage, Manifest, Tested, write_manifest, write_tested
from regiondag.bake.upload import register, snapshot
from regiondag.util import aws as aws_module
from tests.workflows.fake_aws import FakeAws, environment, serve

MANIFEST = Manifest(
    suite="trixie",
    htcondor="23.9.6",
    python="3.13.5",
    kernel="6.12.107+deb13-cloud-amd64",
    driver="closed",
    driver_version="550.163.01",
    pci_option="not written",
    recipe="ab" * 32,
    packages={"condor": "23.9.6+dfsg-2.1"},
)
BLOCK = 512 * 1024


def write_disk(path: Path, blocks: dict[int, bytes], size: int) -> None:
    """Write a sparse disk."""
    with path.open("wb") as file:
        for number, data in blocks.items():
            file.seek(number * BLOCK)
            file.write(data)
        file.truncate(size)


def make_image(folder: Path, blocks: dict[int, bytes], size: int, manifest: Manifest = MANIFEST) -> DiskImage:
    """Make an image whose test has passed."""
    folder.mkdir()
    image = DiskImage(folder, manifest)
    write_disk(image.disk, blocks, size)
    write_manifest(folder, manifest)
    write_tested(image, Tested(sha256_of(image.disk), manifest.hash, "2026-11-22T10:00:00Z", ()))
    return image


@pytest.fixture(scope="session")
def loader() -> object:
    """botocore's descriptions of the services, read once: EC2's alone take 0.3 s."""
    return create_loader()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, loader: object) -> Iterator[FakeAws]:
    """A region, with nothing to wait for."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for module, name, seconds in (
        (snapshot, "POLL", 0.01),
        (snapshot, "PAUSE", 0.01),
        (register, "POLL", 0.01),
    ):
        monkeypatch.setattr(module, name, seconds)
    monkeypatch.setattr(aws_module, "RETRIES", 4)
    monkeypatch.setattr(botocore.session, "create_loader", lambda _path: loader)
    with serve() as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def image(tmp_path: Path) -> DiskImage:
    """Data in blocks 0, 3, 7 and the last one, which is short; zeros that are written in block 5; holes elsewhere."""
    blocks = {0: b"boot" * 100, 3: os.urandom(BLOCK), 5: bytes(BLOCK), 7: os.urandom(BLOCK), 9: b"end"}
    return make_image(tmp_path / "image", blocks, 9 * BLOCK + 1000)
