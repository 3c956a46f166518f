"""From a machine as its installer left it to a recommendation: what is missing is said once, and one line brings it."""

from __future__ import annotations

import re
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from regiondag.pool.rootfs import ensure_image
from tests.support.checkout import copy_of_the_tree
from tests.support.first_hour import WORDS, line_of, make_wheel, walk, write_sales
from tests.support.fresh_machine import HOME, FreshMachine, why_not

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
if reason := why_not():
    pytestmark.append(pytest.mark.skip(reason=reason))

CLONE = f"{HOME}/regiondag"
ALL = {"Python", "bubblewrap", "mmdebstrap", "uidmap", "user numbers"}


@pytest.fixture
def folder(run_area: Path) -> Iterator[Path]:
    """Return where a machine's files may lie."""
    yield run_area / "machine"
    shutil.rmtree(run_area / "machine", ignore_errors=True)


def bad(output: str) -> set[str]:
    return set(re.findall(r"^BAD +([^:]+):", output, re.MULTILINE))


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_one_line_brings_all_that_an_ordinary_user_misses(suite, folder, tmp_path):
    with FreshMachine(suite, folder) as machine:
        machine.copy_in(copy_of_the_tree(tmp_path), CLONE)
        said = machine.run("cd regiondag && scripts/quickstart")
        assert said.returncode == 6 and bad(said.stdout) == ALL, said.stdout
        line = line_of(said.stdout)
        assert line.startswith("sudo sh -c 'apt-get update && apt-get install -y ")
        done = machine.run(line)
        assert done.returncode == 0, done.stdout
        again = machine.run("regiondag/scripts/preflight")
        assert again.returncode == 0 and bad(again.stdout) == set(), again.stdout


def test_as_root_what_is_missing_is_installed(folder, tmp_path):
    with FreshMachine("trixie", folder, sudo=False) as machine:
        machine.copy_in(copy_of_the_tree(tmp_path), CLONE)
        done = machine.run(f"{CLONE}/scripts/preflight --install", user="root")
        assert done.returncode == 0, done.stdout
        assert "==> apt-get update && apt-get install -y" in done.stdout
        assert machine.run(f"{CLONE}/scripts/preflight", user="root").returncode == 0


def test_where_user_namespaces_are_refused_the_ways_out_are_told(folder, tmp_path):
    with FreshMachine("trixie", folder, sudo=False, namespaces=False, container=True) as machine:
        machine.copy_in(copy_of_the_tree(tmp_path), CLONE)
        said = machine.run("regiondag/scripts/preflight")
        assert said.returncode == 6 and bad(said.stdout) == {"Python", "user namespaces"}, said.stdout
        assert line_of(said.stdout).startswith("su - -c 'apt-get update && ")
        for way in ("--cap-add SYS_ADMIN", "a chroot is enough", "minicondor", "a machine that has HTCondor"):
            assert way in said.stdout
        assert "a chroot is" not in machine.run(f"{CLONE}/scripts/preflight", user="root").stdout


def test_an_installed_htcondor_is_used_without_user_namespaces(folder, tmp_path):
    """By the line that is told: a container in which HTCondor serves ordinary users."""
    with FreshMachine("trixie", folder, sudo=False, namespaces=False, container=True) as machine:
        machine.copy_in(copy_of_the_tree(tmp_path), CLONE)
        said = machine.run("regiondag/scripts/preflight")
        [line] = re.findall(r"^  su - -c '(apt-get .* minicondor .*)'$", said.stdout, re.MULTILINE)
        # The machine shares this one's network, on which somebody else may have HTCondor's port.
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = f"SHARED_PORT_PORT = {port}\nCOLLECTOR_HOST = 127.0.0.1:{port}\n"
        (machine.root / "etc/condor/config.d").mkdir(parents=True)
        (machine.root / "etc/condor/config.d/99-port").write_text(config)
        done = machine.run(f"export DEBIAN_FRONTEND=noninteractive; {line}", user="root")
        assert done.returncode == 0, done.stdout
        deadline = time.monotonic() + 120
        while (said := machine.run("regiondag/scripts/preflight")).returncode != 0:
            assert time.monotonic() < deadline, said.stdout
        assert "refused, and not needed: the installed HTCondor is used" in said.stdout


@pytest.mark.condor
def test_a_table_of_ones_own_becomes_recommendations_with_names(folder, tmp_path):
    """By three commands, with the wheel alone: no clone, no editing. The seconds of each step are printed."""
    wheel = make_wheel(tmp_path)
    write_sales(tmp_path / "sales.csv")
    image = ensure_image("trixie", print).path  # else it would be built once more
    with FreshMachine("bookworm", folder) as machine:
        machine.copy_in(image, f"{HOME}/.cache/regiondag/{image.name}")
        steps = walk(machine, wheel, tmp_path / "sales.csv")
    said = {step.name: step.output for step in steps}
    assert bad(said["look what is missing"]) == {"Python", "bubblewrap"}
    assert bad(said["look again"]) == set()
    assert len(re.findall(rf"\b(?:{'|'.join(WORDS)}) \d\b", said["recommend"])) >= 10, said["recommend"]
