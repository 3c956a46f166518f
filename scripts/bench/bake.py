"""How long the worker's image takes to bake and to boot, and how large it is."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regiondag.bake.artifact import DiskImage, read_disk_image
from regiondag.bake.image import ImageWishes, image_path
from regiondag.pool.rootfs_build import apt_settings, debian_sources
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import NotMeasuredError, in_turn, measure

BENCH = "bake"
BAKE_GOAL = 120.0  # seconds, with packages near by
SIZE_GOAL = 1500.0  # MB of the raw disk, without a driver
POWER_ON_GOAL = 90.0  # seconds from power-on to an advertised slot, on an emulated processor
NOTICE = 120.0  # seconds that a spot notice leaves

# What the image has of Debian's packages, for the peer.
PACKAGES = (
    *("systemd-sysv", "systemd-resolved", "udev", "dbus", "kmod", "iproute2", "zstd", "initramfs-tools", "cloud-init"),
    *("linux-image-cloud-amd64", "cloud-guest-utils", "dhcpcd-base", "e2fsprogs", "openssh-server", "condor"),
    *("python3-numpy", "python3-scipy", "python3-netcdf4", "libopenblas0-pthread", "python3-sklearn", "python3-jinja2"),
    *("python3-yaml", "python3-platformdirs", "python3-rich", "nftables", "pciutils", "ca-certificates"),
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured; the quick run looks at what is in the cache."""

    repeats: int = 1  # minutes each
    boot: bool = True


QUICK = Sizes(repeats=0, boot=False)


class Bake(Bench[Sizes]):
    """The rows."""

    def bake(self) -> Iterator[Row]:
        """Debian's packages are downloaded again on both sides, from the mirror that this host has."""
        if not self.sizes.repeats:
            raise NotMeasuredError("baking takes minutes; --quick leaves it out")
        hashes = {self._image().manifest.hash}

        def ours() -> float:
            seconds = measure([sys.executable, "-m", "regiondag", "bake", "image", "--rebuild"], timeout=900).seconds
            hashes.add(read_disk_image(image_path(ImageWishes())).manifest.hash)
            return seconds

        seconds = in_turn({"ours": ours, "peer": self._peer}, self.sizes.repeats)
        if len(hashes) != 1:
            raise NotMeasuredError(
                "the image in the cache and one baked anew have different manifests; are packages new?"
            )
        name = "bake image (Debian 13, no driver), beside debvm-create with the same packages of Debian"
        note = "debvm's has no boot loader, no wheels, no compiled Python and no scan; it is a root file system"
        yield Row(name, seconds["ours"], seconds["peer"], "s", goal=BAKE_GOAL, note=note)

    def _peer(self) -> float:
        if shutil.which("debvm-create") is None:
            raise NotMeasuredError("the peer is missing: apt-get install debvm genext2fs")
        said = [
            subprocess.run(argv, capture_output=True, text=True, check=True).stdout
            for argv in (
                ["apt-config", "dump"],
                ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(RELEASE)|$(REPO_URI)"],
            )
        ]
        settings = [f"--aptopt={setting}" for setting in apt_settings(said[0])]
        target = self.area / "debvm.ext4"
        target.unlink(missing_ok=True)
        argv: list[str | Path] = ["debvm-create", "-r", "trixie", "-o", target, "-z", "4G", "--"]
        argv += [f"--include={','.join(PACKAGES)}", *settings, *debian_sources(said[1], "trixie")]
        return measure(argv, timeout=900, env={"TMPDIR": str(self.area)}).seconds

    def size(self) -> Iterator[Row]:
        """The disk, holes counted as if they were not."""
        image = self._image()
        used = image.disk.stat().st_blocks * 512 / 1e6
        note = f"{used:.0f} MB of it are used, and uploaded"
        yield Row("raw image without a driver", image.disk.stat().st_size / 1e6, None, "MB", goal=SIZE_GOAL, note=note)

    def boot(self) -> Iterator[Row]:
        """`regiondag bake test` measures it on its way."""
        if not self.sizes.boot:
            raise NotMeasuredError("booting takes minutes; --quick leaves it out")
        image = self._image()
        words = ["-m", "regiondag", "bake", "test", "--acceleration", "tcg"]
        measure([sys.executable, *words, image.folder], timeout=1500)
        tested = image.tested()
        if not tested:
            raise NotMeasuredError("bake test left no record")
        by_bios, by_uefi = tested.boots
        for name, boot in (("BIOS", by_bios), ("UEFI", by_uefi)):
            workload = f"power-on to an advertised slot, by {name}, without hardware virtualization"
            yield Row(workload, float(str(boot["has_joined"])), None, "s", goal=POWER_ON_GOAL)
        workload = "spot notice to a checkpoint that is back at the manager, emulated processor"
        yield Row(workload, float(str(by_bios["checkpoint_safe"])), None, "s", goal=NOTICE)

    def _image(self) -> DiskImage:
        path = image_path(ImageWishes())
        if not path.is_dir():
            raise NotMeasuredError("no image in the cache; first: regiondag bake image")
        return read_disk_image(path)


if __name__ == "__main__":
    sys.exit(main(BENCH, Bake, Sizes(), QUICK))
