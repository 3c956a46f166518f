"""Whatever befalls a rank or its job: all are gone within seconds, with the exit code and the name that fit."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnlib.contract import Exit
from nnlib.data.file import write_data
from nnlib.data.sets import Data, DataSet
from nnlib.training.checkpoint import load, owner_of
from tests.nnlib.image_cases import classes, conv, image_network, pixels
from tests.nnlib.samples import random_rows, sets_of

pytestmark = pytest.mark.slow

GONE = 60.0  # seconds that ranks have to be gone where much else runs
STARTED = 120.0  # seconds that a start may take where much else runs
ITEMS = 4100
FAULTY = Path(__file__).parent / "faulty"
NETWORK = {
    "Version": 0.8,
    "Name": "wide",
    "Kind": "FeedForward",
    "Denoising": {"p": 0.2},
    "ErrorFunction": "CrossEntropy",
    "Layers": [
        {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "x", "Sparse": True},
        {"Name": "H", "Kind": "Hidden", "N": 8, "Activation": "Tanh", "pDropout": 0.3},
        {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "x", "Activation": "Sigmoid"},
    ],
}


IMAGES = {"Version": 0.8, "Name": "images", "Kind": "FeedForward", **image_network(conv("A", 5, pDropout=0.3))}
BY_EXAMPLES = "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults")
    (folder / "network.json").write_text(json.dumps(NETWORK))
    write_data(folder / "train.nc", Data((DataSet("x", random_rows(64, ITEMS, 1)),)))
    (folder / "images.json").write_text(json.dumps(IMAGES))
    images = sets_of(x=pixels(examples=64).astype(np.float32), y=classes(64).astype(np.float32))
    write_data(folder / "images.nc", Data(tuple(replace(data, name=name) for name, data in images.items())))
    return folder


@pytest.fixture
def start(folder, keep):
    def begin(out, ranks, *more, fault="", parallel="items", **options):
        files = ["images.json", "images.nc"] if parallel == BY_EXAMPLES else ["network.json", "train.nc"]
        command = [sys.executable, "-m", "nnlib", "train", *files, "--out", str(out / "model.nc")]
        settings = ["--batch", "16", "--parallel", parallel, "--threads", "1", "--ranks", str(ranks)]
        path = os.pathsep.join(filter(None, [str(FAULTY), os.environ.get("PYTHONPATH", "")]))
        environment = os.environ | {"PYTHONPATH": path, "FAULT": fault}
        words = [*command, *settings, "--stop-after", "0", *more]
        return keep(subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True, **options))

    return begin


def ranks_of(job):
    """The processes that a job has started, running or not."""
    found = []
    for about in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = about.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"nnlib.parallel.rank" in words and str(job).encode() in words[-4:]:
            found.append(int(about.parent.name))
    return found


def files_of(process):
    """The names of the files that a process has in its memory."""
    lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    return {fields[5] for line in lines if len(fields := line.split(maxsplit=5)) == 6}


def wait_until(done, seconds, what):
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def wait_gone(job):
    wait_until(lambda: not ranks_of(job), GONE, "no rank is left")


def wait_saved(folder, job):
    """Wait until a training has saved once, so it is in the middle of its steps."""
    wait_until(lambda: (folder / "checkpoint.nc").exists() or job.poll() is not None, STARTED, "it has begun")
    assert job.poll() is None, job.communicate()[1]


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


FAULTS = {
    "SIGKILL": (Exit.MACHINE, "was killed (SIGKILL)"),
    "SIGSEGV": (Exit.MACHINE, "was ended by signal 11 (SIGSEGV)"),
    "SIGSTOP": (Exit.MACHINE, "is stopped, as by SIGSTOP"),
    "hang": (Exit.MACHINE, "hangs"),
    "memory": (Exit.MACHINE, "out of memory: cannot allocate 8 EiB"),
    "limit": (Exit.MACHINE, "out of memory: Unable to allocate"),
    "disk": (Exit.MACHINE, "train.nc: rank 1 of 2"),
    "bug": (Exit.BUG, "ZeroDivisionError: a made-up bug"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_what_befalls_a_rank_ends_all_and_is_named(start, tmp_path, what):
    code, said = FAULTS[what]
    job = start(tmp_path, 2, "--epochs", "1000", fault=f"{what}:1:6")
    wait_until(lambda: len(ranks_of(job.pid)) == 2 or job.poll() is not None, STARTED, "it has begun")
    ranks = ranks_of(job.pid)
    _, told = job.communicate(timeout=STARTED)
    assert job.returncode == code, told
    assert said in told
    assert "rank 1 of 2 (process " in told
    assert not [rank for rank in ranks if Path(f"/proc/{rank}").exists()]
    assert not (tmp_path / "model.nc").exists()


@pytest.mark.parametrize("what", ["SIGKILL", "SIGSTOP", "hang"])
def test_what_befalls_a_rank_of_a_training_of_images(start, tmp_path, what):
    code, said = FAULTS[what]
    job = start(tmp_path, 4, "--epochs", "1000", fault=f"{what}:2:6", parallel=BY_EXAMPLES)
    _, told = job.communicate(timeout=2 * STARTED)  # an epoch comes first
    assert job.returncode == code and said in told and "rank 2 of 4 (process " in told, told
    assert not ranks_of(job.pid)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("library", "rank 1 of 2 (process "),
        ("start", "ended with exit code 3 before it was ready; what it said stands above"),
    ],
)
def test_a_rank_that_cannot_start_is_the_machines_fault(start, tmp_path, what, said):
    job = start(tmp_path, 2, "--epochs", "1", fault=f"{what}:1:0")
    _, told = job.communicate(timeout=STARTED)
    assert job.returncode == Exit.MACHINE, told
    assert said in told
    if what == "library":
        assert "cannot start: import of scipy" in told and "install it on this machine" in told
    assert not ranks_of(job.pid)


def test_a_rank_that_is_killed_amid_steps_is_named_and_the_last(start, tmp_path):
    job = start(tmp_path, 4, "--epochs", "1000000", "--checkpoint", str(tmp_path), "--checkpoint-every", "1s")
    wait_saved(tmp_path, job)
    ranks = sorted(ranks_of(job.pid))
    assert len(ranks) == 4
    os.kill(ranks[2], signal.SIGKILL)
    _, told = job.communicate(timeout=GONE)
    assert job.returncode == Exit.MACHINE
    assert f"(process {ranks[2]}) was killed" in told
    assert not ranks_of(job.pid)


@pytest.mark.parametrize("to", ["job", "group", "Ctrl-C"])
def test_a_stop_leaves_one_checkpoint(start, tmp_path, to):
    more = ["--epochs", "1000000", "--checkpoint", str(tmp_path), "--checkpoint-every", "1s"]
    job = start(tmp_path, 2, *more, start_new_session=True)
    wait_saved(tmp_path, job)
    (tmp_path / "checkpoint.nc").unlink()
    if to == "job":
        job.send_signal(signal.SIGTERM)
    else:
        os.killpg(job.pid, signal.SIGINT if to == "Ctrl-C" else signal.SIGTERM)
    _, told = job.communicate(timeout=GONE)
    assert job.returncode == Exit.EVICTED, told
    assert "the same command goes on" in told
    assert not ranks_of(job.pid)
    owner = owner_of(tmp_path / "checkpoint.nc")
    assert owner is not None
    load(tmp_path / "checkpoint.nc", owner)


def test_ctrl_c_without_a_checkpoint_ends_all_at_once(start, tmp_path):
    job = start(tmp_path, 2, "--epochs", "1000000", start_new_session=True)
    wait_until(lambda: len(ranks_of(job.pid)) == 2, STARTED, "it has begun")
    time.sleep(3)
    os.killpg(job.pid, signal.SIGINT)
    job.communicate(timeout=GONE)
    assert job.returncode == 130
    assert not ranks_of(job.pid)


@pytest.mark.parametrize("more", [("--checkpoint", "work"), ()], ids=["saved", "not saved"])
def test_a_stop_while_ranks_start_leaves_none(start, tmp_path, more):
    job = start(tmp_path, 2, "--epochs", "1000000", *more, start_new_session=True)
    wait_until(lambda: ranks_of(job.pid), STARTED, "it has begun")
    os.killpg(job.pid, signal.SIGTERM)
    _, told = job.communicate(timeout=GONE)
    assert job.returncode == (Exit.EVICTED if more else -signal.SIGTERM), told
    wait_gone(job.pid)


def test_a_job_that_is_suspended_for_a_while_goes_on(start, tmp_path):
    more = ["--epochs", "400", "--checkpoint", str(tmp_path), "--checkpoint-every", "1s"]
    job = start(tmp_path, 2, *more, start_new_session=True)
    wait_saved(tmp_path, job)
    os.killpg(job.pid, signal.SIGSTOP)
    time.sleep(4)
    assert len(ranks_of(job.pid)) == 2
    os.killpg(job.pid, signal.SIGCONT)
    _, told = job.communicate(timeout=STARTED)
    assert job.returncode == 0, told


def test_ranks_do_not_outlive_their_job(start, tmp_path):
    job = start(tmp_path, 4, "--epochs", "1000000", "--checkpoint", str(tmp_path), "--checkpoint-every", "1s")
    wait_saved(tmp_path, job)
    shared = {name for rank in ranks_of(job.pid) for name in files_of(rank) if name.startswith("/dev/shm/")}
    job.kill()
    job.wait()
    wait_gone(job.pid)
    assert not [name for name in shared if Path(name).exists()]


@pytest.mark.parametrize("parallel", ["items", BY_EXAMPLES])
def test_a_training_goes_on_with_other_ranks_and_ends_with_the_same_file(start, tmp_path, parallel):
    """4 -> 2 -> 8 -> 1 ranks beside one that nobody has stopped."""
    alone = start(tmp_path, 1, "--epochs", "12", parallel=parallel)
    assert alone.wait(STARTED) == 0, alone.stderr.read()
    digest = sha256(tmp_path / "model.nc")
    work = tmp_path / "work"
    for ranks, stop_at in ((4, 5), (2, 17), (8, 30), (1, 0)):
        more = ["--epochs", "12", "--checkpoint", str(work)]
        job = start(tmp_path, ranks, *more, fault=f"leave:{ranks - 1}:{stop_at}", parallel=parallel)
        _, told = job.communicate(timeout=STARTED)
        assert job.returncode == (Exit.EVICTED if stop_at else 0), told
    assert sha256(tmp_path / "model.nc") == digest
