"""What a network takes pictures for, beside counts by hand."""

from __future__ import annotations

import base64
import dataclasses

import numpy as np
import pytest

from nnlib.contract import Metric, Role, TrainSettings, result_from_json, result_to_json, trial_from_json
from nnlib.cpu.evaluator import CpuEvaluator
from nnlib.data.file import write_data
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.worker import job
from nnlib.worker.confusion import _confuse
from tests.nnlib.image_cases import conv

SIDE = 6


def pictures(examples, side=SIDE, channels=3, seed=1, width=None):
    """Noise of bytes, as data files have it: channel by channel, row by row."""
    values = np.random.default_rng(seed).integers(0, 256, (examples, channels * side * (width or side)), np.uint8)
    return DataSet("input", Dense(values), dimensions=(width or side, side, channels))


def confuse(actual, predicted, of=3, sure=None, of_what=None):
    sure = np.linspace(0.5, 1, len(actual)) if sure is None else np.array(sure)
    names = tuple(f"class {n}" for n in range(of))
    found = of_what or pictures(len(actual))
    return _confuse(np.array(actual, np.int64), np.array(predicted, np.int64), sure, names, found)


def test_pairs_are_counted_and_the_most_frequent_come_first():
    found = confuse([0, 0, 0, 1, 1, 2], [0, 1, 1, 1, 2, 0])
    assert (found.of, found.classes, found.pictures) == (3, ("class 0", "class 1", "class 2"), (3, 2, 1))
    assert found.pairs == ((0, 1, 2), (1, 2, 1), (2, 0, 1))


def test_of_many_classes_the_pairs_that_are_confused_most_are_told_with_their_classes():
    random = np.random.default_rng(4)
    actual, predicted = random.integers(0, 40, 4000), random.integers(0, 40, 4000)
    found = confuse(actual, predicted, 40)
    counts = np.zeros((40, 40), int)
    np.add.at(counts, (actual, predicted), 1)
    np.fill_diagonal(counts, 0)
    assert [often for *_, often in found.pairs] == sorted(counts.ravel(), reverse=True)[:20]
    for one, other, often in found.pairs:
        one, other = (int(found.classes[n].split()[1]) for n in (one, other))
        assert counts[one, other] == often
    assert found.of == 40 and len(found.classes) == len({n for pair in found.pairs for n in pair[:2]}) < 40
    assert confuse([30, 2], [30, 2], 40).examples == ()  # of no class that is told


def test_examples_are_the_surest_mistakes_of_the_most_frequent_pairs_and_then_what_was_right():
    sure = [0.9, 0.4, 0.8, 0.6, 0.7, 0.5]
    found = confuse([0, 0, 0, 1, 1, 2], [0, 1, 1, 1, 2, 2], sure=sure)
    said = [(one.actual, one.predicted, one.probability) for one in found.examples]
    assert said == [(0, 1, 0.8), (1, 2, 0.7), (0, 0, 0.9), (1, 1, 0.6), (2, 2, 0.5)]
    everything = np.divmod(np.arange(400), 20)
    assert len(confuse(*everything, 20).examples) == 12
    assert sum(one.actual != one.predicted for one in confuse(*everything, 20).examples) == 8


def test_small_pictures_are_shown_as_they_are_and_large_ones_by_means():
    one, of_it = confuse([0], [1]).examples[0], pictures(1)
    planes = of_it.rows.values.reshape(3, SIDE, SIDE)
    assert (one.width, one.height, one.channels) == (SIDE, SIDE, 3)
    assert base64.b64decode(one.pixels) == planes.transpose(1, 2, 0).tobytes()
    large = pictures(1, 48, channels=1, width=96)
    one = confuse([0], [1], of_what=large).examples[0]
    means = large.rows.values.reshape(24, 2, 48, 2).mean(axis=(1, 3))
    assert (one.width, one.height, one.channels) == (48, 24, 1)
    assert np.frombuffer(base64.b64decode(one.pixels), np.uint8).reshape(24, 48) == pytest.approx(means, abs=0.6)
    narrow = confuse([0], [1], of_what=pictures(1, 1000, channels=1, width=2)).examples[0]
    assert (narrow.width, narrow.height) == (1, 48)


@pytest.mark.parametrize("channels", [2, 4])
def test_pictures_of_other_channels_are_counted_and_not_shown(channels):
    found = confuse([0], [1], of_what=pictures(1, channels=channels))
    assert found.pairs == ((0, 1, 1),) and found.examples == ()


NETWORK = {
    "Name": "signs",
    "ErrorFunction": "CrossEntropy",
    "Layers": [
        {"Name": "Picture", "Kind": "Input", "N": "auto", "DataSet": "input"},
        conv("Shapes", 4, Activation="Relu"),
        {"Name": "Sign", "Kind": "Output", "N": "auto", "DataSet": "output", "Activation": "SoftMax"},
    ],
}
CLASSES = ("dark", "light", "other")


def signs(examples, seed, targets=None, names=CLASSES, **more):
    """Pictures that are dark, light, or neither; some are hard to tell."""
    numbers = np.arange(examples) % 3
    light = np.array([0, 128, 64])[numbers][:, None].astype(np.uint8)
    found = pictures(examples, seed=seed, **more)
    shown = dataclasses.replace(found, rows=Dense(found.rows.values // 2 + light))
    rows = from_rows(targets or [[number] for number in numbers.tolist()], 3)
    return Data((shown, DataSet("output", rows, names)), region="Lima")


def run(make_trial, data=signs, network=NETWORK, role=Role.FINAL, folder="job"):
    trial = make_trial(
        folder,
        network=network,
        hyperparameters={},
        role=role,
        metric=Metric("p@1"),
        train=TrainSettings(epochs=3, batch=8),
    )
    for seed, name in enumerate(("train.nc", "held.nc")):
        write_data(trial.parent / name, data(30 + 9 * seed, seed))
    (trial.parent / "log.jsonl").touch()
    return job.run(dataclasses.replace(trial_from_json(trial.read_text()), sha256={}), trial.parent)


@pytest.mark.slow
def test_the_final_job_says_it_and_a_trial_does_not(make_trial):
    result = run(make_trial)
    found = result.confusion
    assert (found.of, found.classes, found.pictures) == (3, CLASSES, (13, 13, 13))
    assert 1 - sum(often for *_, often in found.pairs) / 39 == pytest.approx(result.metrics["p@1"])
    assert len(found.examples) == min(len(found.pairs), 8) + 3
    assert all(1 / 3 <= one.probability <= 1 for one in found.examples)
    assert result_from_json(result_to_json(result)) == result
    trial = run(make_trial, role=Role.TUNE, folder="trial")
    assert trial.confusion is None and '"confusion"' not in result_to_json(trial)


@pytest.mark.slow
def test_few_pictures_are_asked_about_at_a_time_so_that_all_threads_have_some(make_trial, monkeypatch):
    asked, sums = [], CpuEvaluator.sums

    def count(self, examples, output):
        asked.append(examples.count)
        return sums(self, examples, output)

    monkeypatch.setattr(CpuEvaluator, "sums", count)
    run(make_trial)
    assert asked == [39]
    asked.clear()
    monkeypatch.setattr("nnlib.cpu.evaluator.choose_at_once", lambda _: 10)
    run(make_trial, folder="again")
    assert asked == [10, 10, 10, 9]


LAYERS = NETWORK["Layers"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "data"),
    [
        ({**NETWORK, "Layers": [*LAYERS[:2], LAYERS[2] | {"Activation": "Sigmoid"}]}, {}),
        (NETWORK, {"names": ()}),
        (NETWORK, {"targets": [[0, 1], *[[2]] * 38]}),
        (NETWORK, {"targets": [[], *[[2]] * 38]}),
    ],
    ids=["no SoftMax", "classes without names", "of two classes", "of none"],
)
def test_what_are_no_pictures_of_one_class_each_is_not_counted(make_trial, network, data):
    def some(examples, seed):
        more = data | ({"targets": data["targets"][:examples]} if "targets" in data else {})
        return signs(examples, seed, **more)

    assert run(make_trial, some, network).confusion is None
