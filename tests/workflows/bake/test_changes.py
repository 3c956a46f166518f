"""What differs between two images, and which one is too old."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from regiondag.bake import image as baking
from regiondag.bake.artifact import write_manifest
from regiondag.bake.bill import write_bill
from regiondag.bake.changes import FILE, is_older, list_changes
from regiondag.bake.image import ImageWishes, ensure_disk_image
from regiondag.cli import main
from tests.workflows.bake.conftest import MANIFEST

OLD = dataclasses.replace(MANIFEST, packages={"condor": "23.9.6", "openssl": "3.5.1-1", "gone": "1"})
NEW = dataclasses.replace(MANIFEST, packages={"condor": "23.9.6", "openssl": "3.5.1-1+deb13u1", "libnew": "2"})
LINES = ["gone: 1 is gone", "libnew: 2 is new", "openssl: 3.5.1-1 -> 3.5.1-1+deb13u1"]
DAY = 86400.0


def write_image(folder: Path, manifest=OLD) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "disk.raw").write_bytes(b"disk")
    write_manifest(folder, manifest)
    write_bill(folder, manifest, [])
    return folder


@pytest.fixture
def cached(tmp_path, monkeypatch) -> Path:
    """The image in the cache, baked now; baking it again takes today's packages."""
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(baking, "_bake", lambda path, *_: write_image(path, NEW))
    return write_image(baking.image_path(ImageWishes()))


def test_each_package_that_differs_is_a_line(tmp_path, capsys):
    assert list_changes(OLD, NEW) == LINES
    assert list_changes(OLD, OLD) == []
    old, new = write_image(tmp_path / "old", OLD), write_image(tmp_path / "new", NEW)
    assert main(["bake", "changes", str(old), str(new)]) == 0
    assert capsys.readouterr().out.splitlines() == LINES


def test_an_image_that_is_too_old_is_baked_anew_and_says_what_is_new(cached):
    said: list[str] = []
    assert ensure_disk_image(ImageWishes(), said.append, max_age=DAY).manifest == OLD
    assert not (cached / FILE).exists()
    assert ensure_disk_image(ImageWishes(), said.append, max_age=-1.0).manifest == NEW
    assert said[-1].splitlines()[0] == "3 packages differ from the image before:"
    assert (cached / FILE).read_text().splitlines() == LINES
    ensure_disk_image(ImageWishes(), said.append, rebuild=True)
    assert said[-1] == "no package differs" and (cached / FILE).read_text() == ""


def test_its_age_is_that_of_its_bill(tmp_path):
    folder = write_image(tmp_path / "image")
    now = datetime.now(UTC)
    assert not is_older(folder, DAY, now)
    assert is_older(folder, DAY, now + timedelta(seconds=DAY + 2))
    for text in (
        "",
        "[]",
        '{"metadata": {"timestamp": "yesterday"}}',
        '{"metadata": {"timestamp": "2026-11-28T07:00:00"}}',
    ):
        (folder / "sbom.cdx.json").write_text(text)
        assert is_older(folder, DAY, now), "who cannot say how old it is may be too old"


@pytest.mark.parametrize(("text", "legal"), [("7d", True), ("90m", True), ("7", False), ("soon", False), ("0d", False)])
def test_ages_are_durations(cached, capsys, text, legal):
    if legal:
        assert main(["bake", "image", "--max-age", text]) == 0
        assert capsys.readouterr().out == f"{cached}\n"
    else:
        with pytest.raises(SystemExit):
            main(["bake", "image", "--max-age", text])
        assert "a duration such as 90s, 30m, 2h or 1d" in " ".join(capsys.readouterr().err.split())
