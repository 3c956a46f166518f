"""Bake the worker's disk image, or find it in the cache: equal inputs give the same folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from nnlib.contract import sha256_of
from nnlib.util.files import replace_folder, sync, write_atomically
from regiondag.bake.artifact import DiskImage, Manifest, read_disk_image, write_manifest
from regiondag.bake.bill import Package, list_packages, write_bill
from regiondag.bake.changes import FILE as CHANGES
from regiondag.bake.changes import is_older, list_changes
from regiondag.bake.disk import TOOLS, make_disk
from regiondag.errors import BakeError, PoolError, UsageError
from regiondag.pool.machine import require_machine
from regiondag.pool.rootfs import IMAGE_FILE, find_unused, hold_build_lock, recipe_hash
from regiondag.pool.rootfs_build import (
    Target,
    Tell,
    as_owner,
    catch_interrupts,
    fetch_wheels,
    install_tools,
    root_in,
    run_mmdebstrap,
)
from regiondag.pool.suites import SUITES
from regiondag.util.instance_gpus import BLACKWELL_DRIVER
from regiondag.util.resources import resource_dir
from regiondag.util.user_dirs import cache_dir, make_dir

# The Python of each Debian release, for which wheels are fetched.
PYTHONS = {"trixie": "3.13", "forky": "3.14"}
FREE = "main"
NOT_FREE = "main contrib non-free non-free-firmware"  # where Debian keeps NVIDIA's driver


@dataclass(frozen=True)
class ImageWishes:
    """What an image is to be."""

    suite: str = "trixie"
    driver: str = "none"
    pci_option: bool = True
    least_driver: int = 0  # branch, such as 570; 0: any
    fabric_manager: bool = False  # whether an image without one will not do
    apt_source: Path | None = None  # a further apt source, such as NVIDIA's

    @property
    def options(self) -> tuple[str, ...]:
        """The arguments of provision.sh."""
        skip = () if self.pci_option else ("--skip-pci-option",)
        least = ("--least-driver", str(self.least_driver)) if self.least_driver else ()
        fabric = ("--fabric-manager",) if self.fabric_manager else ()
        return ("--outlet", "disk", "--driver", self.driver, *least, *fabric, *skip)

    @property
    def requirements(self) -> tuple[str, ...]:
        """The lists of wheels that it needs."""
        name = "requirements-gpu-blackwell.txt" if self.least_driver >= BLACKWELL_DRIVER else "requirements-gpu.txt"
        gpu = (name,) if self.driver != "none" else ()
        return ("requirements.txt", "requirements-worker.txt", *gpu)

    @property
    def kernels(self) -> tuple[Path, ...]:
        """The sources of nnlib's kernels, with which a worker's self-test keeps its GPUs busy."""
        return tuple(sorted(resource_dir("kernels").glob("*.cu*"))) if self.driver != "none" else ()


def image_hash(wishes: ImageWishes) -> str:
    """Return twelve digits that change with any file or option of the recipe, and with how the disk is made."""
    folder = resource_dir("ami") / "provision"
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc"]
    makers = [sha256_of(Path(__file__).with_name(name)) for name in ("disk.py", "bill.py")]
    source = (sha256_of(wishes.apt_source),) if wishes.apt_source else ()
    kernels = [sha256_of(path) for path in wishes.kernels]
    return recipe_hash(files, wishes.suite, *wishes.options, *makers, *source, *kernels, base=folder)


def check_apt_source(path: Path) -> Path:
    """Return the file's absolute path; UsageError for one that apt would not read."""
    if path.suffix not in (".sources", ".list") or not path.is_file():
        raise UsageError(f"--apt-source {path}: legal is a file that apt reads: NAME.sources, or NAME.list")
    return path.resolve()


def image_path(wishes: ImageWishes) -> Path:
    """Return where the image is, or will be, by today's recipe."""
    return cache_dir() / f"image-{wishes.suite}-{wishes.driver}-{image_hash(wishes)}"


def ensure_disk_image(
    wishes: ImageWishes, tell: Tell, rebuild: bool = False, max_age: float | None = None
) -> DiskImage:
    """Return the image; bake it if there is none, if it is older than `max_age` seconds, or if `rebuild` says so."""
    path = image_path(wishes)
    if max_age is not None:
        rebuild = rebuild or is_older(path, max_age, datetime.now(UTC))
    if rebuild or not (path / "manifest.json").is_file():
        make_dir(path.parent)
        with hold_build_lock(path.parent / f"image-{wishes.suite}.lock", tell), catch_interrupts():
            if rebuild or not (path / "manifest.json").is_file():
                _bake_again(path, wishes, tell)
            _remove_unused(keep=path)
    else:
        os.utime(path)
        tell(f"nothing has changed since this image was baked; --rebuild bakes it with today's packages: {path}")
    return read_disk_image(path)


def _remove_unused(keep: Path) -> None:
    """Remove images that nobody has asked for in a month: each edit of the recipe leaves one, of a gigabyte and more.

    One that was uploaded stays: its journal knows the snapshot.
    """
    for path in find_unused("image-*", [keep]):
        if not (path / "ami").exists():
            shutil.rmtree(path, ignore_errors=True)


def _bake_again(path: Path, wishes: ImageWishes, tell: Tell) -> None:
    """Bake; where an image was there, say and write down what has changed."""
    try:
        old = read_disk_image(path).manifest
    except UsageError:  # none, or a damaged one
        old = None
    _bake(path, wishes, tell)
    if old:
        lines = list_changes(old, read_disk_image(path).manifest)
        write_atomically(path / CHANGES, "".join(f"{line}\n" for line in lines))
        tell(
            "\n  ".join(
                [f"{len(lines)} packages differ from the image before:" if lines else "no package differs", *lines]
            )
        )


def _bake(path: Path, wishes: ImageWishes, tell: Tell) -> None:
    require_machine(["build"])
    install_tools(TOOLS)
    started = time.monotonic()
    log = path.with_name(f"{path.name}.log")

    def step(text: str) -> None:
        tell(f"[{time.monotonic() - started:4.0f} s] {text}")

    gpu = f", NVIDIA's {wishes.driver} driver (its module takes some minutes)" if wishes.driver != "none" else ""
    tell(f"baking Debian {wishes.suite} with HTCondor {SUITES[wishes.suite]}{gpu} in {path}")
    with _work_folder(path) as work:
        try:
            with log.open("w", encoding="utf-8") as output:
                image = _make(work, wishes, output, step)
            manifest, packages = _manifest(work, wishes)
        except (BakeError, PoolError) as error:
            raise BakeError(f"{error}\nall of its output is in {log}") from None
        log.replace(image / "bake.log")
        write_manifest(image, manifest)
        write_bill(image, manifest, packages)
        sync(image / "disk.raw")
        old = path.with_name(f".old-{path.name}")
        replace_folder(path, image, old)
        shutil.rmtree(old, ignore_errors=True)
    disk = path / "disk.raw"
    used = disk.stat().st_blocks * 512 >> 20
    step(f"done: {disk.stat().st_size >> 20} MB, of which {used} MB are used")


def _make(work: Path, wishes: ImageWishes, output: IO[str], step: Tell) -> Path:
    recipe = resource_dir("ami") / "provision"
    step("fetching Python wheels")
    for name in wishes.requirements:
        fetch_wheels(recipe / name, work / "wheels", output, PYTHONS[wishes.suite])
    lay_kernels(wishes, work / "wheels/kernels")
    components = FREE if wishes.driver == "none" else NOT_FREE
    target = Target(wishes.options, components, owners=True, apt_source=wishes.apt_source)
    run_mmdebstrap(wishes.suite, recipe, work, output, step, target)
    step("writing the disk")
    image = work / "image"
    image.mkdir()
    make_disk(root_in(work), image / "disk.raw", output)
    return image


def lay_kernels(wishes: ImageWishes, folder: Path) -> None:
    """Copy the kernels that the image is to have into a new folder; none: no folder."""
    for path in wishes.kernels:
        folder.mkdir(exist_ok=True)
        shutil.copy(path, folder)


def _manifest(work: Path, wishes: ImageWishes) -> tuple[Manifest, list[Package]]:
    root = root_in(work)
    recorded = read_image_facts((root / IMAGE_FILE).read_text(encoding="utf-8"))
    wheels = {key.removeprefix("WHEEL_"): value for key, value in recorded.items() if key.startswith("WHEEL_")}
    packages = list_packages(root, wheels)
    manifest = Manifest(
        suite=recorded["SUITE"],
        htcondor=recorded["HTCONDOR"],
        python=recorded["PYTHON"],
        kernel=recorded["KERNEL"],
        driver=recorded["DRIVER"],
        driver_version=recorded.get("DRIVER_VERSION", ""),
        pci_option=recorded["PCI_OPTION"],
        recipe=image_hash(wishes),
        packages={package.name: package.version for package in packages},
        fabric_manager="" if (found := recorded.get("FABRIC_MANAGER", "none")) == "none" else found,
    )
    return manifest, packages


def read_image_facts(text: str) -> dict[str, str]:
    """Return the KEY=VALUE lines of /etc/regiondag-image; quotes around a value are left out."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key: value.strip('"') for key, value in pairs}


@contextlib.contextmanager
def _work_folder(path: Path) -> Iterator[Path]:
    """Give a folder for the build that is gone afterwards: in the cache, or where whoever builds may enter."""
    base = path.parent if os.geteuid() == 0 else Path("/var/tmp")  # noqa: S108 - mkdtemp makes a folder of its own
    _remove(base.glob(f".baking-{os.getuid()}-*"))  # of builds that were killed, for we hold the lock
    work = Path(tempfile.mkdtemp(prefix=f".baking-{os.getuid()}-", dir=base))
    work.chmod(0o711)
    try:
        yield work
    finally:
        _remove([work])


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        if root_in(folder).exists():
            subprocess.run(as_owner(["rm", "-rf", str(root_in(folder))]), capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
