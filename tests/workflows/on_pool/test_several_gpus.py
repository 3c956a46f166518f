"""Trainings that share several simulated GPUs of a real HTCondor pool, and what is left of them when one fails."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from nnlib.contract import Result, result_from_json
from regiondag.accounting.prices import PriceTable
from regiondag.accounting.stats import read_stats
from regiondag.cli import main
from regiondag.condor.events.log import read_attempts
from regiondag.pool.pool import Pool
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder
from tests.conftest import SUITE, started_pool
from tests.workflows import conftest
from tests.workflows.on_pool.test_eviction import FINAL, TRIAL, place
from tests.workflows.on_pool.test_study import finish, generate, submit

pytestmark = [pytest.mark.condor, pytest.mark.timeout(900)]

# Of 4,096 units on a layer can be cut; `items` cuts it.
TEXT = (
    conftest.STUDY.replace("  - {name: United Kingdom, data: data/uk.nc}\n", "")
    .replace("rounds: 2\n  parallel: 2", "rounds: 1\n  parallel: 1")
    .replace("epochs: 2, batch: 4", "epochs: 2, batch: 4, parallel: items")
)


@pytest.fixture(scope="module")
def four() -> Iterator[Pool]:
    """Return a pool whose one machine with GPUs has four."""
    with started_pool(f"pytest-{SUITE}-{os.getpid()}-four", gpus=4) as pool:
        yield pool


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "WIDTH", 4096)


def result_of(run: RunFolder, node: NodeName) -> Result:
    return result_from_json((place(run, node) / "result.json").read_text())


def gpus_of_legs(run: RunFolder, node: NodeName) -> list[float | None]:
    return [leg.gpus for attempt in read_attempts(run) if attempt.node == node for leg in attempt.legs]


def fail_once(run: RunFolder) -> None:
    """Let the first try of each job end as if a GPU had been lost."""
    script = run.path / "train.sh"
    lost = f'[ -e "{run.path}/lost" ] || {{ : >"{run.path}/lost"; exit 75; }}\n'
    script.write_text(script.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\n{lost}", 1))


def test_trials_have_two_the_winner_four_and_a_replay_one(four, wide, run_area, capsys):
    run = generate(run_area, capsys, TEXT.replace("job: {", "final: {gpus: 4}\njob: {gpus: 2, "))
    assert main(["doctor", str(run.path)]) == 0
    said = capsys.readouterr().out
    assert "at most 4 on one machine (Tesla V100" in said and "run nnlib doctor-gpu on a worker" in said
    submit(run)
    assert finish(four, run).exit_code == 0
    assert (gpus_of_legs(run, TRIAL), gpus_of_legs(run, FINAL)) == ([2], [4])
    trial, final = result_of(run, TRIAL), result_of(run, FINAL)
    assert (trial.ranks, trial.plan, final.ranks, final.plan) == (2, "items", 4, "items")
    total = read_stats(run, PriceTable()).total
    assert total.gpu_hours > 2 * total.slot_hours > 0
    assert main(["replay", str(run.path), "germany", "final"]) == 0
    assert "the same, bit by bit" in capsys.readouterr().out


def test_a_gpu_lost_is_tried_again_with_fewer(four, wide, run_area, capsys):
    run = generate(run_area, capsys, TEXT.replace("job: {", "job: {gpus: {min: 1, max: 4}, "))
    fail_once(run)
    submit(run)
    assert finish(four, run).exit_code == 0
    assert gpus_of_legs(run, TRIAL) == [4, 2]
    assert result_of(run, TRIAL).ranks == 2
    [of_final] = gpus_of_legs(run, FINAL)  # four, or two where the trial's slot is still there and is taken over
    assert of_final in (2, 4) and result_of(run, FINAL).ranks == of_final
    assert len(Journal(run.region("germany").journal).read().faults) == 1


def test_what_asks_for_more_than_there_are_is_told_before(four, wide, run_area, capsys):
    run = generate(run_area, capsys, TEXT.replace("job: {", "job: {gpus: 8, "))
    assert main(["doctor", str(run.path)]) == 6
    assert "it needs 8 GPUs, the most on one machine are 4" in " ".join(capsys.readouterr().out.split())
