"""Bytes of a folder on the disk, as `du` counts them."""

from __future__ import annotations

import os
import subprocess

from regiondag.accounting.disk import measure


def test_as_du_counts(tmp_path):
    folder = tmp_path / "run"
    (folder / "regions/a").mkdir(parents=True)
    (folder / "data").write_bytes(b"x" * 100_000)
    os.link(folder / "data", folder / "regions/a/data")
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    (tmp_path / "outside").write_bytes(b"x" * 1_000_000)
    (folder / "regions/link").symlink_to(tmp_path / "outside")
    (folder / "regions/circle").symlink_to(folder)
    du = subprocess.run(["du", "-s", "-B1", folder], capture_output=True, text=True, check=True).stdout
    own = folder.stat().st_blocks * 512
    assert measure(folder) == int(du.split()[0]) - own
    assert measure(tmp_path / "nothing") == 0
