"""The training steps and the epoch that are measured on a GPU, on a stand-in for one; sides that go in turn."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.cpu.backend import Cpu
from nnlib.gpu.backend import Gpu
from tests.bench.conftest import BENCH
from tests.kernels.standin import Cupy

TINY = {"batch": 8, "batches": 3, "steps": 3, "warm": 1}


@pytest.fixture
def floor(bench) -> ModuleType:
    return bench("gpu_floor")


@pytest.fixture
def epoch(bench) -> ModuleType:
    return bench("gpu_epoch")


def wide(work, **changes):
    return work.GpuWork(**{"kind": "autoencoder", "items": 60, "hidden": 8, "density": 0.4} | TINY | changes)


def test_a_work_is_one_word_of_a_command_line(work):
    given = wide(work, tf32=True, variant=work.GRAPHED, optimizer="rmsprop")
    assert work.work_of(given.arguments()) == given


def test_all_sides_start_with_the_same_weights(work):
    first, again = work.weights(wide(work)), work.weights(wide(work, variant=work.EAGER, tf32=True))
    assert [matrix.shape for matrix in first] == [(60, 8), (8, 8), (8, 8), (8, 60)]
    for matrix, other in zip(first, again, strict=True):
        assert matrix.dtype == np.float32
        assert matrix.tobytes() == other.tobytes()
    assert 0.9 * (6 / 68) ** 0.5 < np.abs(first[0]).max() <= np.float32((6 / 68) ** 0.5)
    assert work.widths(work.GpuWork("images")) == (784, 512, 512, 10)


@pytest.mark.parametrize(
    ("theirs", "tf32", "said"),
    [
        ([100.0, 50.0], False, ""),
        ([100.0, 50.02], False, ""),
        ([100.0, 50.05], False, "loss of step 2 is 50.05, ours 50: they differ by 1.0e-03 of it"),
        ([100.0, 50.05], True, ""),
        ([float("nan"), 50.0], True, "loss of step 1 is nan"),
    ],
)
def test_losses_that_differ(work, theirs, tf32, said):
    assert work.difference([100.0, 50.0], theirs, tf32).startswith(said)
    assert bool(said) == bool(work.difference([100.0, 50.0], theirs, tf32))


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=8), more=st.integers(0, 40))
def test_rows_are_filled_up_evenly(counts, more):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        from gpu_work import filled
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.arange(sum(counts), dtype=np.int32)
    starts, full = filled(indptr, indices, sum(counts) + more, 99)
    assert len(full) == starts[-1] == sum(counts) + more
    added = np.diff(starts) - counts
    assert added.max() - added.min() <= 1
    for row, (low, high) in enumerate(pairwise(starts)):
        assert full[low:high].tolist() == [*indices[indptr[row] : indptr[row + 1]], *[99] * added[row]]


def answers(ours, monkeypatch, capsys, given, compute) -> dict[str, dict]:
    """What our side answers to every command."""
    commands = ["ready", "step", "prepare", "memory"]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(commands[1:]) + "\n"))
    ours.served(given, compute, lambda: 3 << 20)
    return dict(zip(commands, map(json.loads, capsys.readouterr().out.splitlines()), strict=True))


@pytest.mark.parametrize("kind", ["autoencoder", "images"])
def test_our_side_trains_as_the_cpu_does(bench, work, monkeypatch, capsys, kind):
    ours, cupy = bench("gpu_train_ours"), Cupy()
    given = wide(work, optimizer="rmsprop") if kind == "autoencoder" else work.GpuWork(kind, **TINY)
    found = answers(ours, monkeypatch, capsys, given, Gpu(cupy.runtime(), 2))
    wanted = answers(ours, monkeypatch, capsys, given, Cpu())
    cupy.check()
    assert found["ready"]["losses"] == pytest.approx(wanted["ready"]["losses"], rel=1e-5)
    assert len(found["ready"]["losses"]) == work.CHECKED
    assert found["step"]["ms"] > 0
    assert found["prepare"]["ms"] > 0
    assert found["memory"] == {"mb": 3.0}


def test_our_side_ends_when_training_fails(bench, work, monkeypatch):
    ours = bench("gpu_train_ours")
    monkeypatch.setattr(ours, "MOST_STEPS", 6)
    training = ours.Training(wide(work), Gpu(Cupy().runtime()))
    training.losses()
    training.step()
    training.settle()
    with pytest.raises(RuntimeError, match="for 6 steps only"):
        training.step()


def test_floors_of_the_wide_network(work, floor):
    """What a step of it takes in operations and bytes was counted by hand."""
    full = work.GpuWork("autoencoder")
    assert floor.operations_of(full) == pytest.approx(46.1e9, rel=1e-3)
    assert floor.bytes_of(replace(full, optimizer="rmsprop"), 5300) == pytest.approx(1.2e9, rel=0.02)
    assert floor.operations_of(work.GpuWork("images")) == pytest.approx(0.82e9, rel=0.01)
    assert 5000 < floor.touched_by(replace(full, batches=2)) < 6000
    assert floor.touched_by(work.GpuWork("images")) == 0


def test_a_floor_is_the_larger_one(work, floor):
    ceilings = floor.Ceilings(bandwidth=4e12, float32=50e12, tf32=400e12)
    plain = floor.floor_of(work.GpuWork("autoencoder"), 5300, ceilings)
    assert (plain.by, plain.ms) == ("operations", pytest.approx(0.92, rel=0.01))
    tf32 = floor.floor_of(work.GpuWork("autoencoder", tf32=True), 5300, ceilings)
    assert (tf32.by, tf32.ms) == ("bytes", plain.bytes_ms)
    none = replace(ceilings, tf32=None)
    assert floor.floor_of(work.GpuWork("autoencoder", tf32=True), 5300, none) == plain


def test_ceilings_are_measured_with_what_training_uses(floor):
    cupy = Cupy()
    found = floor.ceilings_of(cupy.runtime(), side=16, words=64, repeats=1)
    cupy.check()
    assert min(found.bandwidth, found.float32, found.tf32) > 0


def test_histories_are_as_skewed_as_wanted(epoch):
    shape = epoch.Shape(users=3000, items=2000, events=200_000)
    indptr, indices = epoch.histories(shape)
    counts = np.diff(indptr)
    assert indices.dtype == np.int32
    assert len(indices) == indptr[-1] == pytest.approx(shape.events, rel=0.03)
    assert counts.max() > 4 * np.median(counts)
    assert counts.min() > 0.8 * epoch.LEAST
    rows = np.repeat(np.arange(shape.users), counts)
    assert (np.diff(rows * shape.items + indices) > 0).all()  # ascending, none twice
    popularity = np.sort(np.bincount(indices))
    assert popularity[-1] > 5 * np.median(popularity)


def test_epochs_go_through_fit(epoch):
    cupy = Cupy()
    shape = epoch.Shape(users=80, items=60, events=2000, hidden=8)
    found = list(epoch.epochs(shape, Gpu(cupy.runtime(), 2), tf32=True))
    cupy.check()
    data, *trained = json.loads(json.dumps(found))
    assert data["users"] == 80
    assert [(one["precision"], one["epoch"]) for one in trained] == [
        (precision, number) for precision in ("float32", "tf32") for number in (1, 2, 3)
    ]
    assert all(one["examples"] == 80 and one["seconds"] > 0 for one in trained)
    assert trained[2]["loss"] < trained[0]["loss"]


def test_an_epoch_stands_beside_what_was_published(epoch):
    shape = {"users": 138_493, "items": 27_278, "events": 20_000_000, "hidden": 1024}
    seconds = [{"precision": "float32", "seconds": value} for value in (9.0, 2.0, 3.0)]
    rows = list(epoch.rows_of([shape, *seconds]))
    assert [(row.ours, row.peer, row.unit, row.goal) for row in rows] == [
        (2.5, 12.5, "s", None),
        (2.5, 23.0, "s", None),
    ]
    assert all("published in 2016: other hardware, not measured here" in row.workload for row in rows)
    [quick] = epoch.rows_of([shape, seconds[0]], published=False)
    assert (quick.ours, quick.peer) == (9.0, None)
    assert list(epoch.rows_of([shape])) == []


class Answering:
    """A side that answers as it is told; a text is why it cannot."""

    asked: list[str]

    def __init__(self, name: str, losses, times, asked, ended) -> None:
        self.name, self.losses, self.times, self.asked, self.over = name, losses, iter(times), asked, ended

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.over.append(self.name)

    def answer(self, seconds: float) -> dict:
        return {"ready": True, "losses": self.given(self.losses)}

    def ask(self, command: str, seconds: float) -> dict:
        self.asked.append(f"{self.name}: {command}")
        return {"mb": 7.0, "reserved_mb": None} if command == "memory" else {"ms": self.given(next(self.times))}

    def given(self, value):
        from harness import NotMeasuredError

        if isinstance(value, str):
            raise NotMeasuredError(value)
        return value


@pytest.fixture
def compare(work, train):
    """Give a function that compares made-up sides: losses and times by variant; `log` has what they were asked."""

    def run(sides: dict, rounds: int = 3, seconds: float = 100.0):
        run.asked, run.ended = [], []

        def start(given):
            losses, times = sides[given.variant]
            return Answering(given.variant, losses, times, run.asked, run.ended)

        return train.compared(wide(work), list(sides), start, seconds, rounds)

    return run


def test_sides_go_in_turn_and_give_medians(compare, work):
    ours, peer = ([1.0], [5, 50, 4, 40, 9, 90]), ([1.0], [8, 6, 7])
    outcome = compare({work.OURS: ours, work.EAGER: peer})
    assert compare.asked == ["ours: step", "eager: step", "ours: prepare"] * 3 + ["ours: memory", "eager: memory"]
    assert (outcome.ms(work.OURS), outcome.ms(work.EAGER), outcome.preparing.ms) == (5, 7, 50)
    assert outcome.sides[work.EAGER].memory == {"mb": 7.0}
    assert set(compare.ended) == {"ours", "eager"}


def test_sides_that_cannot_be_compared_are_left_out(compare, work):
    sides = {
        work.OURS: ([1.0], [1] * 6),
        work.DENSE: ("no memory", []),
        work.EAGER: ([1.1], []),
        work.GRAPHED: ([1.0], [3, "took too long"]),
        work.COMPILED: ([1.0], [4, 4, 4]),
    }
    outcome = compare(sides)
    reasons = {name: side.reason for name, side in outcome.sides.items()}
    assert reasons.pop(work.EAGER).startswith("loss of step 1 is 1.1, ours 1")
    assert reasons == {work.OURS: "", work.DENSE: "no memory", work.GRAPHED: "took too long", work.COMPILED: ""}
    assert [outcome.ms(name) for name in sides] == [1, None, None, None, 4]
    assert f"{work.GRAPHED}: memory" not in compare.asked
    assert outcome.best((work.EAGER, work.COMPILED)) == work.COMPILED
    assert outcome.best((work.EAGER,)) is None


def test_nothing_is_measured_when_ours_fails(compare, work, train):
    outcome = compare({work.OURS: ("no kernel", []), work.EAGER: ([1.0], [])})
    assert outcome.sides[work.EAGER].reason == "there is nothing to compare its losses with: no kernel"
    assert compare.asked == []
    row = next(train.rows_of(outcome))
    assert (row.ours, row.peer, row.met) == (None, None, None)
    assert row.note.startswith("ours: no kernel\neager: there is nothing")


def test_a_round_for_which_there_is_no_time_is_not_begun(compare, work):
    outcome = compare({work.OURS: ([1.0], [5, 5])}, seconds=0.0)
    assert len(outcome.sides[work.OURS].rounds) == 1
