"""From `--driver auto --for` to an image's options, and images refused for machines that they do not drive."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from regiondag.bake import driver_choice
from regiondag.bake import image as baking
from regiondag.bake.driver_choice import check_types, list_types, settle_driver
from regiondag.bake.image import ImageWishes
from regiondag.cli import main
from regiondag.errors import UsageError
from regiondag.util.resources import resource_dir
from tests.workflows.bake.conftest import MANIFEST
from tests.workflows.bake.test_image import make_image

AUTO = ImageWishes(driver="auto")


def test_auto_becomes_what_the_machines_need():
    wishes = settle_driver(AUTO, ["p6-b200.48xlarge"])
    assert wishes.options == ("--outlet", "disk", "--driver", "open", "--least-driver", "570", "--fabric-manager")
    assert wishes.requirements[-1] == "requirements-gpu-blackwell.txt"
    assert settle_driver(AUTO, ["g5.xlarge"]).options[-2:] == ("--driver", "open")
    assert settle_driver(AUTO, ["p3.2xlarge"]).driver == "closed"
    assert settle_driver(dataclasses.replace(AUTO, suite="forky"), ["g5.xlarge"]).driver == "closed"
    source = dataclasses.replace(AUTO, suite="forky", apt_source=Path("nvidia.sources"))
    assert settle_driver(source, ["g5.xlarge"]).driver == "open"
    assert settle_driver(ImageWishes(), []) == ImageWishes()


def test_a_driver_that_is_named_is_checked():
    assert settle_driver(ImageWishes(driver="closed"), ["g5.xlarge"]).driver == "closed"
    with pytest.raises(UsageError, match="by the open kernel module only"):
        settle_driver(ImageWishes(driver="closed"), ["g7e.2xlarge"])
    with pytest.raises(UsageError, match="--driver is none"):
        settle_driver(ImageWishes(), ["g7e.2xlarge"])
    with pytest.raises(UsageError, match="for which machines"):
        settle_driver(AUTO, [])


def test_a_fleets_types_count(monkeypatch, tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text((resource_dir("ami") / "fleet.example.yaml").read_text())
    assert list_types(["g5.xlarge"], path) == ("g5.xlarge", "g6.xlarge", "g4dn.xlarge")
    assert list_types([], None) == ()


def test_an_image_that_does_not_drive_a_machine_becomes_no_ami(tmp_path, capsys):
    check_types(MANIFEST, ["g5.xlarge", "p3.2xlarge"])
    image = make_image(tmp_path / "image", MANIFEST)
    assert main(["bake", "ami", str(image.folder), "--for", "p5.48xlarge", "p6-b200.48xlarge"]) == 2
    first, second = capsys.readouterr().err.strip().splitlines()
    assert "the H100 of p5.48xlarge (compute capability 9.0) is connected by NVSwitches" in first
    assert "the B200 of p6-b200.48xlarge (compute capability 10.0) is driven by the open kernel module only" in second
    check_types(dataclasses.replace(MANIFEST, fabric_manager="550.163.01"), ["p5.48xlarge"])
    with pytest.raises(UsageError, match="no NVIDIA driver"):
        check_types(dataclasses.replace(MANIFEST, driver="none", driver_version=""), ["g5.xlarge"])


def test_no_image_is_for_another_processor():
    with pytest.raises(UsageError, match=r"^--for g5g\.xlarge: its processor is arm64"):
        settle_driver(ImageWishes(driver="auto"), ["g5g.xlarge"])
    with pytest.raises(UsageError, match=r"^--for p6e-gb200\.36xlarge: its processor is arm64"):
        check_types(MANIFEST, ["g5.xlarge", "p6e-gb200.36xlarge"])


def test_the_command_bakes_what_was_chosen(monkeypatch, tmp_path, capsys):
    asked = []

    def ensure(wishes, *_):
        asked.append(wishes)
        return make_image(tmp_path / f"image{len(asked)}")

    monkeypatch.setattr(baking, "ensure_disk_image", ensure)
    source = tmp_path / "nvidia.sources"
    source.write_text("Types: deb\n")
    argv = ["bake", "image", "--driver", "auto", "--for", "p6-b300.48xlarge", "--apt-source", str(source)]
    assert main(argv) == 0
    assert asked == [ImageWishes("trixie", "open", True, 570, True, source)]
    assert main(["bake", "image", "--driver", "auto"]) == 2
    assert main(["bake", "image", "--apt-source", str(tmp_path / "key.gpg")]) == 2
    assert "NAME.sources, or NAME.list" in capsys.readouterr().err


def test_another_apt_source_makes_another_image(tmp_path):
    source = tmp_path / "nvidia.sources"
    hashes = {baking.image_hash(ImageWishes())}
    for text in ("a", "b"):
        source.write_text(text)
        hashes.add(baking.image_hash(ImageWishes(apt_source=source)))
    assert len(hashes) == 3


def test_the_open_module_is_said_to_be_where_it_is():
    assert set(driver_choice.OPEN_SUITES) == {"trixie"}, "looked up in Debian's archive; Debian 14's is withdrawn"
