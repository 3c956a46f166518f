"""The real thing: bake the worker's image, look into it, boot it, and boot it wrongly. Takes minutes.

`scripts/test` runs these last, and alone: an emulated machine needs both cores, and its kernel panics ("IO-APIC + timer
doesn't work") where ticks come too late. `scripts/test --no-boot` leaves them out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnlib.contract import sha256_of
from regiondag.bake import bill, contents
from regiondag.bake.artifact import DiskImage, read_disk_image
from regiondag.bake.boot import boot_test
from regiondag.bake.image import ImageWishes, ensure_disk_image
from regiondag.cli import main
from regiondag.errors import BakeError
from regiondag.util.resources import resource_dir

# {"iss":"bake.test","sub":"condor@bake.test"}
CLAIMS = "eyJpc3MiOiJiYWtlLnRlc3QiLCJzdWIiOiJjb25kb3JAYmFrZS50ZXN0In0"

pytestmark = [pytest.mark.slow, pytest.mark.boot, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def image() -> DiskImage:
    """Today's image; baked if it is not in the cache."""
    return ensure_disk_image(ImageWishes(), print)


@pytest.fixture
def copy(image: DiskImage) -> Iterator[DiskImage]:
    """A copy to break. It lies in the cache, for in /tmp there may be no room."""
    folder = image.folder.with_name(f"{image.folder.name}-broken")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    subprocess.run(["cp", "--sparse=always", image.disk, folder], check=True)
    shutil.copy(image.folder / "manifest.json", folder)
    try:
        yield read_disk_image(folder)
    finally:
        shutil.rmtree(folder)


def test_the_image_is_small_sound_and_says_what_is_in_it(image: DiskImage, tmp_path: Path) -> None:
    assert image.disk.stat().st_size < 1.5e9
    manifest = image.manifest
    assert manifest.htcondor.startswith("23.9.")
    assert manifest.packages["condor"].startswith(manifest.htcondor)
    assert manifest.kernel.endswith("-cloud-amd64")
    assert manifest.packages["numba"] == "0.68.1"
    assert manifest.pci_option.startswith("no driver: NVreg_CheckPCIConfigSpace=0 is set")
    inside = contents.debugfs(image.disk, ["cat /etc/modprobe.d/regiondag-nvidia.conf", "cat /etc/regiondag-image"])
    for module in ("nvidia", "nvidia-current"):
        assert f"options {module} NVreg_CheckPCIConfigSpace=0" in inside
    assert f"KERNEL={manifest.kernel}" in inside
    clock = contents.debugfs(image.disk, ["cat /etc/chrony/chrony.conf"])
    assert "\nmakestep 1.0 3\n" in clock
    assert "\nserver 169.254.169.123 prefer " in clock
    found = json.loads((image.folder / bill.FILE).read_text())
    assert {part["name"]: part["version"] for part in found["components"]} == manifest.packages
    licensed = [part["name"] for part in found["components"] if "licenses" in part]
    assert len(licensed) > len(found["components"]) / 2
    assert contents.find_missing(image.disk) == []


def test_the_image_holds_no_secret(image: DiskImage, tmp_path: Path) -> None:
    for folder in ("etc", "root", "home", "var/log", "var/lib/cloud", "var/lib/systemd", "usr/local/etc"):
        (tmp_path / folder).parent.mkdir(parents=True, exist_ok=True)
        contents.debugfs(image.disk, [f"rdump /{folder} {(tmp_path / folder).parent}"])
    assert (tmp_path / "etc/shadow").is_file()
    scan = resource_dir("ami") / "provision/scan.py"
    done = subprocess.run([sys.executable, scan, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_workers_life(image: DiskImage, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bake", "test", str(image.folder)]) == 0
    tested = image.tested()
    assert tested
    assert tested.disk_sha256 == sha256_of(image.disk)
    by_bios, by_uefi = tested.boots
    assert by_bios["firmware"] == "bios"
    assert by_bios["hardening"] == "22/22"
    assert 0 < by_bios["checkpoint_safe"] <= by_bios["off"]
    assert by_uefi["firmware"] == "uefi"
    assert str(by_uefi["root"]).startswith("/dev/nvme")
    assert by_uefi["idle_until_off"] > 0
    assert "spot notice" in capsys.readouterr().err


def test_a_worker_with_a_wrong_token_is_refused_with_the_reason(image: DiskImage) -> None:
    token = ".".join(["eyJhbGciOiJIUzI1NiIsImtpZCI6IlBPT0wifQ", CLAIMS, "c2lnbmVkIGJ5IG5vYm9keQ"])
    before = image.tested()
    with pytest.raises(BakeError, match=r"(?s)refused to join: regiondag-join: .*refuses the token") as caught:
        boot_test.boot_test(image, print, worker={"token": {"text": token}})
    assert token not in str(caught.value)
    assert image.tested() is None, "an image that failed counts as tested no more"
    if before:
        boot_test.write_tested(image, before)


def test_an_image_without_htcondor_is_refused_before_it_is_booted(copy: DiskImage) -> None:
    contents.debugfs(copy.disk, ["rm /usr/sbin/condor_master"], write=True)
    with pytest.raises(BakeError, match="lacks /usr/sbin/condor_master; bake it again"):
        boot_test.boot_test(copy, print)
    assert copy.tested() is None


def test_an_image_of_another_series_than_the_managers_is_refused_before_it_is_booted(image: DiskImage) -> None:
    before = image.tested()
    with pytest.raises(BakeError, match=r"this image has HTCondor 23\.9\..*the manager of forky 25\.14.*--suite forky"):
        boot_test.boot_test(image, print, manager_suite="forky")
    assert image.tested() == before
