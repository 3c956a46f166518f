"""Logistic regression on dense inputs: scikit-learn's, by the definition, and the same bits whatever else is asked."""

import dataclasses
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from nnlib.contract import Recipe
from nnlib.data.events import Events
from nnlib.data.rows import Dense, from_rows
from nnlib.errors import DivergedError, NnlibError
from nnlib.families import logistic
from nnlib.families.family import Size
from nnlib.families.fit import fit_recipe, reads_inputs
from tests.nnlib.families.made_up import drawn, everybody

CLASSES = 4


def told(values, targets, classes=CLASSES):
    """Examples with dense inputs and lists of targets."""
    names = tuple(f"class{n}" for n in range(classes))
    nowhere = np.zeros(len(targets), np.int32)
    return Events(from_rows(targets, classes), names, nowhere, ("",), inputs=Dense(values))


def pictures(examples=90, width=50, classes=CLASSES, seed=0):
    """Bytes that tell the class, though not surely, and the classes."""
    random = np.random.default_rng(seed)
    answers = np.arange(examples) % classes
    centres = random.integers(60, 180, (classes, width))
    values = np.clip(centres[answers] + random.normal(0, 60, (examples, width)), 0, 255).astype(np.uint8)
    return values, answers


def of_classes(values, answers, classes=CLASSES):
    return told(values, [[int(one)] for one in answers], classes)


def as_networks_read(values):
    return values.astype(np.float64) / 256 - 0.5


def fitted(history, l2):
    return logistic.fit(history, {"l2": l2}, 1)


@pytest.mark.parametrize("l2", [0.1, 10.0, 1000.0])
def test_weights_and_probabilities_are_those_of_scikit_learn(l2):
    values, answers = pictures()
    asked, _ = pictures(seed=1)
    peer = LogisticRegression(C=1 / l2, max_iter=5000, tol=1e-9).fit(as_networks_read(values), answers)
    ours = fitted(of_classes(values, answers), l2)
    largest = abs(peer.coef_).max()
    weights = ours.weights.T
    assert weights == pytest.approx(peer.coef_, abs=2e-3 * largest)
    assert ours.intercepts == pytest.approx(peer.intercept_, abs=2e-3 * max(1, abs(peer.intercept_).max()))
    scores = ours.scores(told(asked, [[]] * len(asked)), np.arange(len(asked)))
    assert scores == pytest.approx(peer.predict_proba(as_networks_read(asked)), abs=1e-3)
    assert scores.dtype == np.float32


def test_two_classes_have_two_columns_where_scikit_learn_has_their_difference():
    values, answers = pictures(classes=2)
    peer = LogisticRegression(C=2 / 10, max_iter=5000, tol=1e-9).fit(as_networks_read(values), answers)
    history = of_classes(values, answers, 2)
    found = fitted(history, 10.0).scores(history, everybody(history))
    assert found == pytest.approx(peer.predict_proba(as_networks_read(values)), abs=1e-3)


def test_several_targets_share_the_weight_of_their_example_and_one_without_any_has_none():
    random = np.random.default_rng(5)
    values = random.normal(size=(40, 6)).astype(np.float32)
    targets = [sorted(random.choice(CLASSES, n % 3, replace=False).tolist()) for n in range(40)]
    rows = [n for n, some in enumerate(targets) for _ in some]
    answers = [one for some in targets for one in some]
    shares = [1 / len(some) for some in targets for _ in some]
    peer = LogisticRegression(C=1, max_iter=5000, tol=1e-9).fit(values[rows], answers, sample_weight=shares)
    history = told(values, targets)
    found = fitted(history, 1.0).scores(history, everybody(history))
    assert found == pytest.approx(peer.predict_proba(values), abs=1e-3)


def test_the_gradient_is_that_of_the_loss():
    values, answers = pictures(examples=20, width=6)
    history, random = of_classes(values, answers), np.random.default_rng(2)
    x = as_networks_read(values) - as_networks_read(values).mean(axis=0)
    objective = logistic.Objective(x.astype(np.float32).__getitem__, history.bought, 3.0)
    at = random.normal(size=7 * CLASSES)

    def loss(parameters):
        table = parameters.reshape(7, CLASSES)
        z = x @ table[:-1] + table[-1]
        sure = z[np.arange(20), answers] - np.log(np.exp(z).sum(axis=1))
        return (-sure.sum() + 3.0 / 2 * np.square(table[:-1]).sum()) / 20

    value, gradient = objective.loss_and_gradient(at)
    assert value == pytest.approx(loss(at), rel=1e-6)
    step = 1e-5 * np.eye(len(at))
    slopes = [(loss(at + one) - loss(at - one)) / 2e-5 for one in step]
    assert gradient == pytest.approx(np.array(slopes), abs=1e-5)


def test_blocks_change_nothing_but_rounding(monkeypatch):
    history = of_classes(*pictures())
    whole = fitted(history, 10.0)
    monkeypatch.setattr(logistic, "BLOCK", 7 * (50 + CLASSES))
    assert len(list(logistic.blocks_of(90, 50 + CLASSES))) == 13
    assert fitted(history, 10.0).weights == pytest.approx(whole.weights, abs=1e-3 * float(abs(whole.weights).max()))


def test_inputs_that_are_not_kept_as_floats_give_the_same_bits(monkeypatch):
    history = of_classes(*pictures())
    kept = fitted(history, 10.0)
    monkeypatch.setattr(logistic, "FEW", 90 * 50 - 1)
    made = []
    monkeypatch.setattr(logistic, "less", lambda *some, less=logistic.less: made.append(1) or less(*some))
    assert fitted(history, 10.0).weights.tobytes() == kept.weights.tobytes()
    assert len(made) > 5  # in each step


def test_a_class_that_no_example_has_is_unlikely_and_nothing_is_infinite():
    values, answers = pictures()
    history = of_classes(values, answers, CLASSES + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = fitted(history, 10.0)
        scores = model.scores(history, everybody(history))
    assert 0 <= scores[:, -1].max() < 1e-4
    assert scores[:, :-1] == pytest.approx(
        fitted(of_classes(values, answers), 10.0).scores(history, everybody(history)), abs=1e-3
    )


def test_the_mean_is_that_of_all_blocks(monkeypatch):
    values, _ = pictures()
    some = np.arange(3, 88)
    monkeypatch.setattr(logistic, "BLOCK", 7 * 50)
    mean = logistic.mean_of(Dense(values), some)
    assert mean == pytest.approx(as_networks_read(values)[some].mean(axis=0), abs=1e-6)


def test_sums_of_any_size_have_probabilities():
    model = logistic.Logistic(np.array([[1000, 0, -1000]], np.float32), np.array([0, np.log(3), 0], np.float32))
    asked = told(np.array([[1], [0], [-1]], np.float32), [[], [], []], 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.scores(asked, np.arange(3)) == pytest.approx(np.array([[1, 0, 0], [0.2, 0.6, 0.2], [0, 0, 1]]))


def test_memory_grows_with_inputs_times_classes_and_is_never_more_than_said():
    random = np.random.default_rng(3)
    values, answers = random.integers(0, 256, (200, 700), np.uint8), np.arange(200) % 40
    history = of_classes(values, answers, 40)
    tracemalloc.start()
    fitted(history, 10.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    needed = logistic.bytes_needed(Size(200, 40, 200, 700), logistic.DEFAULTS)
    assert needed / 3 < peak <= needed
    # 307,300 weights and intercepts, of which L-BFGS keeps ten steps; a block; what is known of the examples.
    of_steps, block = 8 * 38 * 307_300, 40 * 2**18
    assert logistic.bytes_needed(Size(10_000, 100, 10_000, 3072), logistic.DEFAULTS) == (
        of_steps + block + 44 * 10_000 + 2**20
    )
    few = logistic.bytes_needed(Size(5_000, 100, 10_000, 3072), logistic.DEFAULTS)
    assert few == of_steps + block + 4 * 5_000 * 3072 + 12 * 10_000 + 32 * 5_000 + 2**20  # which are kept as floats


@pytest.mark.parametrize("kind", ["uint8", "int8", "float32", "float64", "int32"])
def test_inputs_of_all_types_are_read_as_networks_read_them(kind):
    values, answers = pictures()
    values = (values // 2).astype(kind)
    history = of_classes(values, answers)
    floats = of_classes(Dense(values).floats(as_input=True), answers)
    assert fitted(history, 10.0).arrays()["weights_of_inputs"].tobytes() == (
        fitted(floats, 10.0).arrays()["weights_of_inputs"].tobytes()
    )


def test_the_bits_are_the_same_on_any_number_of_threads():
    history, found = of_classes(*pictures(examples=1500, width=700)), []
    for threads in (1, 2, 8):
        with threadpool_limits(threads):
            model = fit_recipe(Recipe("logistic"), history)
            found.append((model.fitted.weights.tobytes(), model.scores(history, everybody(history)).tobytes()))
    assert found[0] == found[1] == found[2]


def test_a_rows_bits_do_not_depend_on_the_others():
    history = of_classes(*pictures(examples=300, width=701, classes=9), 9)
    model = fitted(history, 10.0)
    whole = model.scores(history, everybody(history))
    for rows in ([0], [299], [5, 3], range(7, 290)):
        some = np.array(rows)
        assert model.scores(history, some).tobytes() == whole[some].tobytes()
        assert model.scores(history.take(some), np.arange(len(some))).tobytes() == whole[some].tobytes()


def test_what_cannot_be_fitted_or_asked_is_said():
    history = of_classes(*pictures())
    alone = dataclasses.replace(history, inputs=None)
    with pytest.raises(NnlibError, match=r"^logistic: these data have no dense inputs, legal: data with a dense"):
        fit_recipe(Recipe("logistic"), alone)
    model = fit_recipe(Recipe("logistic"), history)
    with pytest.raises(NnlibError, match=r"^logistic: these data have no dense inputs"):
        model.scores(alone, np.arange(3))
    narrow = of_classes(*pictures(width=49))
    with pytest.raises(NnlibError, match=r"^logistic: examples of 49 inputs, legal: 50, as it learned$"):
        model.scores(narrow, np.arange(3))
    with pytest.raises(NnlibError, match=r"^logistic: no example has a target, legal: "):
        fit_recipe(Recipe("logistic"), told(np.zeros((3, 2), np.uint8), [[], [], []]))
    huge = told(np.array([[3e38, 1], [-3e38, 2]], np.float32), [[0], [1]])
    with pytest.raises(DivergedError, match=r"^logistic: no step makes the loss less, as inputs are too large; scale"):
        fit_recipe(Recipe("logistic"), huge)


def test_only_recipes_that_are_told_by_inputs_have_them_read():
    alone, other = Recipe("logistic"), Recipe("popularity")
    assert reads_inputs(alone) and not reads_inputs(other)
    assert reads_inputs(Recipe("blend", {}, 1, (other, alone), (1.0, 1.0)))
    assert not reads_inputs(Recipe("blend", {}, 1, (other,), (1.0,)))


def test_a_blend_asks_it_with_the_inputs():
    history = drawn()
    blend = Recipe("blend", {}, 1, (Recipe("logistic"), Recipe("popularity")), (1.0, 0.0))
    found = fit_recipe(blend, history).scores(history, everybody(history))
    alone = fit_recipe(Recipe("logistic"), history).scores(history, everybody(history))
    assert (np.argsort(-found, kind="stable") == np.argsort(-alone, kind="stable")).mean() > 0.99
