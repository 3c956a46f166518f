"""The benchmark of several ranks: what it counts, what it puts together, its goals, and PyTorch's side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nnlib.shards.cut import Cut
from nnlib.shards.plan import plan_of
from nnlib.shards.tree import shards_of
from nnlib.spec.types import LayerType
from scripts.bench.common import environments
from scripts.bench.common.pictures import CIFAR, RESNET_50
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.cpu import turns
from scripts.bench.level3 import __main__ as command
from scripts.bench.level3 import team as teams
from scripts.bench.level3.bits import digest_of
from scripts.bench.level3.rank import problem
from scripts.bench.level3.team import Team
from scripts.bench.level3.work import DDP, FSDP, GPU, SPARSE, WIDE_DDP, Ranked, split

SMALL = Ranked(items=4500, hidden=8, batch=16, batches=2, density=0.01, steps=1, warm=1)


@pytest.mark.parametrize(
    ("ranks", "sent"), [(1, 0), (2, 2 * 2 * 256 * 1024 * 4 // 2), (8, 2 * 2 * 256 * 1024 * 4 * 7 // 8)]
)
def test_the_formula_of_bytes(ranks, sent):
    """16 b h (R - 1) / R for the autoencoder, half of it for one sum."""
    assert replace(Ranked(), ranks=ranks).exchanged == sent == 16 * 256 * 1024 * (ranks - 1) // ranks
    assert replace(Ranked(kind=SPARSE), ranks=ranks).exchanged == sent // 2


@pytest.mark.parametrize("kind", ["autoencoder", SPARSE])
def test_saved_parts_are_put_together(tmp_path, kind):
    work = replace(SMALL, kind=kind, kept=str(tmp_path))
    network, _ = problem(work)
    found = set()
    for ranks in (1, 4, 8):
        for one in split(work, ranks, ""):
            cut = Cut(plan_of(network.spec, work.batch, "items"), network.spec, shards_of(one.rank, ranks))
            assert cut.plan.wide and (cut.is_whole or cut.network(network) is not network)
            np.savez(tmp_path / f"{one.rank}.npz", **{name: cut.take(name, a) for name, a in network.arrays()})
        found.add(digest_of(work, ranks))
    assert len(found) == 1
    with np.load(tmp_path / "7.npz") as saved:
        changed = dict(saved)
    changed["weights0"] = changed["weights0"] + 1
    np.savez(tmp_path / "7.npz", **changed)
    assert digest_of(work, 8) not in found


@pytest.mark.parametrize("kind", [CIFAR, RESNET_50])
def test_networks_of_images_convolve(kind):
    """Not the fully connected ones that other works have."""
    work = replace(SMALL, kind=kind, side=32, parallel="examples")
    network, examples = problem(work)
    assert any(layer.type is LayerType.CONVOLUTIONAL for layer in network.spec.layers)
    assert examples.count == work.batch * work.batches


def test_a_team_counts_its_busiest_rank():
    def said(cpu, wall, sent=8.0):
        return {"cpu": cpu, "wall": wall, "all_cpu": cpu, "sent": sent}

    some = Team(SMALL, [], [], [[said(1, 9), said(3, 8)], [said(2, 7), said(1, 7)]])
    assert (some.cpus, some.walls, some.sent) == ([3, 2], [9, 7], 8)
    some.rounds.append([said(1, 1, 4.0)])
    assert np.isnan(some.sent)


def test_the_round_whose_ratio_is_the_median_counts(monkeypatch, tmp_path):
    times = {1: [10, 10, 40], 2: [5, 10, 10]}
    monkeypatch.setattr(command, "team", lambda work, ranks, area: Played(times[ranks]))
    bench = command.Level3(tmp_path, command.QUICK)
    assert bench._pair(SMALL, SMALL, 2, 3) == (10, 5)


class Played:
    """In place of a team."""

    def __init__(self, cpus):
        self.cpus, self.work = cpus, SMALL

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None: ...

    def measure(self) -> None: ...


def test_wall_time_beside_other_programs_is_not_measured(monkeypatch, tmp_path):
    class Busy(Played):
        rounds: list = []  # noqa: RUF012 -- one for all

        def measure(self):
            self.rounds.append(0)
            return []

    monkeypatch.setattr(command, "team", lambda *_: Busy([]))
    seconds = iter(range(1000)).__next__
    for module in (command, turns):
        monkeypatch.setattr(module, "busy", seconds)
    monkeypatch.setattr(command, "PATIENCE", -1)
    with pytest.raises(NotMeasuredError, match="busy"):
        command.Level3(tmp_path, command.FULL)._walls({"ours": (SMALL, 1, 1)})


@pytest.mark.parametrize("count", [0, 4])
def test_rows_of_gpus(monkeypatch, tmp_path, count):
    monkeypatch.setattr(command, "count_gpus", lambda: count)
    walls = {"ours": 4.0, "none": 4.0, "one": 8.0, "strong": 2.0, "weak": 8.0, DDP: 4.0, WIDE_DDP: 3.0, FSDP: 6.0}
    monkeypatch.setattr(command.Level3, "_walls", lambda _, sides: {name: walls[name] for name in sides})
    monkeypatch.setattr(command.Level3, "_digests", lambda _, work, several: dict.fromkeys(several, work.device))
    rows = list(command.Level3(tmp_path, command.FULL).gpus())
    measured = [row for row in rows if row.ours is not None]
    goals = rows[len(measured) :]
    assert {(row.ours, row.met) for row in goals} == {(None, None)}
    assert goals[-1].note == f"8 GPUs that CuPy can use, seen: {count}"
    if not count:
        assert [row.goal for row in goals] == [1 / 1.05, 0.89, 0.89, 0.78, 0.94, 0.78, 0.64, 0.9, 0.64] and not measured
        return
    assert [row.goal for row in goals] == [0.64, 0.9, 0.64]
    cost, bits, *rows = measured
    assert (cost.ratio, cost.met) == (1, True)
    assert (bits.ours, bits.goal, bits.met) == (0, 0, True)
    assert "1, 2, 4 ranks" in bits.workload
    four = rows[5:10]
    assert (four[0].ratio, four[0].goal, four[0].met) == (1, 0.78, True)
    assert (four[1].ratio, four[1].goal, four[1].met) == (1, 0.94, True)
    assert [row.ratio for row in four[2:]] == [2, 1.5, 3]
    assert rows[1].goal is None  # published for four and eight only
    bits, alone, two, four = rows[10:]
    assert (bits.ours, bits.met) == (0, True) and bits.workload.startswith("GPUs, resnet-50, batch 256, 1, 2, 4 ranks")
    assert [row.ratio for row in (alone, two, four)] == [4, 2, 1]
    assert [row.goal for row in (alone, two, four)] == [None, 0.89, 0.78]


def test_digests_are_those_of_teams(tmp_path):
    bench = command.Level3(tmp_path, command.QUICK)
    found = bench._digests(SMALL, (1, 2))
    assert found.keys() == {"1", "2"} and len(set(found.values())) == 1
    assert bench._digests(replace(SMALL, rate=0.5), (1,))["1"] not in found.values()


def test_digests_of_networks_of_images_are_those_of_one_rank(tmp_path):
    """On processors here, by examples."""
    found = command.Level3(tmp_path, command.QUICK)._digests(replace(command.IMAGES, device="cpu"), (1, 2))
    assert len(set(found.values())) == 1


def test_each_rank_has_a_gpu_of_its_own(monkeypatch):
    work = replace(SMALL, device=GPU, ranks=2, rank=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert teams.environment(work, 1)["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert teams.environment(work, 1)["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in teams.environment(SMALL, 1)


@pytest.mark.parametrize("way", [DDP, WIDE_DDP, FSDP])
def test_pytorch_trains_on_two_processes(tmp_path, monkeypatch, way):
    python = environments.TORCH_FOLDER / "bin/python"
    if not python.exists():
        pytest.skip("no PyTorch: python -m scripts.bench.cpu brings it")
    monkeypatch.setattr(teams, "torch_python", lambda: python)
    with teams.team(replace(SMALL, way=way), 2, tmp_path) as both:
        assert both.ready[0] == both.ready[1] and both.measure()[0]["wall"] > 0
