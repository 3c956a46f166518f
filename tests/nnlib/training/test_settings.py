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
        accumulate=0,
        stop_after=-1,
        stop_after_examples=0.5,
        optimizer="adma",
        learning_rate=float("nan"),
        momentum=1,
        beta2=-0.1,
        l2=float("inf"),
        l1="0",
        schedule=3,
        warmup=-1,
        decay_rate=1.5,
        decay_epochs=0,
        scale_rate="cubic",
        base_batch=0,
        ema=1,
        clip=None,
        compat="dstne",
        precision="half",
        parallel="layers",
        seed=2**32,
    )
    with pytest.raises(NnlibError) as caught:
        check_settings(wrong)
    lines = str(caught.value).splitlines()
    names = [field.name for field in dataclasses.fields(TrainSettings)]
    assert [line.split(":")[1].strip() for line in lines] == [f"train.{name}" for name in names]
    assert lines[0] == "trial.json: train.epochs: 1.5 is not legal, legal: a whole number from 1"
    told = dict(zip(names, lines, strict=True))
    assert told["optimizer"].startswith(
        "trial.json: train.optimizer: 'adma' is not legal, legal: sgd, momentum, nesterov, "
    )
    assert "adam" in told["optimizer"].rpartition("adamw")[2]
    assert told["momentum"] == "trial.json: train.momentum: 1 is not legal, legal: a number in [0, 1)"
    assert told["l1"] == "trial.json: train.l1: '0' is not legal, legal: a finite number from 0"
    assert told["decay_rate"].endswith("1.5 is not legal, legal: a number from 0 to 1")
    assert told["decay_epochs"].endswith("0 is not legal, legal: a whole number from 1")
    assert told["scale_rate"].endswith("'cubic' is not legal, legal: none, linear, sqrt")
    assert told["ema"].endswith("1 is not legal, legal: a number in [0, 1)")
    assert told["compat"].startswith("trial.json: train.compat: 'dstne' is not legal, legal: \"\", dsstne")
    assert told["precision"].endswith("'half' is not legal, legal: float32, tf32, bf16, auto")
    assert told["parallel"].endswith("'layers' is not legal, legal: auto, items, examples, none")
    assert told["seed"].endswith("legal: a whole number from 0 to 4294967295")


def test_bounds_are_legal():
    check_settings(TrainSettings(epochs=1, batch=1, stop_after=0, seed=0, momentum=0, beta2=0, warmup=0, clip=0))
    check_settings(TrainSettings(seed=2**32 - 1, momentum=0.999999, l1=0, l2=0.0, learning_rate=0))
    for wrong in ({"epochs": 0}, {"batch": 0}, {"stop_after": -1}, {"seed": -1}, {"momentum": 1.0}, {"l2": -1e-9}):
        with pytest.raises(NnlibError):
            check_settings(TrainSettings(**wrong))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_names_may_be_in_any_case(name):
    check_settings(TrainSettings(optimizer=name.upper(), schedule="Cosine", scale_rate="SQRT", compat="DSSTNE"))


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


def test_one_cycle_is_that_of_pytorch():
    """OneCycleLR(max_lr=0.8, total_steps=8, pct_start=0.5) and (..., total_steps=20), printed by PyTorch 2.13."""
    half = [0.032, 0.224, 0.608, 0.8, 0.682843181, 0.4000016, 0.117160019, 3.2e-06]
    assert rates(schedule="OneCycle", warmup=2.0) == pytest.approx(half)
    usual = [0.032, 0.105337474, 0.297337474, 0.534662526, 0.726662526, 0.8, 0.789971205, 0.760387706, 0.712732942]
    usual += [0.649396523, 0.573554401, 0.489009618, 0.4000016, 0.310993582, 0.226448799, 0.150606677, 0.0872702579]
    assert rates(schedule="onecycle", batches=5) == pytest.approx([*usual, 0.0396154944, 0.010031995, 3.2e-06])


def test_one_cycle_of_a_training_of_one_or_two_steps_and_beyond_its_end():
    rate = rate_of(TrainSettings(epochs=1, learning_rate=0.8, schedule="onecycle"), 0.0, 2)
    assert [rate(step) for step in (2, 3, 9)] == pytest.approx([3.2e-06] * 3)
    assert 0 < rate_of(TrainSettings(epochs=1, learning_rate=0.8, schedule="onecycle"), 0.0, 1)(1) <= 0.8


def test_steps_are_those_of_pytorch():
    """StepLR(step_size=2 epochs, gamma=0.5)."""
    assert rates(schedule="step", decay_epochs=2) == pytest.approx([0.8] * 4 + [0.4] * 4)
    assert rates(schedule="Step", decay_epochs=1, decay_rate=0.1)[::2] == pytest.approx([0.8, 0.08, 0.008, 0.0008])


def test_what_a_plateau_lowers_is_not_known_before():
    assert rates(schedule="plateau", warmup=1.0) == rates(warmup=1.0)


@pytest.mark.parametrize(("scale", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0), ("Linear", 4.0)])
def test_the_rate_grows_with_the_batch(scale, factor):
    assert rates(batch=1024, scale_rate=scale, schedule="cosine") == pytest.approx(
        [factor * rate for rate in rates(schedule="cosine")]
    )
    assert rates(batch=256, scale_rate=scale) == rates()
    assert rates(batch=128, accumulate=8, scale_rate=scale) == rates(batch=1024, scale_rate=scale)
    assert rates(batch=64, scale_rate=scale)[0] == pytest.approx(0.8 / factor)


@pytest.mark.parametrize(("scale", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_the_rate_is_given_for_a_batch(scale, factor):
    """Beside the warm-up of Goyal et al. (2017), section 2.2, with their batch as base."""
    grown = rates(batch=256, base_batch=64, scale_rate=scale, warmup=2.0)
    assert grown == pytest.approx([factor * rate for rate in rates(warmup=2.0)])
    assert rates(batch=32, accumulate=2, base_batch=64, scale_rate=scale) == rates()


def test_numbers_of_numpy_become_pythons():
    settings = TrainSettings(epochs=np.int64(3), learning_rate=np.float32(0.5), l2=np.float64(0.25), seed=np.uint32(7))
    check_settings(settings)
    assert settings == TrainSettings(epochs=3, learning_rate=0.5, l2=0.25, seed=7)
    assert [type(value) for value in (settings.epochs, settings.learning_rate, settings.l2)] == [int, float, float]
    assert "np." not in repr(settings)
    with pytest.raises(NnlibError, match="epochs: True is not legal"):
        check_settings(TrainSettings(epochs=True))
