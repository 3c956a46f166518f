"""The recipe as a whole: its options, its order, and what its steps must not do to a machine that stays itself."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

PROVISION = Path(__file__).resolve().parents[2] / "ami/provision"
ALL = [path.stem for path in sorted(PROVISION.glob("[0-9][0-9]-*.sh"))]
FOR_MACHINES = [name for name in ALL if "40" <= name[:2] <= "79"]
FOR_MANAGERS = [name for name in ALL if "70" <= name[:2] <= "79"]
FOR_WORKERS = [name for name in FOR_MACHINES if name not in FOR_MANAGERS]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """The recipe with steps that only say what they were told."""
    folder = tmp_path / "provision"
    folder.mkdir()
    for name in ("provision.sh", "common.sh"):
        (folder / name).write_bytes((PROVISION / name).read_bytes())
    for name in ALL:
        (folder / f"{name}.sh").write_text('echo "$OUTLET $DRIVER $PCI_OPTION"\n')
    return folder


def run(recipe: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "REGIONDAG_ROOT": str(recipe.parent / "root")}
    argv = ["sh", recipe / "provision.sh", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)


def steps(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return re.findall(r"^provision: (.*)$", done.stdout, re.M)


def test_a_root_folder_gets_no_step_for_machines(recipe: Path) -> None:
    assert (len(FOR_WORKERS), FOR_MANAGERS) == (7, ["70-manager"])
    assert steps(run(recipe)) == [name for name in ALL if name not in FOR_MACHINES]


@pytest.mark.parametrize("outlet", ["disk", "instance", "machine"])
def test_workers_get_every_step_of_theirs_with_its_options(recipe: Path, outlet: str) -> None:
    done = run(recipe, "--outlet", outlet, "--driver", "closed", "--skip-pci-option")
    expected = [name for name in ALL if name not in FOR_MANAGERS]
    assert steps(done) == expected
    assert done.stdout.count(f"{outlet} closed no\n") == len(expected)
    recorded = recipe.parent / "root/var/lib/regiondag/recorded"
    assert recorded.read_text() == f"OUTLET={outlet}\n"


def test_a_manager_gets_its_step_and_nothing_that_trains(recipe: Path) -> None:
    done = run(recipe, "--outlet", "machine", "--role", "manager")
    assert steps(done) == [name for name in ALL if name not in FOR_WORKERS]


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["--role", "submit"], "--role: seen 'submit', legal: worker or manager"),
        (
            ["--role", "manager", "--outlet", "disk"],
            "--role manager: seen --outlet disk --driver none, legal: --outlet machine, and no driver",
        ),
        (
            ["--role", "manager", "--outlet", "machine", "--driver", "open"],
            "--role manager: seen --outlet machine --driver open, legal: --outlet machine, and no driver",
        ),
        (["--role"], "--role needs a value"),
        (["--outlet", "cloud"], "--outlet: seen 'cloud', legal: folder, disk, instance or machine"),
        (["--driver", "nouveau"], "--driver: seen 'nouveau', legal: none, closed or open"),
        (["--driver"], "--driver needs a value"),
        (["--help me"], "seen '--help me'"),
    ],
)
def test_wrong_words_say_what_is_legal(recipe: Path, words: list[str], seen: str) -> None:
    done = run(recipe, *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"provision.sh: {seen}\nusage: provision.sh ")
    assert "--skip-pci-option" in done.stderr
    assert done.stdout == ""


def test_a_step_that_fails_ends_it_and_is_the_last_that_is_named(recipe: Path) -> None:
    (recipe / "30-python.sh").write_text("exit 7\n")
    done = run(recipe)
    assert done.returncode == 7
    assert done.stdout.splitlines()[-1] == "provision: 30-python"


def worker_step(
    tmp_path: Path, outlet: str, step: str = "60-worker.sh", clock: str = ""
) -> tuple[list[str], list[str]]:
    """Run a step with fakes; return where it put files, and which other programs it called.

    `clock` is the package that keeps the machine's time already.
    """
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "dpkg-query").write_text(f'#!/bin/sh\n[ -z "{clock}" ] || echo installed\n')
    (tools / "dpkg-query").chmod(0o755)
    for tool in ("apt-get", "systemctl", "passwd", "install"):
        (tools / tool).write_text(f'#!/bin/sh\necho "{tool} $*" >>{tmp_path}/calls\n')
        (tools / tool).chmod(0o755)
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/login.defs").write_text("UMASK\t022\nHOME_MODE\t0700\n")
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "OUTLET": outlet, "REGIONDAG_ROOT": str(root)}
    subprocess.run(["sh", PROVISION / step], check=True, env=environment)
    calls = (tmp_path / "calls").read_text().replace(f"{root}/", "/").splitlines()
    files = [call.split()[-1] for call in calls if call.startswith("install ")]
    return files, [call for call in calls if not call.startswith("install ")]


def test_an_image_gets_all_files_and_its_doors_are_closed(tmp_path: Path) -> None:
    files, calls = worker_step(tmp_path, "disk")
    there = {f"/{path.relative_to(PROVISION / 'files')}" for path in (PROVISION / "files").rglob("*") if path.is_file()}
    assert set(files) == {name for name in there if not name.endswith(".pyc")} | {"/etc/chrony/chrony.conf"}
    assert "passwd --lock root" in calls
    assert "systemctl enable nftables" in calls
    assert (tmp_path / "root/etc/login.defs").read_text() == "HOME_MODE\t0700\nUMASK\t027\n"
    units = [*(PROVISION / "files/etc/systemd/system").glob("*.*")]
    for unit in units:
        wanted = unit.is_file() and "[Install]" in unit.read_text()
        assert (f"systemctl enable {unit.name}" in calls) is wanted
    assert len(units) > 6


def test_a_machine_that_stays_itself_keeps_firewall_ssh_logs_and_root(tmp_path: Path) -> None:
    files, calls = worker_step(tmp_path, "machine")
    theirs = r"/etc/(nftables|ssh|cloud|sysctl|systemd/(journald|resolved|system.conf)|modprobe)"
    assert not [name for name in files if re.match(theirs, name)]
    assert (tmp_path / "root/etc/login.defs").read_text() == "UMASK\t022\nHOME_MODE\t0700\n"
    assert "/usr/local/libexec/regiondag/join.py" in files
    assert "/etc/condor/config.d/50-regiondag-worker.config" in files
    assert not [call for call in calls if "passwd" in call or "nftables" in call or "disable" in call]
    assert "systemctl enable regiondag-join.service" in calls


@pytest.mark.parametrize("step", ["60-worker.sh", "70-manager.sh"])
def test_every_machine_has_its_clock_kept_by_small_steps(tmp_path: Path, step: str) -> None:
    files, calls = worker_step(tmp_path, "machine", step)
    assert "/etc/chrony/chrony.conf" in files
    assert "apt-get install -y --no-install-recommends chrony" in calls
    assert "systemctl enable chrony" in calls
    settings = (PROVISION / "chrony.conf").read_text().splitlines()
    assert [line for line in settings if line.startswith("makestep")] == ["makestep 1.0 3"], "at boot alone"
    assert "server 169.254.169.123 prefer iburst minpoll 4 maxpoll 4" in settings


@pytest.mark.parametrize("step", ["60-worker.sh", "70-manager.sh"])
def test_a_machine_that_stays_itself_keeps_what_keeps_its_clock(tmp_path: Path, step: str) -> None:
    files, calls = worker_step(tmp_path, "machine", step, clock="systemd-timesyncd")
    assert "/etc/chrony/chrony.conf" not in files
    assert not [call for call in calls if "chrony" in call]


def test_an_image_has_chrony_whatever_it_was_made_of(tmp_path: Path) -> None:
    _, calls = worker_step(tmp_path, "instance", clock="systemd-timesyncd")
    assert "systemctl enable chrony" in calls


def test_nothing_of_a_machine_that_stays_itself_is_cleaned_away(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("apt-get", "rm", "find", "ldconfig", "journalctl"):
        (tools / tool).write_text(f'#!/bin/sh\necho "{tool} $*" >>{tmp_path}/calls\n')
        (tools / tool).chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "OUTLET": "machine"}
    subprocess.run(["sh", PROVISION / "90-clean.sh"], check=True, env=environment)
    assert (tmp_path / "calls").read_text().splitlines() == [
        "apt-get clean",
        "rm -rf /usr/local/share/regiondag/wheels /var/lib/regiondag",
    ]


def test_a_managers_step_puts_its_files_and_makes_no_key(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("systemctl", "install", "apt-get", "dpkg-query"):
        (tools / tool).write_text(f'#!/bin/sh\necho "{tool} $*" >>{tmp_path}/calls\n')
        (tools / tool).chmod(0o755)
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "OUTLET": "machine", "ROLE": "manager"}
    (tools / "dpkg-query").write_text("#!/bin/sh\necho installed\n")
    subprocess.run(["sh", PROVISION / "70-manager.sh"], check=True, env=environment)
    packages, *installed, enabled = (tmp_path / "calls").read_text().splitlines()
    files = [
        f"/{path.relative_to(PROVISION / 'manager')}" for path in (PROVISION / "manager").rglob("*") if path.is_file()
    ]
    assert sorted(line.split()[-1] for line in installed) == sorted(files)
    assert {line.split()[3] for line in installed if "/sbin/" in line} == {"755"}
    assert packages.endswith(" nftables")
    assert enabled == "systemctl enable condor regiondag-metadata"
    for path in (PROVISION / "manager").rglob("*"):
        assert "passwords.d" not in path.parts
        assert "tokens.d" not in path.parts
