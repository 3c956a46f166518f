"""The bill of materials of an image: CycloneDX 1.6 as JSON, from dpkg's database, copyright files and the wheels.

Packages are named by purl (pkg:deb/debian/NAME@VERSION, pkg:pypi/NAME@VERSION), so that scanners know them offline.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from nnlib.util.files import write_atomically
from regiondag.bake.artifact import Manifest

FILE = "sbom.cdx.json"
SPEC = "1.6"
NAMESPACE = uuid.UUID("6c1f3a0e-5a57-4c0e-9b0e-2f7d1f0a9b51")  # of ours: the same manifest has the same serial number
MOST_LICENCES = 20
LICENCE = re.compile(r"^License:[ \t]*(\S[^\n]{0,120})$", re.M)
FIELDS = re.compile(r"^(Package|Version|Status|Architecture|Source): (.*)$", re.M)


@dataclass(frozen=True, slots=True)
class Package:
    """A package of Debian's, or a wheel."""

    kind: str  # deb or pypi
    name: str
    version: str
    architecture: str = ""
    source: str = ""  # Debian's source package, by which its security tracker knows it
    licences: tuple[str, ...] = ()  # as its copyright file names them

    @property
    def purl(self) -> str:
        """Its package URL."""
        if self.kind == "pypi":
            return f"pkg:pypi/{quote(re.sub(r'[-_.]+', '-', self.name).lower())}@{quote(self.version)}"
        return f"pkg:deb/debian/{quote(self.name)}@{quote(self.version, safe='')}?arch={self.architecture}"


def list_installed(status: str) -> Iterator[Package]:
    """Yield every installed package in the text of /var/lib/dpkg/status."""
    for paragraph in status.split("\n\n"):
        fields: dict[str, str] = dict(FIELDS.findall(paragraph))
        if fields.get("Status", "").endswith(" installed"):
            source = fields.get("Source", fields["Package"]).partition(" ")[0]
            yield Package("deb", fields["Package"], fields["Version"], fields.get("Architecture", ""), source)


def find_licences(copyright_text: str) -> tuple[str, ...]:
    """Return the licences that a machine-readable copyright file (DEP-5) names; none of another one."""
    if not copyright_text.startswith("Format:"):
        return ()
    return tuple(dict.fromkeys(LICENCE.findall(copyright_text)))[:MOST_LICENCES]


def list_packages(root: Path, wheels: Mapping[str, str]) -> list[Package]:
    """Return what is in a root folder, and the wheels unpacked in it (name: version)."""
    found = []
    for package in list_installed((root / "var/lib/dpkg/status").read_text(encoding="utf-8")):
        text = _read(root / "usr/share/doc" / package.name / "copyright", root)
        found.append(replace(package, licences=find_licences(text)))
    return [*found, *(Package("pypi", name, version) for name, version in wheels.items())]


def _read(path: Path, root: Path) -> str:
    """Return a text of the root folder, or nothing; its links are not followed out of it."""
    try:
        inside = path.resolve().is_relative_to(root.resolve())
        return path.read_text(encoding="utf-8", errors="replace") if inside else ""
    except OSError:
        return ""


def make_bill(manifest: Manifest, packages: Iterable[Package], date: str) -> dict[str, object]:
    """Return the bill of an image that was baked at `date` (ISO 8601, UTC)."""
    components = sorted(packages, key=lambda package: package.purl)
    facts = {"kernel": manifest.kernel, "driver": f"{manifest.driver} {manifest.driver_version}".strip()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC,
        "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, manifest.hash)}",
        "version": 1,
        "metadata": {
            "timestamp": date,
            "component": {
                "type": "operating-system",
                "bom-ref": "image",
                "name": f"regiondag worker on Debian {manifest.suite}",
                "version": manifest.hash,
                "properties": [{"name": f"regiondag:{name}", "value": value} for name, value in facts.items()],
            },
        },
        "components": [_component(package) for package in components],
        "dependencies": [{"ref": "image", "dependsOn": [package.purl for package in components]}],
    }


def write_bill(folder: Path, manifest: Manifest, packages: Iterable[Package]) -> None:
    """Write the bill into an image's folder."""
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    write_atomically(folder / FILE, json.dumps(make_bill(manifest, packages, date), indent=1) + "\n")


def _component(package: Package) -> dict[str, object]:
    component: dict[str, object] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "purl": package.purl,
    }
    if package.licences:
        component["licenses"] = [{"license": {"name": name}} for name in package.licences]
    if package.source:
        component["properties"] = [{"name": "debian:source", "value": package.source}]
    return component
