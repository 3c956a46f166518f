"""Pictures are changed by chance as the docstring says, with the same bits however a training comes to a step."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlib.compiled import select
from nnlib.contract import TrainSettings
from nnlib.cpu.backend import Cpu
from nnlib.data.rows import Csr, Dense, from_rows, one_hot
from nnlib.data.sets import DataSet
from nnlib.errors import DataError
from nnlib.model.augmentation import augment, augmented, change
from nnlib.model.batches import batch_of
from nnlib.model.examples import Examples, examples_of, resolve
from nnlib.spec.network import parse_network
from nnlib.util.threads import map_in_turn, workers
from tests.nnlib.samples import bits, network_of

COUNT, WIDTH, HEIGHT, CLASSES = 50, 6, 5, 4


def pictures(channels=3, count=COUNT, dtype=np.uint8):
    random = np.random.default_rng(channels)
    values = random.integers(0, 128, (count, channels * HEIGHT * WIDTH)).astype(dtype)
    return DataSet("x", Dense(values), dimensions=(WIDTH, HEIGHT, channels))


def sets_of(channels=3, targets=None, **more):
    rows = one_hot(np.random.default_rng(0).integers(0, CLASSES, COUNT), CLASSES) if targets is None else targets
    return {"x": pictures(channels, **more), "y": DataSet("y", rows, tuple(f"c{n}" for n in range(CLASSES)))}


def raw_of(**how):
    return {
        "Augmentation": how,
        "Layers": [
            {"Name": "I", "N": "auto", "DataSet": "x"},
            {"Name": "O", "N": "auto", "DataSet": "y", "Activation": "SoftMax"},
        ],
    }


def changed(sets, rows=None, step=1, seed=7, each=map_in_turn, **how):
    """Return pictures (b, channels, height, width) and targets (b, classes) of a step."""
    spec = resolve(parse_network(raw_of(**how), "n"), sets, "d")
    rows = np.arange(COUNT) if rows is None else rows
    found, places = augment(spec, examples_of(spec, sets, "d"), rows, seed, step, each)
    batch = batch_of(spec, found, places)
    targets = batch.targets[1]
    dense = targets.dense if targets.columns is None else targets.columns.toarray()
    return batch.inputs[0].reshape(len(rows), -1, HEIGHT, WIDTH), dense


def plain(sets):
    return changed(sets)[0]


def test_without_anything_to_change_the_examples_stay_where_they_are():
    sets = sets_of()
    spec = resolve(parse_network(raw_of(), "n"), sets, "d")
    examples, rows = examples_of(spec, sets, "d"), np.arange(3)
    for some in (slice(None), slice(1, 3), slice(3, 3)):
        found, mine = augment(spec, examples, rows, 1, 1, some=some)
        assert found is examples
        np.testing.assert_array_equal(mine, rows[some])


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_crop_and_flip_move_and_mirror(dtype):
    sets = sets_of(dtype=dtype)
    before, (after, targets) = plain(sets), changed(sets, Crop=2, Flip=True)
    padded = np.pad(before, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect")
    seen = set()
    for n in range(COUNT):
        found = [
            (top, left, flip)
            for top in range(5)
            for left in range(5)
            for flip in (1, -1)
            if np.array_equal(after[n], padded[n, :, top : top + HEIGHT, left : left + WIDTH][:, :, ::flip])
        ]
        assert len(found) == 1
        seen.add(found[0])
    assert len(seen) > 25 and {flip for *_, flip in seen} == {1, -1}
    np.testing.assert_array_equal(targets, changed(sets)[1])


@dataclass(frozen=True)
class Noting(Examples):
    """Examples that note which of them were taken."""

    taken: list[int] = field(default_factory=list)

    def take(self, rows):
        self.taken.extend(rows.tolist())
        return super().take(rows)


@pytest.mark.parametrize("some", [slice(0, 50), slice(0, 7), slice(21, 28), slice(42, 60), slice(56, 63)])
@pytest.mark.parametrize("how", [{"Crop": 2, "Flip": True}, {"Colour": 0.2}, {"Crop": 1, "Mixup": 0.4}])
@pytest.mark.parametrize("kind", ["one each", "valued", "dense"])
def test_some_of_a_batch_are_what_they_are_in_the_whole_and_no_others_are_read(kind, how, some):
    rows = from_rows([[0, 1], [2]] * (COUNT // 2), CLASSES)
    targets = {
        "one each": None,
        "valued": Csr(rows.indptr, rows.indices, CLASSES, np.linspace(0.5, 1, rows.nonzeros, dtype=np.float32)),
        "dense": Dense(np.random.default_rng(1).random((COUNT, CLASSES), np.float32)),
    }[kind]
    sets = sets_of(targets=targets)
    sets["y"] = replace(sets["y"], weights=np.linspace(0.5, 2, COUNT).astype(np.float32))
    spec = resolve(parse_network(raw_of(**how), "n"), sets, "d")
    examples = Noting(examples_of(spec, sets, "d").sets)
    order = np.random.default_rng(2).permutation(COUNT)
    whole = batch_of(spec, *augment(spec, examples, order, 5, 3))
    examples.taken.clear()
    found, mine = augment(spec, examples, order, 5, 3, some=some)
    taken, wanted = list(examples.taken), order[some].tolist()
    part = batch_of(spec, found, mine)
    np.testing.assert_array_equal(part.inputs[0], whole.inputs[0][some])
    one, all_of_them = part.targets[1], whole.targets[1]
    if one.columns is None:
        np.testing.assert_array_equal(one.dense, all_of_them.dense[some])
    else:
        np.testing.assert_array_equal(one.columns.toarray(), all_of_them.columns.toarray()[some])
    np.testing.assert_array_equal(one.weights, all_of_them.weights[some])
    assert len(set(taken)) == len(taken) and set(wanted) <= set(taken)
    assert len(taken) <= 2 * len(wanted) if "Mixup" in how else taken == wanted


@pytest.mark.parametrize("channels", [1, 3])
def test_colour_is_saturation_contrast_and_brightness(channels):
    sets = sets_of(channels)
    before, after = plain(sets) + 0.5, changed(sets, Colour=0.3)[0] + 0.5
    # What was done is affine in v, grey and 1: three places of a picture say its factors, the others are foretold.
    grey = before if channels == 1 else np.einsum("c,nchw->nhw", [0.299, 0.587, 0.114], before)[:, None]
    for n in range(COUNT):
        columns = [np.broadcast_to(one, before[n].shape).ravel() for one in (before[n], grey[n], np.ones(1))]
        columns = columns[::2] if channels == 1 else columns
        clear = (after[n].ravel() > 0.001) & (after[n].ravel() < 0.99)
        factors, *_ = np.linalg.lstsq(np.stack(columns, 1)[clear], after[n].ravel()[clear], rcond=None)
        np.testing.assert_allclose(np.stack(columns, 1)[clear] @ factors, after[n].ravel()[clear], atol=1e-5)
        both = factors[0] if channels == 1 else factors[0] + factors[1]  # brightness times contrast
        brightness = both + factors[-1] / grey[n].mean()
        assert 0.7 <= brightness <= 1.3 and 0.7 <= both / brightness <= 1.3
        if channels == 3:
            assert 0.7 <= factors[0] / both <= 1.3
    assert after.min() >= 0 and after.max() <= 255 / 256


def test_mixup_mixes_pictures_and_targets_alike():
    sets = sets_of()
    before, classes = plain(sets), changed(sets)[1]
    after, targets = changed(sets, Mixup=0.5)
    np.testing.assert_allclose(targets.sum(axis=1), 1, rtol=1e-6)
    flat, mixed = before.reshape(COUNT, -1), after.reshape(COUNT, -1)
    partners = set()
    for n in range(COUNT):
        shares = []
        for other in range(COUNT):
            way = flat[n] - flat[other]
            share = (mixed[n] - flat[other]) @ way / (way @ way) if other != n else 1.0
            wanted = share * classes[n] + (1 - share) * classes[other]
            if np.allclose(mixed[n], share * flat[n] + (1 - share) * flat[other], atol=1e-5):
                shares.append(share)
                partners.add(other)
                assert -1e-4 <= share <= 1.0001
                np.testing.assert_allclose(targets[n], wanted, atol=1e-4)
        assert shares
    assert len(partners) > COUNT / 2


def test_mixup_of_other_targets():
    """Those of several units with values, dense ones, and the weights of examples."""
    rows = from_rows([[0, 1], [2]] * (COUNT // 2), CLASSES)
    valued = Csr(rows.indptr, rows.indices, CLASSES, np.linspace(0.5, 1, rows.nonzeros, dtype=np.float32))
    dense = np.random.default_rng(1).random((COUNT, CLASSES), np.float32)
    for targets in (valued, Dense(dense)):
        sets = sets_of(targets=targets)
        found = changed(sets, Mixup=1.0)[1]
        np.testing.assert_allclose(found.sum(), changed(sets)[1].sum(), rtol=0.2)
        assert np.any(found != changed(sets)[1])
    sets = sets_of()
    sets["y"] = replace(sets["y"], weights=np.arange(COUNT, dtype=np.float32))
    spec = resolve(parse_network(raw_of(Mixup=1.0), "n"), sets, "d")
    found, _ = augment(spec, examples_of(spec, sets, "d"), np.arange(COUNT), 1, 1)
    weights = found.sets[1].weights
    assert np.any(weights != sets["y"].weights) and 0 <= weights.min() <= weights.max() <= COUNT


ALL = {"Crop": 2, "Flip": True, "Colour": 0.5, "Mixup": 0.3}


def test_the_same_bits_on_any_number_of_threads_and_others_in_each_step():
    sets = sets_of()
    once = changed(sets, **ALL)
    with workers(3) as each:
        again = changed(sets, each=each, **ALL)
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(one, other)
    for other in (changed(sets, step=2, **ALL), changed(sets, seed=8, **ALL)):
        assert np.any(once[0] != other[0]) and np.any(once[1] != other[1])
    spec = resolve(parse_network(raw_of(**ALL), "n"), sets, "d")
    examples = examples_of(spec, sets, "d")
    batches = list(augmented(spec, examples, [np.arange(COUNT)] * 2, 7, 0))
    np.testing.assert_array_equal(batches[0][0].sets[0].rows.values, once[0].reshape(COUNT, -1))


@pytest.mark.skipif(select.LOOPS is None, reason="Numba is not used here")
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_compiled_loop_has_the_bits_of_its_twin(data):
    channels, height, width = data.draw(st.sampled_from([1, 3])), *data.draw(st.tuples(*[st.integers(2, 9)] * 2))
    crop = data.draw(st.integers(0, min(height, width) - 1))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    stored = random.integers(0, 256, (4, channels, height, width), dtype=np.uint8)
    moves, flips = random.integers(0, 2 * crop + 1, (4, 2)), random.random(4) < 0.5
    factors = random.normal(0.5, 0.7, (4, 3)).astype(np.float32)
    for coloured in (False, True):
        found = np.empty((2, *stored.shape), np.float32)
        for how, into in ((change, found[0]), (select.LOOPS.change_pictures, found[1])):
            how(stored, crop, moves, flips, factors, coloured, into)
        np.testing.assert_array_equal(found[0], found[1])


def train(sets, stop=None, threads=1, **changes):
    """Return the parameters after two epochs; with `stop` another engine goes on after so many steps."""
    given = TrainSettings(**{"batch": 16, "learning_rate": 0.1} | changes)
    network = network_of(raw_of(**ALL), sets)
    examples = examples_of(network.spec, sets, "d")
    order = [np.arange(low, min(low + 16, COUNT)) for _ in range(2) for low in range(0, COUNT, 16)]
    with workers(threads) as each:
        engine = Cpu(each).engine(network, examples, given)
        engine.begin_epoch(0.0)
        for batch in engine.batches(order[:stop]):
            engine.run(batch)
        if stop is not None:
            states = {name: array.copy() for name, array in engine.states().items()}
            engine = Cpu(each).engine(engine.pull(), examples, given)
            engine.resume(stop, states)
            engine.begin_epoch(0.0)
            for batch in engine.batches(order[stop:]):
                engine.run(batch)
        return bits(engine.pull())


def test_a_training_that_was_resumed_sees_what_it_would_have_seen():
    sets = sets_of()
    assert train(sets) == train(sets, stop=3) == train(sets, threads=2) != train(sets, seed=2)


@pytest.mark.parametrize(
    ("sets", "how", "message"),
    [
        ({"x": DataSet("x", Dense(np.zeros((COUNT, 90), np.uint8)))}, {"Flip": True}, "data set 'x' has no pictures"),
        ({"x": DataSet("x", one_hot(np.zeros(COUNT, np.int64), 9))}, {"Mixup": 1}, "data set 'x' has no pictures"),
        ({}, {"Crop": 5}, "Crop: 5 is not legal for 6 x 5, legal: up to 4"),
        (
            {"x": pictures(dtype=np.float32)},
            {"Colour": 0.1},
            "Colour: data set 'x' is of float32 and 3 channels, legal",
        ),
        ({"x": pictures(2)}, {"Colour": 0.1}, "uint8 and 2 channels"),
    ],
)
def test_what_cannot_be_changed(sets, how, message):
    with pytest.raises(DataError, match=message):
        changed(sets_of() | sets, **how)
