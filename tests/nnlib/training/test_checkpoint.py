"""A training that is stopped at any batch and started again ends as one that never was."""

import errno
import math
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnlib import __version__
from nnlib.contract import OPTIMIZERS, TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.errors import CheckpointedError, DataError, EvictedError
from nnlib.model.examples import examples_of
from nnlib.training import checkpoint, loop
from nnlib.training.checkpoint import Checkpoints
from nnlib.training.stop import Stop
from nnlib.util import netcdf
from nnlib.util.threads import workers
from tests.nnlib.samples import bits, network_of
from tests.nnlib.training.test_loop import NOISY, PLAIN, SETS

pytestmark = pytest.mark.slow

STEPS = 16  # four epochs of four batches
LAST = "checkpoint.nc"
PREVIOUS = "checkpoint.previous.nc"


class Evicting(Checkpoints):
    """Has the training told to stop after some steps, each of them once."""

    def __init__(self, folder, steps, training="this one"):
        self.stop = Stop()
        super().__init__(folder, training, self.stop)
        self.steps = steps

    def after_batch(self, training):
        if training.position.step in self.steps:
            self.steps.remove(training.position.step)
            self.stop.requested = True
        super().after_batch(training)


class Killing(Checkpoints):
    """Saves after some steps, and dies after another one without a word."""

    def __init__(self, folder, saved=(), killed=None):
        super().__init__(folder, "this one")
        self.saved, self.killed = saved, killed

    def after_batch(self, training):
        if training.position.step in self.saved:
            self.save(training)
        if training.position.step == self.killed:
            raise ZeroDivisionError


def wavering(evaluator):
    """A validation metric that goes up and down."""
    return math.sin(1e4 * float(evaluator.network.biases[0].sum()))


def fit(keeper=None, raw=NOISY, threads=1, validate=wavering, reported=None, **changes):
    """Return parameters, best epoch, number of epochs, and the epochs that were reported."""
    network, reported = network_of(raw, SETS), [] if reported is None else reported
    given = TrainSettings(**{"epochs": 4, "batch": 16, "learning_rate": 0.01, "stop_after": 2} | changes)
    examples = examples_of(network.spec, SETS, "d")

    def report(epoch):
        reported.append((epoch.epoch, epoch.loss, epoch.value))

    with workers(threads) as each:
        found = loop.fit(network, examples, given, Cpu(each), report, validate, keeper=keeper)
    return bits(found.network), found.best_epoch, found.epochs, reported


def fit_in_pieces(folder, stops, **changes):
    """As `fit`, begun anew after each of `stops` steps."""
    steps, reported = set(stops), []
    while True:
        try:
            return fit(Evicting(folder, steps), reported=reported, **changes)
        except EvictedError:
            continue


# Seldom alone: the rate falls after each epoch that is not better, and a mean of the weights is kept.
MANY = {"schedule": "plateau", "decay_epochs": 1, "decay_rate": 0.1, "stop_after": 0, "ema": 0.9}
SEVERAL = {"batch": 8, "accumulate": 3, "clip": 0.1}  # 7 batches an epoch, of which 3, 3 and 1 make an update


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    st.sets(st.integers(1, STEPS), min_size=1, max_size=4),
    st.sampled_from(OPTIMIZERS),
    st.sampled_from(
        [{}, {"l2": 1e-3}, {"clip": 0.1}, {"schedule": "cosine", "warmup": 1.5}, {"stop_after": 1}, MANY, SEVERAL]
    ),
)
@example({4, 8, 12, 16}, "adam", {})
@example({2, 7, 8, 11}, "adam", MANY)
@example({1, 3, 5, 7, 12}, "momentum", SEVERAL)
@example({1, 2, 3, 5}, "nesterov", {"stop_after": 0})
def test_stopped_anywhere_and_resumed_as_if_never_stopped(stops, rule, changes):
    with tempfile.TemporaryDirectory() as folder:
        found = fit_in_pieces(Path(folder), stops, optimizer=rule, **changes)
    assert found == fit(optimizer=rule, **changes)


def test_early_stopping_reaches_across_the_gap(tmp_path):
    """The best epoch lies before the stop, and the patience ends after it."""
    trainings = ((seed, fit(epochs=30, seed=seed)) for seed in range(1, 50))
    seed, whole = next((seed, found) for seed, found in trainings if 1 < found[1] < found[2] < 30)
    stop = 4 * whole[1] + 2
    assert fit_in_pieces(tmp_path, {stop}, epochs=30, seed=seed) == whole


@pytest.mark.parametrize(("before", "after"), [("bf16", "float32"), ("float32", "bf16")])
def test_what_auto_chose_first_is_kept_to_on_another_machine(tmp_path, monkeypatch, before, after):
    wanted = fit(precision=before)
    monkeypatch.setattr(Cpu, "choose_precision", lambda *_: before)
    reported = []
    with pytest.raises(EvictedError):
        fit(Evicting(tmp_path, {6}), reported=reported, precision="auto")
    monkeypatch.setattr(Cpu, "choose_precision", lambda *_: after)
    assert fit(Evicting(tmp_path, set()), reported=reported, precision="auto") == wanted != fit(precision="auto")


@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_killed_and_resumed_from_the_last_checkpoint(tmp_path, capsys, rule):
    with pytest.raises(ZeroDivisionError):
        fit(Killing(tmp_path, {3, 6}, 11), optimizer=rule)
    assert (tmp_path / PREVIOUS).exists()
    found = fit(Killing(tmp_path), optimizer=rule)
    whole = fit(optimizer=rule)
    assert found[:3] == whole[:3]
    assert found[3] == whole[3][1:]
    assert capsys.readouterr().err == "nnlib: resumed from checkpoint.nc: epoch 2, batch 2\n"


def test_on_another_number_of_threads(tmp_path):
    with pytest.raises(ZeroDivisionError):
        fit(Killing(tmp_path, {6}, 7), threads=2)
    assert fit(Killing(tmp_path), threads=3)[:3] == fit()[:3]


def test_without_validation(tmp_path):
    with pytest.raises(ZeroDivisionError):
        fit(Killing(tmp_path, {6}, 7), validate=None)
    assert fit(Killing(tmp_path), validate=None)[:3] == fit(validate=None)[:3]


@pytest.fixture(scope="module")
def two_checkpoints(tmp_path_factory):
    """A folder with the checkpoints of steps 3 and 6."""
    folder = tmp_path_factory.mktemp("two")
    with pytest.raises(ZeroDivisionError):
        fit(Killing(folder, {3, 6}, 6))
    return folder


@pytest.fixture
def folder(two_checkpoints, tmp_path):
    return Path(shutil.copytree(two_checkpoints, tmp_path / "copy"))


def assert_previous_is_used(folder, capsys, reason):
    assert fit(Killing(folder))[:3] == fit()[:3]
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("nnlib: checkpoint not used: checkpoint.nc: ")
    assert reason in first
    assert second == "nnlib: resumed from checkpoint.previous.nc: epoch 1, batch 3"


@pytest.mark.parametrize("part", [0.01, 0.5, 0.999])
def test_a_truncated_checkpoint_is_passed_over(folder, capsys, part):
    whole = (folder / LAST).read_bytes()
    (folder / LAST).write_bytes(whole[: int(part * len(whole))])
    assert_previous_is_used(folder, capsys, "its SHA-256 is not that of its content: torn or changed")


def test_a_changed_checkpoint_is_passed_over(folder, capsys):
    arrays, _ = checkpoint.load(folder / LAST, "this one")
    whole = (folder / LAST).read_bytes()
    place = whole.index(arrays["weights1"].tobytes()) + 17
    (folder / LAST).write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    assert_previous_is_used(folder, capsys, "its SHA-256 is not that of its content: torn or changed")


def test_a_checkpoint_of_another_training_is_passed_over(folder, capsys):
    arrays, numbers = checkpoint.load(folder / LAST, "this one")
    checkpoint.write(folder / LAST, arrays, numbers, "another one")
    assert_previous_is_used(folder, capsys, "of another training: other data, network, settings, backend or trial")


@pytest.mark.parametrize(("more", "writer"), [({"nnlib_version": "7.1"}, "nnlib 7.1"), ({}, "another nnlib")])
def test_a_checkpoint_of_another_format_is_passed_over(folder, capsys, more, writer):
    netcdf.write(folder / LAST, netcdf.Content({"nnlib_checkpoint": np.uint32(99), **more}, {}))
    checkpoint.seal(folder / LAST)
    reads = f"this one, {__version__}, reads format {checkpoint.FORMAT}"
    reason = f"a checkpoint of format 99, with which only {writer} goes on; {reads}"
    assert_previous_is_used(folder, capsys, reason)


def test_a_torn_one_never_takes_the_place_of_the_one_that_is_whole(folder):
    (folder / LAST).write_bytes((folder / LAST).read_bytes()[:-7])
    whole = (folder / PREVIOUS).read_bytes()
    with pytest.raises(EvictedError):
        fit(Evicting(folder, {4}))
    assert (folder / PREVIOUS).read_bytes() == whole
    checkpoint.check_whole(folder / LAST)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nnlib_checkpoint": "abc"}, "not a checkpoint of nnlib"),
        ({"nnlib_checkpoint": np.array([2, 2])}, "not a checkpoint of nnlib"),
        ({"nnlib_checkpoint": np.float32(2)}, "not a checkpoint of nnlib"),
        ({"training": np.array([1, 2])}, "attribute training: not a text"),
        ({"numbers": np.uint32(7)}, "attribute numbers: not a text"),
        ({"numbers": "{"}, "attribute numbers: not JSON"),
        ({"numbers": "[" * 100_000}, "attribute numbers: not JSON"),
        ({"numbers": "[1]"}, "attribute numbers: [1] is not legal, legal: an object of numbers"),
        ({"numbers": '{"epoch": "1"}'}, "is not legal, legal: an object of numbers"),
        ({"numbers": "{}"}, "attribute numbers: epoch is null, legal: a whole number from 0"),
        ({"numbers": '{"epoch": Infinity}'}, "attribute numbers: epoch is Infinity, legal: a whole number from 0"),
        ({"numbers": '{"epoch": -1}'}, "attribute numbers: epoch is -1, legal: a whole number from 0"),
    ],
)
def test_attributes_that_nnlib_does_not_write(folder, capsys, changes, reason):
    content = netcdf.read(folder / LAST)
    netcdf.write(folder / LAST, netcdf.Content({**content.attributes, **changes}, content.variables))
    checkpoint.seal(folder / LAST)
    assert_previous_is_used(folder, capsys, reason)


def test_without_any_that_can_be_used_it_starts_anew(folder, capsys):
    found = fit(Evicting(folder, set(), "quite another one"))
    assert found == fit()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[2].strip() for line in lines] == [LAST, PREVIOUS]


def test_an_empty_file_is_no_checkpoint(tmp_path, capsys):
    (tmp_path / LAST).touch()
    assert fit(Evicting(tmp_path, set())) == fit()
    assert capsys.readouterr().err == ""
    with pytest.raises(EvictedError):
        fit(Evicting(tmp_path, {3}))
    assert not (tmp_path / PREVIOUS).exists()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_is_changed_is_not_given_to_hdf5(data):
    """It loops for ever over some damaged files."""
    arrays = {"weights0": np.arange(12, dtype=np.float32), "bias0": np.ones(3, np.float32)}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / LAST
        checkpoint.write(path, arrays, {"epoch": 3, "total": 1.5}, "this one")
        seen, numbers = checkpoint.load(path, "this one")
        assert numbers == {"epoch": 3, "total": 1.5}
        assert seen.keys() == arrays.keys()
        assert all(np.array_equal(seen[name], array) for name, array in arrays.items())

        whole = path.read_bytes()
        changed = bytearray(whole[: data.draw(st.integers(0, len(whole)))] + data.draw(st.binary(max_size=3)))
        for place in data.draw(st.lists(st.integers(0, max(len(changed) - 1, 0)), max_size=3)) if changed else ():
            changed[place] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(changed)
        patch.setattr(netcdf, "File", None)
        if changed != whole:
            with pytest.raises(DataError, match=r"^checkpoint\.nc: its SHA-256"):
                checkpoint.check_whole(path)
            assert checkpoint.owner_of(path) is None


def test_a_full_disk_leaves_the_checkpoint_before(folder, monkeypatch):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(path, content):
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "the disk is full", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(netcdf, "write", full)
        with pytest.raises(OSError, match="the disk is full"):
            fit(Evicting(folder, {9}))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert fit(Killing(folder))[:3] == fit()[:3]


def test_killed_between_two_renames(folder, monkeypatch, capsys):
    """The one before is not there under its own name any more, and the new one not yet."""
    rename = Path.replace

    def only_aside(self, target):
        if self.name.endswith(".part"):
            raise ZeroDivisionError
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", only_aside)
        patch.setattr(netcdf, "write", lambda path, content: path.touch())
        with pytest.raises(ZeroDivisionError):
            fit(Evicting(folder, {9}))
    assert [path.name for path in folder.iterdir()] == [PREVIOUS]
    capsys.readouterr()
    assert fit(Killing(folder))[:3] == fit()[:3]
    assert capsys.readouterr().err == "nnlib: resumed from checkpoint.previous.nc: epoch 2, batch 2\n"


def test_saved_and_left_when_it_is_time(tmp_path):
    """Even when there is never time for more than one batch."""
    for _ in range(8):
        with pytest.raises(CheckpointedError):
            fit(Checkpoints(tmp_path, "this one", every=0.0), epochs=2)
    assert fit(Checkpoints(tmp_path, "this one", every=0.0), epochs=2)[:3] == fit(epochs=2)[:3]


def test_in_the_end_checkpoints_cost_no_transfer(folder):
    keeper = Checkpoints(folder, "this one")
    keeper.discard()
    assert [(path.name, path.stat().st_size) for path in folder.iterdir()] == [(LAST, 0)]
    Checkpoints(folder / "..", "this one").discard()
    assert not (folder / ".." / LAST).exists()


def test_signals_wait_from_the_first_batch_to_the_end(tmp_path):
    stop, seen = Stop(), []
    keeper = Checkpoints(tmp_path, "this one", stop)
    assert not stop.deferred
    fit(keeper, validate=lambda _: seen.append(stop.deferred) or 0.0)
    assert seen[0]
    keeper.discard()
    assert not stop.deferred


def test_a_state_of_another_network_is_refused():
    training, other = (
        loop.Training(network, examples_of(network.spec, SETS, "d"), TrainSettings(), Cpu())
        for network in (network_of(NOISY, SETS), network_of(PLAIN, SETS))
    )
    with pytest.raises(DataError, match="weights2 does not fit the network"):
        training.resume(*other.state())
