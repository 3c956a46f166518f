"""A job whose slot has several GPUs shares a wide network among ranks; here the processors stand in for them."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from nnlib.contract import (
    Exit,
    Metric,
    Role,
    Status,
    TrainSettings,
    result_from_json,
    sha256_of,
    trial_from_json,
    trial_to_json,
)
from nnlib.data.file import write_data
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import Data, DataSet
from tests.nnlib.parallel.test_faults import FAULTY, ranks_of, wait_gone
from tests.nnlib.samples import random_rows

pytestmark = pytest.mark.slow

ITEMS = 4100
NAMES = tuple(f"item{n}" for n in range(ITEMS))
SLOT = {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c", "NNLIB_SIMULATED_GPUS": "1", "OMP_NUM_THREADS": "2"}


@pytest.fixture
def wide_trial(make_trial):
    def make(folder, **changes):
        trial = make_trial(folder)
        for name, examples, seed in (("train.nc", 48, 1), ("held.nc", 20, 2)):
            rows = random_rows(examples, ITEMS, seed, 30)
            sets = (DataSet("input", rows, NAMES), DataSet("output", random_rows(examples, ITEMS, seed + 5, 30), NAMES))
            write_data(trial.parent / name, Data(sets))
        digests = {name: sha256_of(trial.parent / name) for name in ("train.nc", "held.nc")}
        train = TrainSettings(epochs=3, batch=16, learning_rate=0.01, parallel="items", ema=0.5)
        found = dataclasses.replace(trial_from_json(trial.read_text()), train=train, sha256=digests)
        trial.write_text(trial_to_json(dataclasses.replace(found, **changes)))
        return trial

    return make


@pytest.fixture
def start(keep):
    def begin(trial, **environment):
        path = os.pathsep.join(filter(None, [str(FAULTY), os.environ.get("PYTHONPATH", "")]))
        return keep(
            subprocess.Popen(
                [sys.executable, "-m", "nnlib", "train", "--trial", str(trial), "--device", "gpu"],
                cwd=trial.parent,
                env=os.environ
                | {"OMP_NUM_THREADS": "1", "NNLIB_SIMULATED_GPUS": "1", "PYTHONPATH": path}
                | environment,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    return begin


@pytest.fixture
def run(start):
    def until_it_ends(trial, **environment):
        job = start(trial, **environment)
        _, told = job.communicate(timeout=240)
        return job.returncode, result_from_json((trial.parent / "result.json").read_text()), told

    return until_it_ends


@pytest.mark.parametrize("role", [Role.TUNE, Role.FINAL])
def test_a_job_gives_the_same_on_the_gpus_that_it_was_given(run, wide_trial, role):
    alone, shared = wide_trial("alone", role=role), wide_trial("shared", role=role)
    code, one, told = run(alone)
    assert code == 0, told
    code, two, told = run(shared, **SLOT)
    assert code == 0, told
    assert (one.ranks, one.plan, two.ranks, two.plan) == (1, "items", 2, "items")
    assert two.gpu == {} and two.backend == one.backend
    assert (two.metrics, two.curve, two.value) == (one.metrics, one.curve, one.value)
    assert two.model == one.model
    np.testing.assert_array_equal(np.load(shared.parent / "scores.npy"), np.load(alone.parent / "scores.npy"))


IMAGES = {
    "Layers": [
        {"Name": "I", "Kind": "Input", "N": "auto", "DataSet": "pictures"},
        {"Name": "C", "Kind": "Hidden", "Type": "Convolutional", "N": 4, "Kernel": [3, 3], "Activation": "Relu"},
        {"Name": "O", "Kind": "Output", "N": "auto", "DataSet": "classes", "Activation": "SoftMax"},
    ],
    "ErrorFunction": "CrossEntropy",
}


@pytest.mark.parametrize(
    ("parallel", "batch", "several", "plan"),
    [("examples", 16, False, "examples"), ("auto", 1 << 20, True, "examples"), ("auto", 1 << 20, False, "none")],
)
def test_a_job_shares_the_batches_of_a_network_of_images(run, make_trial, parallel, batch, several, plan):
    """By `auto` where its job asks for several GPUs, and what a batch takes is worth them; on one as well."""
    digests, found = dict[str, str](), []
    settings = TrainSettings(epochs=2, batch=batch, learning_rate=0.01, parallel=parallel, clip=0.5)
    for folder, slot in (("alone", {}), ("shared", SLOT)):
        trial = make_trial(folder, network=IMAGES, hyperparameters={})
        for name, count in (("train.nc", 45), ("held.nc", 20)):
            random = np.random.default_rng(count)
            pictures = Dense(random.integers(0, 256, (count, 36), np.uint8))
            classes = from_rows([[n % 3] for n in range(count)], 3)
            sets = DataSet("pictures", pictures, dimensions=(6, 6, 1)), DataSet("classes", classes)
            write_data(trial.parent / name, Data(sets))
            digests[name] = sha256_of(trial.parent / name)
        one = dataclasses.replace(
            trial_from_json(trial.read_text()),
            train=settings,
            sha256=digests,
            role=Role.FINAL,
            metric=Metric("p@1"),
            several=several,
        )
        trial.write_text(trial_to_json(one))
        code, result, told = run(trial, **slot)
        assert code == 0, told
        found.append(result)
    alone, shared = found
    assert (alone.ranks, alone.plan, shared.ranks, shared.plan) == (1, plan, 1 if plan == "none" else 2, plan)
    assert (shared.metrics, shared.curve, shared.model) == (alone.metrics, alone.curve, alone.model)


def test_narrow_networks_are_trained_by_one_process(run, make_trial):
    code, result, _ = run(make_trial(), **SLOT)
    assert (code, result.ranks, result.plan) == (0, 1, "none")


def test_a_rank_that_dies_is_the_machines_fault_and_in_the_result(run, wide_trial):
    code, result, told = run(wide_trial("job"), FAULT="SIGKILL:1:4", **SLOT)
    assert (code, result.status) == (Exit.MACHINE, Status.MACHINE)
    assert "rank 1 of 2" in result.reason and "SIGKILL" in result.reason
    assert "Traceback" not in told


def test_a_job_that_is_told_to_leave_goes_on_with_fewer_gpus(run, wide_trial):
    trial = wide_trial("job")
    code, result, told = run(trial, FAULT="leave:1:4", **SLOT)
    assert (code, result.status) == (Exit.EVICTED, Status.EVICTED), told
    assert (trial.parent / "checkpoint.nc").stat().st_size
    code, result, told = run(trial)
    assert (code, result.ranks) == (0, 1), told
    assert "resumed from checkpoint.nc" in told
    _, whole, _ = run(wide_trial("whole"), **SLOT)
    assert (result.metrics, result.curve) == (whole.metrics, whole.curve)


def test_a_job_that_is_killed_leaves_no_rank(start, wide_trial):
    trial = wide_trial("job", train=TrainSettings(epochs=100000, batch=16, parallel="items", stop_after=0))
    job = start(trial, **SLOT)
    log, until = trial.parent / "log.jsonl", time.monotonic() + 120
    while not (log.exists() and log.stat().st_size) and time.monotonic() < until:
        time.sleep(0.1)
    ranks = ranks_of(job.pid)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    assert len(ranks) == 2
    wait_gone(job.pid)
