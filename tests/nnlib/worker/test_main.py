"""The worker's side of the contract: exit codes, results, and jobs that are stopped, killed and started again."""

import copy
import errno
import json
import os
import signal
import subprocess
import sys
import time
import zipapp
from pathlib import Path

import pytest

import nnlib
from nnlib import cli
from nnlib.compiled import select
from nnlib.contract import Metric, Role, Status, TrainSettings, result_from_json, sha256_of, trial_from_json
from nnlib.cpu.engine import CpuEngine
from nnlib.errors import CheckpointedError, EvictedError, MachineError, NnlibError
from nnlib.training.alone import alone_in
from nnlib.util.threads import BLAS_THREADS
from nnlib.worker import main
from tests.nnlib.isolation import own_process
from tests.nnlib.samples import NETWORK

pytestmark = pytest.mark.slow

SIGNALS = signal.SIGTERM, signal.SIGINT
SLOWLY = """
import sys, time
from pathlib import Path
from nnlib.cpu.engine import CpuEngine
from nnlib.worker import main as worker
run = CpuEngine.run
CpuEngine.run = lambda *arguments: (time.sleep(0.02), run(*arguments))[1]
sys.exit(worker.train(Path(sys.argv[1])))
"""


def command(trial, *before):
    return [*(before or (sys.executable, "-m", "nnlib")), "train", "--trial", str(trial)]


def run(trial, *before, **environment):
    """Run the job in a process of its own; return exit code, result and stderr."""
    done = subprocess.run(
        command(trial, *before),
        capture_output=True,
        text=True,
        check=False,
        cwd=trial.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )
    return done.returncode, result_of(trial), done.stderr


def result_of(trial):
    return result_from_json((trial.parent / "result.json").read_text())


def log_of(trial):
    lines = (trial.parent / "log.jsonl").read_text().splitlines()
    return [{**json.loads(line), "seconds": 0} for line in lines]


@pytest.fixture
def here(monkeypatch):
    """Run jobs in this process, whose signal handlers and environment are as before in the end."""
    for name in BLAS_THREADS:
        monkeypatch.setenv(name, "1")
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def train(trial, **arguments):
        try:
            return main.train(trial, **arguments), result_of(trial)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    return train


def test_a_job_of_its_own(make_trial, here):
    """On two threads it gives the very bits that this process gives on one."""
    trial, twin = make_trial(role=Role.FINAL), make_trial("twin", role=Role.FINAL)
    code, result, stderr = run(trial, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2")
    assert (code, result.status, result.node, result.reason) == (0, Status.OK, "r_t0001", "")
    assert result.backend == select.NAME
    assert {"python", "numpy", "scipy", "netCDF4", "nnlib"} <= set(result.versions)
    assert result.host
    assert {"cpu", "cores", "kernel"} <= set(result.machine) and result.gpu == {}
    assert (result.seed, result.code) == (trial_from_json(trial.read_text()).train.seed, "")
    assert result.model == sha256_of(trial.parent / "model.nc")
    assert result.seconds > 0
    assert "epoch 1/6 loss " in stderr
    code, other = here(twin)
    assert code == 0
    assert log_of(twin) == log_of(trial)
    assert dict(other.metrics) == dict(result.metrics)
    assert (twin.parent / "model.nc").read_bytes() == (trial.parent / "model.nc").read_bytes()


@pytest.mark.parametrize("role", Role)
def test_a_job_that_had_done_its_work_when_it_was_evicted_does_it_once(make_trial, here, monkeypatch, capsys, role):
    """HTCondor starts it again, whatever it ended with."""
    trial = make_trial(role=role)
    _, first = here(trial)
    monkeypatch.setenv("_CONDOR_JOB_AD", "/x/.job.ad")
    assert here(trial) == (0, first)
    assert "nothing is trained again" in capsys.readouterr().err
    if role is Role.FINAL:
        (trial.parent / "model.nc").write_bytes(b"half of it")
        here(trial)
        assert (trial.parent / "model.nc").stat().st_size > 100 and "epoch 1/6" in capsys.readouterr().err
    monkeypatch.delenv("_CONDOR_JOB_AD")
    here(trial)
    assert "epoch 1/6" in capsys.readouterr().err  # who calls nnlib by hand wants a training


def test_without_a_folder_or_a_trial(tmp_path, capsys, here):
    assert cli.main(["train", "--trial", str(tmp_path / "none" / "trial.json")]) == 4
    assert "no such folder" in capsys.readouterr().err
    code, result = here(tmp_path / "trial.json")
    assert (code, result.node) == (4, "")
    assert "trial.json: no such file" in result.reason


def test_an_earlier_attempt_leaves_no_result(make_trial, here, capsys):
    trial = make_trial(network=[], hyperparameters={})
    (trial.parent / "result.json").write_text("old")
    code, result = here(trial)
    assert (code, result.status, result.epochs) == (4, Status.BAD_INPUT, 0)
    assert result.reason == "network.json: [] is not a network, legal: an object with the key Layers"
    assert capsys.readouterr().err == f"nnlib: {result.reason}\n"


def test_diverged(make_trial, here):
    code, result = here(make_trial(train=TrainSettings(epochs=5, batch=16, learning_rate=1e30)))
    assert (code, result.status) == (3, Status.DIVERGED)
    assert result.reason.startswith("epoch 1, batch ")
    assert "lower learning_rate" in result.reason


def network(**changes):
    raw = copy.deepcopy(NETWORK)
    raw["Layers"][1] |= changes
    return raw


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network": network(Activation="Sigmod")}, 'network.json: Layers[1].Activation: "Sigmod"'),
        ({"network": network(Type="Pooling", Function="Max")}, "of type Pooling with Function Max, takes"),
        ({"hyperparameters": {"hidden": 3}}, '"$denoising" has no value'),
        ({"hyperparameters": {"hidden": 3, "denoising": 0, "x": 1}}, "hyperparameter 'x' is used nowhere"),
        ({"train": TrainSettings(optimizer="adma")}, "train.optimizer: 'adma' is not legal"),
        ({"train": TrainSettings(epochs=0, l2=-1.0)}, "train.l2: -1.0 is not legal"),
        ({"metric": Metric("auc@3")}, "metric.name: metric 'auc@3' is not legal"),
        ({"valid_file": None}, "valid_file: null"),
        ({"valid_file": "none.nc"}, "none.nc: no such file"),
        ({"train_files": ()}, "train_files"),
        ({"version": 99}, "version 99"),
    ],
)
def test_bad_input(make_trial, here, changes, words):
    code, result = here(make_trial(**changes))
    assert (code, result.status) == (4, Status.BAD_INPUT)
    assert words in result.reason


@own_process
def test_bad_data(make_trial, here):
    trial = make_trial(sha256={})
    (trial.parent / "held.nc").write_bytes((trial.parent / "held.nc").read_bytes()[:500])
    code, result = here(trial)
    assert (code, result.status) == (4, Status.BAD_INPUT)
    assert "held.nc: not a readable NetCDF file" in result.reason


@pytest.mark.parametrize(
    ("error", "code", "status", "words"),
    [
        (IndexError("index 7"), 1, Status.MACHINE, "a bug of nnlib: IndexError: index 7"),
        (MemoryError("2 TiB"), 75, Status.MACHINE, "out of memory: 2 TiB"),
        (OSError(errno.ENOSPC, "the disk is full", "model.nc"), 75, Status.MACHINE, "model.nc: the disk is full"),
        (MachineError("no netCDF4"), 75, Status.MACHINE, "no netCDF4"),
        (EvictedError(), 143, Status.EVICTED, "stopped by SIGTERM"),
        (KeyboardInterrupt(), 143, Status.EVICTED, "interrupted"),
        (CheckpointedError(), 85, Status.EVICTED, "checkpoint written, to be started again"),
    ],
)
def test_how_errors_end(make_trial, here, monkeypatch, capsys, error, code, status, words):
    def fails(*_):
        raise error

    monkeypatch.setattr(main, "_run", fails)
    found, result = here(make_trial())
    assert (found, result.status, result.reason, result.node) == (code, status, words, "r_t0001")
    assert ("Traceback" in capsys.readouterr().err) == (code == 1)


def test_corrupt_transfer_and_lost_file(make_trial, here):
    trial = make_trial()
    with (trial.parent / "held.nc").open("ab") as file:
        file.write(b"x")
    code, result = here(trial)
    assert (code, result.status) == (75, Status.MACHINE)
    assert "held.nc: sha256 is " in result.reason
    (trial.parent / "held.nc").unlink()
    code, result = here(trial)
    assert (code, result.status) == (75, Status.MACHINE)
    assert "held.nc: did not arrive" in result.reason


def test_missing_library(make_trial, tmp_path):
    (tmp_path / "netCDF4.py").write_text("raise ImportError('libhdf5.so: cannot open')")
    path = os.pathsep.join([str(tmp_path), str(Path(nnlib.__file__).parent.parent)])
    code, result, _ = run(make_trial(), PYTHONPATH=path)
    assert (code, result.status) == (75, Status.MACHINE)
    assert "libhdf5.so" in result.reason


def test_a_backend_that_is_not_there(make_trial):
    code, result, _ = run(make_trial(), NNLIB_BACKEND="abacus")
    assert (code, result.status) == (4, Status.BAD_INPUT)
    assert result.reason == "NNLIB_BACKEND: 'abacus' is not legal, legal: auto, numpy, numba"


def test_a_full_disk_at_the_end(make_trial, here, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "the disk is full: 0 bytes are free; make room and try again", "model.nc")

    monkeypatch.setattr("nnlib.worker.job.write_model", full)
    trial = make_trial(role=Role.FINAL)
    code, result = here(trial)
    assert (code, result.status, result.epochs) == (75, Status.MACHINE, 6)
    assert (trial.parent / "model.nc").read_bytes() == b""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_the_first_batch(make_trial, here, monkeypatch, number):
    """There is nothing to be saved; what comes after the first signal is ignored."""

    def signalled(*_):
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("nnlib.worker.job.open_data", signalled)
    trial = make_trial()
    code, result = here(trial)
    assert (code, result.status, result.epochs) == (143, Status.EVICTED, 0)
    assert result.reason == ("stopped by SIGTERM" if number == signal.SIGTERM else "interrupted")
    assert (trial.parent / "checkpoint.nc").read_bytes() == b""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_in_a_batch_waits_for_its_end(make_trial, here, monkeypatch, number):
    trial, twin, inner = make_trial(role=Role.FINAL), make_trial("twin", role=Role.FINAL), CpuEngine.run
    with monkeypatch.context() as patch:
        patch.setattr(CpuEngine, "run", lambda *arguments: (os.kill(os.getpid(), number), inner(*arguments))[1])
        code, result = here(trial)
    assert (code, result.status) == (143, Status.EVICTED)
    assert (trial.parent / "checkpoint.nc").stat().st_size > 0
    assert here(trial)[0] == here(twin)[0] == 0
    assert (trial.parent / "model.nc").read_bytes() == (twin.parent / "model.nc").read_bytes()


def test_left_when_it_is_time_and_started_again_until_it_is_done(make_trial, here):
    settings = TrainSettings(epochs=3, batch=16, learning_rate=0.01)
    trial, twin = (make_trial(name, role=Role.FINAL, train=settings) for name in ("job", "twin"))
    for attempt in range(12):
        code, result = here(trial, checkpoint_every=0.0)
        assert (code, result.status, result.epochs) == (85, Status.EVICTED, attempt // 4)
    code, result = here(trial, checkpoint_every=0.0)
    assert (code, result.status) == (0, Status.OK)
    assert here(twin)[0] == 0
    assert (trial.parent / "model.nc").read_bytes() == (twin.parent / "model.nc").read_bytes()
    assert log_of(trial) == log_of(twin)
    assert [line["epoch"] for line in log_of(trial)] == [1, 2, 3]
    assert (trial.parent / "checkpoint.nc").read_bytes() == b""
    assert not list(trial.parent.glob("*previous*"))


def saved_job(make_trial, here, batches=9):
    """Return a job of three epochs of four batches each that was left after some batches."""
    trial = make_trial(train=TrainSettings(epochs=3, batch=16, learning_rate=0.01))
    for _ in range(batches):
        assert here(trial, checkpoint_every=0.0)[0] == 85
    return trial


@pytest.mark.parametrize("kept", [b"", b'{"epoch": 1', b"\xff\n", b'{"epoch": 2}\n', b"[]\n"])
def test_without_its_log_a_checkpoint_is_passed_over(make_trial, here, capsys, kept):
    """The curve would have a hole."""
    twin = make_trial("twin", train=TrainSettings(epochs=3, batch=16, learning_rate=0.01))
    expected = here(twin)[1]
    trial = saved_job(make_trial, here)
    log = trial.parent / "log.jsonl"
    whole = log.read_bytes().splitlines(keepends=True)
    assert len(whole) == 2
    log.write_bytes((whole[0] if kept == b"[]\n" else b"") + kept)
    capsys.readouterr()
    code, result = here(trial)
    assert (code, result.curve) == (0, expected.curve)
    shown = capsys.readouterr().err
    assert "checkpoint not used: checkpoint.nc: 2 epochs lie before it, log.jsonl tells of" in shown


@pytest.mark.parametrize("content", [b"torn", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_a_torn_checkpoint_that_came_back_stops_nobody(make_trial, here, capsys, content):
    trial = make_trial()
    (trial.parent / "checkpoint.nc").write_bytes(content)
    code, _ = here(trial)
    assert code == 0
    assert "checkpoint not used: " in capsys.readouterr().err


def test_the_seconds_of_all_legs_are_counted(make_trial, here):
    trial = make_trial(train=TrainSettings(epochs=3, batch=16, learning_rate=0.01))
    before = 0.0
    for _ in range(3):
        code, result = here(trial, checkpoint_every=0.0)
        assert code == 85
        assert result.seconds > before
        before = result.seconds
    path = trial.parent / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seconds": 1000.0}))
    assert 1000 < here(trial)[1].seconds < 1100
    assert here(trial)[1].seconds < 100  # the one before had ended, and was another job's
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "evicted", "node": "x", "seconds": 1000.0}))
    assert here(trial)[1].seconds < 100


def signalled(trial, number, lines):
    """Start the job, slowly, and send a signal once the log has so many lines; return the exit code."""
    job = subprocess.Popen([sys.executable, "-c", SLOWLY, str(trial)], stderr=subprocess.DEVNULL)
    try:
        deadline, log = time.monotonic() + 60, trial.parent / "log.jsonl"
        while not log.exists() or len(log.read_text().splitlines()) < lines:
            assert time.monotonic() < deadline
            assert job.poll() is None
            time.sleep(0.02)
        assert (trial.parent / "result.json").read_bytes() == b""
        assert (trial.parent / "model.nc").read_bytes() == b""
        job.send_signal(number)
        return job.wait(30)
    finally:
        job.kill()
        job.wait()


@pytest.mark.slow
def test_evicted_killed_and_started_again(make_trial, here):
    """A SIGTERM is survived by a checkpoint, and that by a SIGKILL."""
    settings = TrainSettings(epochs=30, batch=16, learning_rate=0.01)
    trial, twin = (make_trial(name, role=Role.FINAL, train=settings) for name in ("job", "twin"))
    assert signalled(trial, signal.SIGTERM, 3) == 143
    result = result_of(trial)
    assert (result.status, result.reason) == (Status.EVICTED, "stopped by SIGTERM")
    assert 3 <= result.epochs < 30
    saved = (trial.parent / "checkpoint.nc").read_bytes()
    assert saved
    assert signalled(trial, signal.SIGKILL, result.epochs + 4) == -signal.SIGKILL
    assert (trial.parent / "checkpoint.nc").read_bytes() == saved
    code, result, stderr = run(trial)
    assert (code, result.status, result.epochs) == (0, Status.OK, 30)
    assert "resumed from checkpoint.nc: epoch " in stderr
    assert here(twin)[0] == 0
    assert (trial.parent / "model.nc").read_bytes() == (twin.parent / "model.nc").read_bytes()
    assert log_of(trial) == log_of(twin)
    assert [line["epoch"] for line in log_of(trial)] == list(range(1, 31))
    assert (trial.parent / "checkpoint.nc").read_bytes() == b""


def test_a_second_job_in_the_same_folder_leaves_the_first_alone(make_trial):
    trial = make_trial("job")
    (trial.parent / "result.json").write_text("the first one's")
    with alone_in(trial.parent), pytest.raises(NnlibError, match=rf"job: process {os.getpid()} on .* trains in this"):
        main.train(trial)
    assert (trial.parent / "result.json").read_text() == "the first one's"


def test_what_a_killed_job_has_left_is_removed(make_trial, here):
    trial = make_trial("job")
    for name in (".result.json.7.part", ".model.nc.7.part", ".checkpoint.nc.7.part"):
        (trial.parent / name).touch()
    assert here(trial)[0] == 0
    assert not list(trial.parent.glob(".*"))


@pytest.mark.slow
def test_killed_without_a_checkpoint_it_starts_anew(make_trial, here):
    settings = TrainSettings(epochs=30, batch=16, learning_rate=0.01)
    trial, twin = (make_trial(name, role=Role.FINAL, train=settings) for name in ("job", "twin"))
    assert signalled(trial, signal.SIGKILL, 5) == -signal.SIGKILL
    assert (trial.parent / "checkpoint.nc").read_bytes() == b""
    assert here(trial)[0] == here(twin)[0] == 0
    assert (trial.parent / "model.nc").read_bytes() == (twin.parent / "model.nc").read_bytes()
    assert log_of(trial) == log_of(twin)


@pytest.mark.slow
def test_from_a_zip_file(make_trial, tmp_path):
    bundle, source = tmp_path / "nnlib.pyz", Path(nnlib.__file__).parent
    zipapp.create_archive(
        source.parent,
        bundle,
        main="nnlib.cli:main",
        filter=lambda path: path.parts[0] == "nnlib" and path.suffix == ".py",
    )
    code, result, _ = run(make_trial(), sys.executable, str(bundle), NNLIB_BACKEND="numpy")
    assert (code, result.status, result.backend) == (0, Status.OK, "numpy")
