"""A baked image as it lies on disk: a folder with the raw disk, what is in it, and whether it was seen working.

disk.raw        the disk: GPT, boots by BIOS and by UEFI
manifest.json   what went into it; `hash` names that, not the bits of the disk
sbom.cdx.json   the same as a bill of materials, with licences, for scanners
bake.log        all output of the build
changes.txt     packages that differ from the image that was there before
tested.json     written by `regiondag bake test` once everything passed
SHA256SUMS      digests of disk, manifest, bill and test, written by `regiondag bake sign`; SHA256SUMS.sig signs them
ami/            journals of uploads, one per AWS region
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from nnlib.util.files import write_atomically
from regiondag.errors import UsageError

TESTED = "tested.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an image was made of. Equal inputs give an equal `hash`."""

    suite: str
    htcondor: str
    python: str
    kernel: str
    driver: str  # none, closed or open
    driver_version: str  # empty without a driver
    pci_option: str  # the sentence that ami/provision/pci-option.sh recorded
    recipe: str  # hash of the files and options of the recipe
    packages: Mapping[str, str]  # Debian package or wheel: version
    fabric_manager: str = ""  # version of NVIDIA's, or empty

    @property
    def hash(self) -> str:
        """Return the sha256, in hex, of everything above."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Tested:
    """The record of a passed `regiondag bake test`."""

    disk_sha256: str
    manifest_hash: str
    date: str  # ISO 8601, UTC
    boots: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class DiskImage:
    """A baked image."""

    folder: Path
    manifest: Manifest

    @property
    def disk(self) -> Path:
        """The raw disk."""
        return self.folder / "disk.raw"

    def tested(self) -> Tested | None:
        """Return the record of its last passed test, or None; it may be of an earlier disk: compare the sha256."""
        try:
            values = json.loads((self.folder / TESTED).read_text(encoding="utf-8"))
            return Tested(**{**values, "boots": tuple(values["boots"])})
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None


def read_disk_image(path: Path) -> DiskImage:
    """Return the image in the folder `path`, or whose disk is the file `path`."""
    folder = path.parent if path.is_file() else path
    try:
        values = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        values.pop("hash")
        manifest = Manifest(**values)
    except (OSError, ValueError, TypeError, KeyError) as error:
        seen = error.strerror if isinstance(error, OSError) else "is damaged"
        raise UsageError(
            f"{path}: no image that regiondag baked: {folder}/manifest.json: {seen}; "
            "`regiondag bake image` makes one and prints its folder"
        ) from None
    image = DiskImage(folder, manifest)
    if not image.disk.is_file():
        raise UsageError(f"{folder}: disk.raw is missing; bake the image again")
    return image


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write manifest.json."""
    _write(folder / "manifest.json", {**asdict(manifest), "hash": manifest.hash})


def write_tested(image: DiskImage, tested: Tested) -> None:
    """Write tested.json."""
    _write(image.folder / TESTED, asdict(tested))


def _write(path: Path, values: Mapping[str, object]) -> None:
    write_atomically(path, json.dumps(values, indent=1, sort_keys=True) + "\n")
