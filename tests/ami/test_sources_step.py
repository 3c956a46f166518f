"""Where a machine that becomes an image finds NVIDIA's driver."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.ami.gpu_fakes import PROVISION, program

# As they lie in Debian's AMIs, and in older ones.
SOURCES = """\
Types: deb deb-src
URIs: mirror+file:///etc/apt/mirrors/debian.list
Suites: trixie trixie-updates trixie-backports
Components: main

Types: deb deb-src
URIs: mirror+file:///etc/apt/mirrors/debian-security.list
Suites: trixie-security
Components: main
"""
LIST = "# deb cdrom: main\ndeb http://mirror.example/debian trixie main\n"
ALL = "main contrib non-free non-free-firmware"


@pytest.fixture
def step(tmp_path: Path):
    apt = tmp_path / "root/etc/apt"
    (apt / "sources.list.d").mkdir(parents=True)
    (apt / "sources.list.d/debian.sources").write_text(SOURCES)
    (apt / "sources.list").write_text(LIST)
    program(tmp_path / "bin", "apt-get", f'echo "$*" >>{tmp_path}/calls')

    def run(outlet: str, driver: str) -> tuple[str, str, str]:
        environment = {
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
            "REGIONDAG_ROOT": str(tmp_path / "root"),
            "OUTLET": outlet,
            "DRIVER": driver,
        }
        subprocess.run(["sh", PROVISION / "41-sources.sh"], env=environment, check=True)
        calls = tmp_path / "calls"
        texts = (apt / "sources.list.d/debian.sources", apt / "sources.list", calls)
        return tuple(path.read_text() if path.exists() else "" for path in texts)  # type: ignore[return-value]

    return run


def test_an_instance_gets_the_components_and_the_kernel_of_the_driver(step):
    sources, lines, calls = step("instance", "closed")
    assert sources == SOURCES.replace("main", ALL)
    assert lines == LIST.replace("trixie main", f"trixie {ALL}")
    assert calls.splitlines()[0] == "update"
    assert "--only-upgrade linux-image-cloud-amd64" in calls.splitlines()[1]
    assert step("instance", "closed")[:2] == (sources, lines)


@pytest.mark.parametrize(
    ("outlet", "driver"), [("instance", "none"), ("machine", "closed"), ("disk", "open"), ("disk", "none")]
)
def test_everything_else_keeps_its_sources(step, outlet, driver):
    assert step(outlet, driver) == (SOURCES, LIST, "")
