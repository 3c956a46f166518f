import dataclasses

import numpy as np
import pytest

from nnlib.contract import OPTIMIZERS, TrainSettings
from nnlib.errors import NnlibError
from nnlib.optim.hyper import rate_of
from nnlib.training.settings import check_settings


def test_all_problems_come_at_once():
    wrong = TrainSettings(
        epochs=1.5,
        batch=True,
        stop_after=-1,
        optimizer="adma",
        learning_rate=float("nan"),
        momentum=1,
        beta2=-0.1,
        l2=float("inf"),
        l1="0",
        schedule=3,
        warmup=-1,
        clip=None,
        compat="dstne",
        precision="half",
        seed=2**32,
    )
    with pytest.raises(NnlibError) as caught:
        check_settings(wrong)
    lines = str(caught.value).splitlines()
    names = [field.name for field in dataclasses.fields(TrainSettings)]
    assert [line.split(":")[1].strip() for line in lines] == [f"train.{name}" for name in names]
    assert lines[0] == "trial.json: train.epochs: 1.5 is not legal, legal: a whole number from 1"
    assert lines[3].startswith("trial.json: train.optimizer: 'adma' is not legal, legal: sgd, momentum, nesterov, ")
    assert "adam" in lines[3].rpartition("adamw")[2]
    assert lines[5] == "trial.json: train.momentum: 1 is not legal, legal: a number in [0, 1)"
    assert lines[8] == "trial.json: train.l1: '0' is not legal, legal: a finite number from 0"
    assert lines[12].startswith("trial.json: train.compat: 'dstne' is not legal, legal: \"\", dsstne")
    assert lines[13].endswith("'half' is not legal, legal: float32, tf32")
    assert lines[14].endswith("legal: a whole number from 0 to 4294967295")


def test_bounds_are_legal():
    check_settings(TrainSettings(epochs=1, batch=1, stop_after=0, seed=0, momentum=0, beta2=0, warmup=0, clip=0))
    check_settings(TrainSettings(seed=2**32 - 1, momentum=0.999999, l1=0, l2=0.0, learning_rate=0))
    for wrong in ({"epochs": 0}, {"batch": 0}, {"stop_after": -1}, {"seed": -1}, {"momentum": 1.0}, {"l2": -1e-9}):
        with pytest.raises(NnlibError):
            check_settings(TrainSettings(**wrong))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_names_may_be_in_any_case(name):
    check_settings(TrainSettings(optimizer=name.upper(), schedule="Cosine", compat="DSSTNE"))


def test_the_place_is_named_as_wished():
    with pytest.raises(NnlibError, match=r"^epochs: 0 is not legal"):
        check_settings(TrainSettings(epochs=0), "")


def rates(decay=0.0, batches=2, **settings):
    rate = rate_of(TrainSettings(epochs=4, learning_rate=0.8, **settings), decay, batches)
    return [rate(step) for step in range(1, 4 * batches + 1)]


def test_a_constant_rate():
    assert rates() == [0.8] * 8


def test_decay_divides_by_steps():
    assert rates(decay=0.5)[:4] == pytest.approx([0.8, 0.8 / 1.5, 0.8 / 2, 0.8 / 2.5])


def test_warmup_rises_evenly_to_the_rate():
    assert rates(warmup=2.0) == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8, 0.8, 0.8])
    assert rates(warmup=1.25)[:3] == pytest.approx([0.32, 0.64, 0.8])


def test_cosine_falls_to_zero_at_the_end():
    half = 2**0.5 / 2
    assert rates(schedule="cosine")[::2] == pytest.approx([0.8, 0.4 * (1 + half), 0.4, 0.4 * (1 - half)])
    found = rates(schedule="cosine", warmup=2.0)
    assert found == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.4 * (1 + half), 0.4, 0.4 * (1 - half)])


def test_after_the_last_step_the_rate_stays_at_zero():
    rate = rate_of(TrainSettings(epochs=4, learning_rate=0.8, schedule="cosine"), 0.0, 2)
    assert [rate(step) for step in (9, 12, 17)] == pytest.approx([0, 0, 0])


def test_a_warmup_may_end_within_a_step():
    found = rates(schedule="cosine", warmup=1.25)  # two steps and a half
    assert found[2:4] == pytest.approx([0.8, 0.4 * (1 + np.cos(np.pi * 0.5 / 5.5))])


def test_cosine_and_decay_multiply():
    plain, cosine, both = rates(decay=0.1), rates(schedule="cosine"), rates(decay=0.1, schedule="cosine")
    assert both == pytest.approx([a * b / 0.8 for a, b in zip(plain, cosine, strict=True)])


def test_a_warmup_longer_than_the_training_only_rises():
    assert rates(warmup=8.0, schedule="cosine") == pytest.approx([0.05 * step for step in range(1, 9)])


def test_numbers_of_numpy_become_pythons():
    settings = TrainSettings(epochs=np.int64(3), learning_rate=np.float32(0.5), l2=np.float64(0.25), seed=np.uint32(7))
    check_settings(settings)
    assert settings == TrainSettings(epochs=3, learning_rate=0.5, l2=0.25, seed=7)
    assert [type(value) for value in (settings.epochs, settings.learning_rate, settings.l2)] == [int, float, float]
    assert "np." not in repr(settings)
    with pytest.raises(NnlibError, match="epochs: True is not legal"):
        check_settings(TrainSettings(epochs=True))
