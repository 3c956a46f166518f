"""What makes two images the same, and what is written down about one. No build."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest

from regiondag.bake import artifact
from regiondag.bake import image as baking
from regiondag.bake.artifact import DiskImage, Manifest, read_disk_image, write_manifest, write_tested
from regiondag.bake.image import ImageWishes
from regiondag.cli import main
from regiondag.errors import UsageError
from regiondag.util.resources import resource_dir

MANIFEST = Manifest(
    "trixie", "23.9.6", "3.13.5", "6.12.1-cloud-amd64", "none", "", "no driver: ...", "ab12", {"a": "1"}
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe that can be edited."""
    folder = tmp_path / "ami"
    (folder / "provision/files/etc").mkdir(parents=True)
    (folder / "provision/10-base.sh").write_text("true\n")
    (folder / "provision/files/etc/a.conf").write_text("a\n")
    (folder / "README.md").write_text("not part of it\n")
    monkeypatch.setattr(baking, "resource_dir", lambda name: folder)
    return folder


def test_the_hash_follows_recipe_and_options_and_nothing_else(recipe: Path) -> None:
    first = baking.image_hash(ImageWishes())
    assert first == baking.image_hash(ImageWishes())
    (recipe / "README.md").write_text("edited\n")
    (recipe / "provision/files/etc/a.pyc").write_text("made by running it\n")
    assert baking.image_hash(ImageWishes()) == first
    others = {baking.image_hash(ImageWishes("forky")), baking.image_hash(ImageWishes(driver="closed"))}
    others.add(baking.image_hash(ImageWishes(pci_option=False)))
    (recipe / "provision/files/etc/a.conf").rename(recipe / "provision/files/etc/b.conf")
    others.add(baking.image_hash(ImageWishes()))
    assert len(others - {first}) == 4


def test_the_root_folders_hash_does_not_follow_what_is_for_machines() -> None:
    from regiondag.pool.rootfs import recipe_files

    names = {path.name for path in recipe_files()}
    assert {"provision.sh", "common.sh", "unpack-wheels.sh", "10-base.sh", "90-clean.sh", "requirements.txt"} <= names
    assert not names & {"40-boot.sh", "60-worker.sh", "requirements-gpu.txt", "scan.py", "pci-option.sh"}


def test_wishes_become_arguments_and_lists_of_wheels() -> None:
    assert ImageWishes().options == ("--outlet", "disk", "--driver", "none")
    assert ImageWishes(driver="open", pci_option=False).options[-3:] == ("--driver", "open", "--skip-pci-option")
    assert "requirements-gpu.txt" not in ImageWishes().requirements
    assert "requirements-gpu.txt" in ImageWishes(driver="closed").requirements
    for wishes in (ImageWishes(), ImageWishes(driver="closed")):
        assert all((resource_dir("ami") / "provision" / name).is_file() for name in wishes.requirements)


def test_an_image_with_a_driver_has_nnlibs_kernels_and_follows_them(recipe: Path, tmp_path: Path) -> None:
    for name in ("gather.cu", "batch.cuh", "README.md"):
        (recipe / name).write_text(name)
    none, closed = ImageWishes(), ImageWishes(driver="closed")
    for wishes in (none, closed):
        (tmp_path / wishes.driver).mkdir()
        baking.lay_kernels(wishes, tmp_path / wishes.driver / "kernels")
    assert not (tmp_path / "none/kernels").exists()
    assert {path.name for path in (tmp_path / "closed/kernels").iterdir()} == {"gather.cu", "batch.cuh"}
    before = [baking.image_hash(wishes) for wishes in (none, closed)]
    (recipe / "batch.cuh").write_text("edited")
    after = [baking.image_hash(wishes) for wishes in (none, closed)]
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_what_the_recipe_recorded_is_read_back() -> None:
    text = 'HTCONDOR=23.9.6\nPCI_OPTION="known: driver 418 honours NVreg_CheckPCIConfigSpace=0"\n\nSUITE=trixie\n'
    assert baking.read_image_facts(text) == {
        "HTCONDOR": "23.9.6",
        "PCI_OPTION": "known: driver 418 honours NVreg_CheckPCIConfigSpace=0",
        "SUITE": "trixie",
    }


def make_image(folder: Path, manifest: Manifest = MANIFEST) -> DiskImage:
    folder.mkdir()
    (folder / "disk.raw").write_bytes(b"disk")
    write_manifest(folder, manifest)
    return read_disk_image(folder)


def test_a_manifest_comes_back_as_it_was_written(tmp_path: Path) -> None:
    image = make_image(tmp_path / "image")
    assert image.manifest == MANIFEST
    assert read_disk_image(image.disk) == image, "the disk's name will do as well"
    assert json.loads((image.folder / "manifest.json").read_text())["hash"] == MANIFEST.hash


def test_equal_inputs_have_an_equal_hash_and_others_do_not() -> None:
    again = dataclasses.replace(MANIFEST, packages=dict(MANIFEST.packages))
    assert again.hash == MANIFEST.hash
    assert dataclasses.replace(MANIFEST, packages={"a": "2"}).hash != MANIFEST.hash
    assert dataclasses.replace(MANIFEST, pci_option="skipped: ...").hash != MANIFEST.hash


def test_the_record_of_a_test_comes_back_and_a_damaged_one_counts_for_nothing(tmp_path: Path) -> None:
    image = make_image(tmp_path / "image")
    assert image.tested() is None
    record = artifact.Tested("ab" * 32, MANIFEST.hash, "2026-01-01T00:00:00Z", ({"firmware": "bios"},))
    write_tested(image, record)
    assert image.tested() == record
    (image.folder / "tested.json").write_text('{"disk_sha256": "ab')
    assert image.tested() is None


@pytest.mark.parametrize("damage", ["missing", "torn", "of another kind"])
def test_a_folder_without_an_image_says_what_makes_one(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    texts = {"torn": '{"suite": "tri', "of another kind": '{"hash": "x", "suite": "trixie"}'}
    if damage in texts:
        (folder / "manifest.json").write_text(texts[damage])
    with pytest.raises(UsageError, match="`regiondag bake image` makes one"):
        read_disk_image(folder)


def test_test_and_ami_without_an_image_say_what_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("test", "ami"):
        assert main(["bake", verb]) == 2
        assert "no image is baked by today's recipe; first: regiondag bake image" in capsys.readouterr().err


def test_a_cached_image_is_found_and_not_baked_again(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = baking.image_path(ImageWishes())
    path.parent.mkdir(parents=True)
    make_image(path)
    monkeypatch.setattr(baking, "_bake", lambda *_: pytest.fail("baked again"))
    assert main(["bake", "image"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}\n"
    assert "--rebuild bakes it with today's packages" in err


def test_images_that_nobody_asked_for_in_a_month_are_removed_but_for_uploaded_ones(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bake(path: Path, *_: object) -> None:
        make_image(path)

    monkeypatch.setattr(baking, "_bake", bake)
    path = baking.image_path(ImageWishes())
    path.parent.mkdir(parents=True)
    for name in ("old", "uploaded", "new"):
        make_image(path.with_name(f"image-{name}"))
    path.with_name("image-uploaded").joinpath("ami").mkdir()
    for name in ("old", "uploaded"):
        os.utime(path.with_name(f"image-{name}"), (0, 0))
    assert main(["bake", "image"]) == 0
    assert {each.name for each in path.parent.glob("image-*") if each.is_dir()} == {
        path.name,
        "image-uploaded",
        "image-new",
    }
