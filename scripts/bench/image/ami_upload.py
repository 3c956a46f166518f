"""How long `regiondag bake ami` takes for 500 MB, beside a plain loop, against a server here."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nnlib.contract import sha256_of
from regiondag.bake.artifact import DiskImage, Manifest, Tested, write_manifest, write_tested
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import Measured, NotMeasuredError, measure, middle, module

BENCH = "ami_upload"
REGION = "eu-central-1"
GOAL = 20.0  # seconds, for 500 MB


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    megabytes: int = 500
    repeats: int = 3
    limit: float = 180  # seconds, of one side


QUICK = Sizes(megabytes=50, repeats=1, limit=60)


class Upload(Bench[Sizes]):
    """The rows."""

    def upload(self) -> Iterator[Row]:
        """A disk without any zeros becomes a snapshot and an AMI."""
        image = _make_image(self.area / "image", self.sizes.megabytes * 10**6)
        ours: list[str | Path] = [sys.executable, "-m", "regiondag", "bake", "ami", image.folder, "--region", REGION]
        peer = module("image.ami_upload_peer", image.disk, REGION)
        runs = [[self._run(argv, image) for argv in (ours, peer)] for _ in range(self.sizes.repeats)]
        our, its = (middle(found) for found in zip(*runs, strict=True))
        name = f"upload of {self.sizes.megabytes} MB and registration, moto's server on the same machine"
        note = (
            "the server takes most of both cores' time; over a real network what counts is that 16 blocks travel at "
            f"a time. Peak memory: ours {our.peak_mb:.0f} MB, peer {its.peak_mb:.0f} MB. Ours also reads "
            "the disk once more, to see that it is the tested one, and keeps its journal"
        )
        yield Row(name, our.seconds, its.seconds, "s", goal=GOAL, note=note)

    def _run(self, argv: list[str | Path], image: DiskImage) -> Measured:
        shutil.rmtree(image.folder / "ami", ignore_errors=True)  # the journal: nothing is resumed here
        with _server(self.area / "server.log") as environment:
            measured = measure(argv, timeout=self.sizes.limit, env=environment)
            blocks = measure(module("image.ami_upload_peer", "count", REGION), env=environment).output.strip()
        expected = str(-(-image.disk.stat().st_size // 524288))
        if blocks != expected:
            raise NotMeasuredError(f"{argv[2]} left {blocks} blocks in the snapshot, not {expected}")
        return measured


def _make_image(folder: Path, size: int) -> DiskImage:
    """Make an image of random bytes that counts as tested."""
    manifest = Manifest("trixie", "23.9.6", "3.13", "6.12", "none", "", "", "ab" * 32, {})
    image = DiskImage(folder, manifest)
    folder.mkdir()
    with image.disk.open("wb") as file:
        for begin in range(0, size, 1 << 20):
            file.write(os.urandom(min(1 << 20, size - begin)))
    write_manifest(folder, manifest)
    write_tested(image, Tested(sha256_of(image.disk), manifest.hash, "2026-11-22T00:00:00Z", ()))
    return image


@contextmanager
def _server(log: Path) -> Iterator[dict[str, str]]:
    """Start a server that knows nothing yet; give what makes clients use it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
        try:
            _wait_for(port, server, log)
            yield {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_CONFIG_FILE": os.devnull,
                "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            }
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.1)
    raise NotMeasuredError(f"moto's server does not start: {log.read_text(errors='replace')[-300:]}")


if __name__ == "__main__":
    sys.exit(main(BENCH, Upload, Sizes(), QUICK))
