"""The bill of materials: what counts as installed, names that scanners know, and the form that CycloneDX wants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.bake import bill
from regiondag.bake.bill import Package, find_licences, list_installed, list_packages, make_bill
from tests.workflows.bake.conftest import MANIFEST

DATE = "2026-11-28T07:00:00Z"
STATUS = """\
Package: condor
Status: install ok installed
Architecture: amd64
Version: 23.9.6+dfsg-2.1

Package: gone
Status: deinstall ok config-files
Version: 1

Package: libssl3t64
Source: openssl (3.5.1-1)
Status: hold ok installed
Architecture: amd64
Version: 1:3.5.1-1+deb13u2
Description: two
 Version: of nothing
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Files: *
License: Apache-2.0

Files: a
License: BSD-3-clause

License: Apache-2.0
 The text
License:
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    folder = tmp_path / "usr/share/doc/condor"
    folder.mkdir(parents=True)
    (folder / "copyright").write_text(COPYRIGHT)
    return tmp_path


def test_only_packages_that_are_installed_count():
    assert list(list_installed(STATUS)) == [
        Package("deb", "condor", "23.9.6+dfsg-2.1", "amd64", "condor"),
        Package("deb", "libssl3t64", "1:3.5.1-1+deb13u2", "amd64", "openssl"),
    ]


def test_licences_are_those_that_a_copyright_file_names(root):
    assert find_licences(COPYRIGHT) == ("Apache-2.0", "BSD-3-clause")
    assert find_licences("This is old prose.\nLicense: GPL\n") == ()
    first, second, wheel = list_packages(root, {"cupy_cuda12x": "14.2.0"})
    assert first.licences == ("Apache-2.0", "BSD-3-clause")
    assert second.licences == ()
    assert wheel == Package("pypi", "cupy_cuda12x", "14.2.0")


def test_links_do_not_lead_out_of_the_root_folder(root, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "copyright"
    outside.write_text(COPYRIGHT)
    (root / "usr/share/doc/libssl3t64").mkdir()
    (root / "usr/share/doc/libssl3t64/copyright").symlink_to(outside)
    assert list_packages(root, {})[1].licences == ()


@pytest.mark.parametrize(
    ("package", "purl"),
    [
        (Package("deb", "libstdc++6", "14.2.0-19", "amd64"), "pkg:deb/debian/libstdc%2B%2B6@14.2.0-19?arch=amd64"),
        (Package("deb", "a", "1:2~b+c-1", "all"), "pkg:deb/debian/a@1%3A2~b%2Bc-1?arch=all"),
        (Package("pypi", "scikit_optimize", "0.10.2"), "pkg:pypi/scikit-optimize@0.10.2"),
    ],
)
def test_packages_have_names_that_scanners_know(package, purl):
    assert package.purl == purl


def test_a_bill_is_valid_by_cyclonedxs_own_schema(root):
    validation = pytest.importorskip(
        "cyclonedx.validation.json", reason="pip install 'cyclonedx-python-lib[json-validation]'"
    )
    schema = pytest.importorskip("cyclonedx.schema")
    text = json.dumps(make_bill(MANIFEST, list_packages(root, {"numba": "0.68.1"}), DATE))
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None


def test_a_bill_has_the_form_of_cyclonedx(root):
    """What the schema demands of the parts that we use, for who has not the library that has the schema."""
    found = make_bill(MANIFEST, list_packages(root, {"numba": "0.68.1"}), DATE)
    assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.6", 1)
    assert str(found["serialNumber"]).startswith("urn:uuid:")
    components = found["components"]
    references = [component["bom-ref"] for component in components]
    assert len(set(references)) == len(references) == 3
    assert references == sorted(references)
    assert all(component["type"] == "library" and component["name"] for component in components)
    assert found["dependencies"] == [{"ref": "image", "dependsOn": references}]
    assert make_bill(MANIFEST, list_packages(root, {"numba": "0.68.1"}), DATE) == found, "the same again"


@given(st.text())
def test_any_copyright_file_has_licences_or_none(text):
    for name in find_licences("Format: x\n" + text):
        assert name
        assert "\n" not in name


def test_it_is_written_beside_the_manifest(tmp_path):
    bill.write_bill(tmp_path, MANIFEST, [])
    assert json.loads((tmp_path / bill.FILE).read_text())["metadata"]["component"]["version"] == MANIFEST.hash
