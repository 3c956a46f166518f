"""`job.python: bundle` on real HTCondor: a machine without any Python trains, is left, and goes on to the same bits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnlib.contract import Result
from regiondag.condor import versions
from regiondag.run.layout import NodeName, RunFolder
from tests.support import several_machines
from tests.support.several_machines import Lab, until
from tests.workflows.on_pool.test_eviction import TEXT, place, train_slowly
from tests.workflows.on_pool.test_study import SHORT, finish, generate, result_of, submit

pytestmark = [pytest.mark.condor, pytest.mark.slow, pytest.mark.timeout(900)]

TRIAL, FINAL = NodeName("germany", 0), NodeName("germany", None)
JOB = "job: {cpus: 1, memory: 256MB, disk: 100MB}"
BUNDLE = "job: {gpus: 0, cpus: 1, memory: 512MB, disk: 2GB, python: bundle}"
ANY = "/usr/bin/python3* /usr/lib/python3* /usr/local/libexec/regiondag/python"
SECONDS = 400.0
PLAIN = {"PATH": os.defpath, "NNLIB_BACKEND": "numpy"}  # the bundle has no Numba, and a job no settings of BLAS


@pytest.fixture
def lab() -> Iterator[Lab]:
    if why := several_machines.unusable():
        pytest.skip(why)
    with Lab(workers=1) as lab:
        lab.add_user("alice")
        lab.wait_for_slots()
        lab.run(lab.workers[0], ["sh", "-c", f"rm -r {ANY}"], check=True)
        yield lab


def send(lab: Lab, run: RunFolder) -> RunFolder:
    """Put a run that was made here where it will be on the manager, as Alice's; return it as seen from outside."""
    there = lab.manager.root / str(run.path).lstrip("/")
    there.parent.mkdir(parents=True)
    subprocess.run(["cp", "-r", run.path, there], check=True)
    lab.run(lab.manager, ["chown", "-R", "alice:", str(run.path)], check=True)
    return RunFolder(there)


@pytest.mark.xdist_group("machines")
def test_a_machine_without_python_gives_the_same_bits_also_after_an_eviction(lab, run_area, capsys):
    run = generate(run_area, capsys, TEXT.replace(JOB, BUNDLE))
    train_slowly(run)
    there = send(lab, run)
    assert lab.run(lab.workers[0], ["sh", "-c", "command -v python3 python"]).returncode != 0
    lab.regiondag(["submit", str(run.path)], "alice", "/home/alice")
    execute = lab.workers[0].root / "var/lib/condor/execute"

    def epochs() -> int:
        return sum(path.read_text().count("\n") for path in execute.glob("dir_*/log.jsonl"))

    until("ten epochs", lambda: epochs() >= 10, SECONDS)
    assert [path.is_file() for path in execute.glob("dir_*/python/bin/python3")] == [True]
    lab.run(lab.manager, ["condor_vacate_job", "-all"], check=True)
    until("the study to end", lambda: (there.report / "summary.json").exists(), SECONDS)
    for node in (TRIAL, FINAL):
        assert_as_here(there, node, run_area / node.label)
    assert (place(there, TRIAL) / "job.err").read_text().count("resumed from checkpoint.nc") == 1


def assert_as_here(run: RunFolder, node: NodeName, folder: Path) -> None:
    """Train a job of a run once more, undisturbed, by this Python, whose copy it was trained by; compare the bits."""
    region = run.region(node.slug).path
    folder.mkdir()
    for path in (place(run, node) / "trial.json", *region.glob("*.nc"), region / "network.json"):
        shutil.copy(path, folder)
    [code] = run.path.glob("nnlib-*.pyz")
    shutil.copy(code, folder)
    words = [sys.executable, code.name, "train", "--trial", "trial.json"]
    subprocess.run(words, cwd=folder, env=PLAIN, check=True)
    seen, expected = result_of(place(run, node)), result_of(folder)
    assert _figures(seen) == _figures(expected)
    assert seen.host.partition(".")[0] == "worker1"
    if node.number is None:
        assert (place(run, node) / "model.nc").read_bytes() == (folder / "model.nc").read_bytes()


def _figures(result: Result) -> tuple[object, ...]:
    return result.value, result.curve, result.metrics, result.epochs, result.best_epoch


def test_it_reaches_a_machine_once_where_htcondor_knows_how(pool, run_area, capsys):
    run = generate(run_area, capsys, SHORT.replace(JOB, BUNDLE))
    script = run.path / "train.sh"
    look = "stat -c 'shared %n %a %h' python.bundle >&2; echo \"by $python\" >&2\n"
    script.write_text(script.read_text().replace("# HTCondor signals", look + "# HTCondor signals"))
    submit(run)
    assert finish(pool, run).exit_code == 0
    once = versions.supports(pool.version, "common_input_catalogs")
    jobs = list(run.path.glob("regions/*/trials/0*/job.err"))
    assert len(jobs) == 4
    for job in jobs:
        text = job.read_text()
        assert re.search(r"^by /.*/python/bin/python3$", text, re.MULTILINE)
        [(mode, links)] = re.findall(r"^shared python.bundle (\d+) (\d+)$", text, re.MULTILINE)
        assert (mode == "444" and int(links) > 1) is once
