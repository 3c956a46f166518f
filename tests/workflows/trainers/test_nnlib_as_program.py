"""What programs are told and may say is enough for nnlib itself: the same study, built in and as any program."""

from __future__ import annotations

import signal
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from nnlib.contract import PROGRAM_FILE, Status, Trial, trial_from_json
from nnlib.epoch_log import read_epochs
from regiondag.node.pre import prepare_trial
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder, RunFolder
from regiondag.trainers.trying import Bench, Interruption
from tests.workflows.conftest import write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.trained import trained_run
from tests.workflows.trainers import programs
from tests.workflows.trainers.nnlib_as_program import AS_PROGRAM, BUILT_IN, EPOCHS, add_program, make_slow

pytestmark = pytest.mark.slow

TRIALS = 2
FIRST, FINAL = NodeName("germany", 0), NodeName("germany", None)


@pytest.fixture(scope="module")
def built_in(tmp_path_factory) -> RunFolder:
    return trained_run(tmp_path_factory.mktemp("built-in"), BUILT_IN, TRIALS)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> RunFolder:
    folder = tmp_path_factory.mktemp("program")
    add_program(folder)
    return trained_run(folder, AS_PROGRAM, TRIALS)


def curve_of(region: RegionFolder, node: NodeName) -> list[tuple[int, float | None]]:
    return [(one.epoch, one.value) for one in read_epochs(region.trial(node) / "log.jsonl")]


def test_its_trials_have_the_same_values_and_its_champion_the_same_bits(built_in, program):
    ours, theirs = built_in.region("germany"), program.region("germany")
    one, other = Journal(ours.journal).read(), Journal(theirs.journal).read()
    assert {n: p.point for n, p in one.proposals.items()} == {n: p.point for n, p in other.proposals.items()}
    for trial in range(TRIALS):
        node = NodeName("germany", trial)
        assert one.settled[trial].status is other.settled[trial].status is Status.OK
        assert one.settled[trial].value == other.settled[trial].value
        assert one.settled[trial].best_epoch == other.settled[trial].best_epoch
        assert curve_of(ours, node) == curve_of(theirs, node) and len(curve_of(ours, node)) == EPOCHS
    assert one.won == other.won
    assert one.final is not None and other.final is not None
    assert other.final.metrics["ndcg@5"] == one.final.metrics["ndcg@5"]
    with zipfile.ZipFile(theirs.champion_model) as packed:
        assert packed.namelist() == ["model.nc"]
        assert packed.read("model.nc") == (ours.trial(FINAL) / "model.nc").read_bytes()


@pytest.fixture
def slow(tmp_path) -> tuple[Bench, Trial, Path]:
    """A bench and the first trial of the study with an nnlib that was patched: every batch takes a while."""
    add_program(tmp_path)
    make_slow(tmp_path)
    region = create(write_study(tmp_path, AS_PROGRAM), tmp_path / "runs").region("germany")
    prepare_trial(region, FIRST)
    (folder := tmp_path / "bench").mkdir()
    trial = trial_from_json((region.trial(FIRST) / "trial.json").read_text())
    return programs.make_bench(folder), trial, region.program_archive


def test_stopped_and_started_elsewhere_it_comes_to_the_same(built_in, slow):
    bench, trial, archive = slow
    signalled = Interruption(signal.SIGTERM, lambda look: look.epochs >= 2)
    stopped = bench.try_job("job", trial, {PROGRAM_FILE: archive}, signalled)
    assert stopped.status is Status.EVICTED and stopped.saved
    assert 2 <= len(stopped.log) < EPOCHS
    again = bench.try_job("job", trial, {PROGRAM_FILE: archive})
    calm = Journal(built_in.region("germany").journal).read().settled[0]
    assert (again.status, again.value) == (Status.OK, calm.value)
    whole = read_epochs(bench.folder / "job" / "log.jsonl")
    assert [(one.epoch, one.value) for one in whole] == curve_of(built_in.region("germany"), FIRST)


def test_one_that_is_behind_is_ended_early(built_in, slow):
    bench, trial, archive = slow
    tried = bench.try_job("job", replace(trial, rungs=((2, 1e9),)), {PROGRAM_FILE: archive})
    assert tried.status is Status.PRUNED and 2 <= len(tried.log) < EPOCHS
    calm = curve_of(built_in.region("germany"), FIRST)
    assert [(one.epoch, one.value) for one in tried.log] == calm[: len(tried.log)]
