"""What fine-tuning costs: shares of instances, rows by hand, trainings side by side that are played, what is kept."""

from __future__ import annotations

import json

import pytest

from regiondag.accounting.prices import Price, PriceTable, read_prices
from scripts.bench.common import harness
from scripts.bench.common.processes import NotMeasuredError
from scripts.bench.gpu import cost_tables, costs
from scripts.bench.gpu.cost_tables import Job, Speed, cells, images_per_second
from scripts.bench.gpu.instances import GPUS, Share, cheapest_share, family_of
from scripts.bench.gpu.predict import step_seconds
from scripts.bench.gpu.work import GpuWork

PRICES = PriceTable(
    instances={"g5.xlarge": Price(1, 1.0, 0.4), "g5.12xlarge": Price(4, 6.0, 2.0), "g5.48xlarge": Price(8, 20.0, 8.0)}
)
FOUR = Share("g5.12xlarge", 2, 4, 3.0, 1.0)


@pytest.mark.parametrize(
    ("gpus", "share"),
    [
        (1, Share("g5.xlarge", 1, 1, 1.0, 0.4)),
        (2, FOUR),
        (8, Share("g5.48xlarge", 8, 8, 20.0, 8.0)),
        (16, None),
    ],
)
def test_the_cheapest_share_of_an_instance(gpus, share):
    assert cheapest_share(PRICES, "g5", gpus) == share
    assert cheapest_share(PRICES, "g", gpus) is None


def test_all_families_have_prices():
    prices = read_prices()
    assert {kind.partition(".")[0] for kind in prices.instances} == set(GPUS)
    assert all(cheapest_share(prices, family, 4) for family in GPUS)


@pytest.mark.parametrize(
    ("gpu", "family"),
    [
        ("Tesla T4", "g4dn"),
        ("NVIDIA A10G", "g5"),
        ("NVIDIA L4", "g6"),
        ("NVIDIA L40S", "g6e"),
        ("Tesla V100-SXM2-16GB", "p3"),
        ("NVIDIA A100-SXM4-40GB", "p4d"),
        ("NVIDIA A100-SXM4-80GB", None),
        ("NVIDIA H100 80GB HBM3", "p5"),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200", None),
    ],
)
def test_whose_gpu_it_is(gpu, family):
    assert family_of(gpu) == family


def test_rows_by_hand():
    """Half an hour on two GPUs of an instance of four at 6 dollars, of which two alone would do 1.25 times as much."""
    job, speed = Job(images=1000, epochs=9), Speed("g5", "A10G", 2, 16, 5.0, 3.125)
    assert cells(speed, FOUR, job) == ("A10G", "2 of 4", "g5.12xlarge", "16", "5", "0.80", "30", "1.5", "0.5")
    both = cells(speed, FOUR, job, at_once=2)
    assert both[6:] == ("60", "1.5", "0.5")  # each of two takes an hour, of one GPU
    assert cells(speed, None, job)[1:3] == ("2", "-") and cells(speed, None, job)[-2:] == ("-", "-")


def test_gpus_that_sum_gradients():
    """4 V100: 3/4 of 2 x 4 x 23.98 MB leave each over a link of 110 GB/s, after 15 us."""
    work, machine = GpuWork("resnet-50", batch=16), GPUS["p3"].machine
    alone = step_seconds(work, machine)
    together = images_per_second(work, machine, 4)
    assert 4 * 16 / together - alone == pytest.approx(15e-6 + 6 * 23.979e6 / 110e9, rel=1e-3)
    assert images_per_second(work, machine, 1) == pytest.approx(16 / alone)
    assert images_per_second(work, machine, 1, unfolded=False) > images_per_second(work, machine, 1)


class Side:
    """In place of a training on a GPU."""

    started: list[tuple[int, int]]

    def __init__(self, work: GpuWork, gpu: int) -> None:
        self.started.append((work.batch, gpu))
        self.answers = iter([{"losses": [1.0]}, *({"ms": ms} for ms in (20.0, 10.0, 10.0, 5.0, 10.0))])
        self.told = 1  # it gets ready by itself

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None: ...

    def tell(self, command: str) -> None:
        assert command == "step"
        self.told += 1

    def answer(self, seconds: float) -> dict:
        self.told -= 1
        assert self.told == 0
        return next(self.answers)


def test_trainings_side_by_side():
    Side.started = []
    [one, two] = costs.measured_speeds("NVIDIA A10G", 3, [GpuWork("resnet-50", batch=16)], Side)
    assert (one.family, one.gpus, one.rate, one.efficiency) == ("g5", 1, 1600, 1)
    assert (two.gpus, two.rate, two.efficiency) == (2, 3200, 1)
    assert Side.started == [(16, 0), (16, 0), (16, 1)]


def test_without_a_gpu_predictions_are_kept(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(costs, "missing", lambda: "no CuPy")
    assert costs.main([]) == 0
    out, err = capsys.readouterr()
    assert "predicted, not measured: resnet-50" in out and "measured: nothing, no CuPy" in err
    [kept] = tmp_path.iterdir()
    assert json.loads(kept.read_text())["bench"] == cost_tables.PREDICTED
    kept.unlink()
    assert costs.main(["--epochs", "1"]) == 0
    assert "1 epochs of 15,240 images" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_what_is_measured_is_kept_apart(monkeypatch, tmp_path, capsys):
    def measured(*_: object):
        yield Speed("g5", "NVIDIA A10G", 1, 16, 100.0, 100.0)
        raise NotMeasuredError("gpu.ours took too long")

    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(costs, "missing", lambda: "")
    monkeypatch.setattr(costs, "ask", lambda *_: {"GPU": "NVIDIA A10G", "count": 1})
    monkeypatch.setattr(costs, "measured_speeds", measured)
    assert costs.main([]) == 1
    assert "gpu.ours took too long" in capsys.readouterr().err
    kept = {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()}
    assert set(kept) == {"costs-nvidia-a10g.json", "costs_predicted.json"}
    found = kept["costs-nvidia-a10g.json"]
    assert [row["ours"] for row in found["rows"]] == [100, None]
    assert found["measured"][0][:5] == ["NVIDIA A10G", "1 of 1", "g5.xlarge", "16", "100"]
    assert "rows" not in kept["costs_predicted.json"]
