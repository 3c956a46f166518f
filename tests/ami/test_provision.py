"""Where the recipe refuses to run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ami.gpu_fakes import PROVISION


@pytest.fixture
def provision(tmp_path: Path):
    """The recipe with one step that does nothing, in a root of its own."""
    for name in ("provision.sh", "common.sh"):
        shutil.copy(PROVISION / name, tmp_path)
    (tmp_path / "10-noted.sh").write_text('echo "$OUTLET $DRIVER $PCI_OPTION"\n')

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "REGIONDAG_ROOT": str(tmp_path / "root")}
        argv = ["sh", str(tmp_path / "provision.sh"), *options]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize("options", [(), ("--outlet", "folder"), ("--outlet", "disk", "--driver", "none")])
def test_a_machine_that_runs_is_not_spoilt(provision, tmp_path, options):
    """A disk's steps write another fstab and boot loader, and remove the machine's keys."""
    (tmp_path / "root/run/systemd/system").mkdir(parents=True)
    done = provision(*options)
    assert (done.returncode, done.stdout) == (2, "")
    assert "this machine has booted" in done.stderr
    assert "--outlet machine lets it stay itself" in done.stderr
    assert not (tmp_path / "root/var/lib/regiondag").exists()
    assert provision("--outlet", "machine").returncode == 0
