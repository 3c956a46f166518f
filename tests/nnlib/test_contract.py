"""What manager and worker agree on: defaults, what is read back, and what is refused."""

import dataclasses
import hashlib
import json
import os
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.confusion import Confusion, Example
from nnlib.contract import (
    ContractError,
    Exit,
    Metric,
    Recipe,
    Result,
    Role,
    Status,
    TrainSettings,
    Trial,
    check_figures,
    recipe_from_json,
    recipe_to_json,
    result_from_json,
    result_to_json,
    slug_of,
    trial_from_json,
    trial_to_json,
)

TRIAL = Trial(
    node="köln_t0001",
    region="Köln",
    number=1,
    role=Role.TUNE,
    network="network.json",
    hyperparameters={"hidden": 8, "rate": 0.5, "kind": "a", "on": True},
    train=TrainSettings(epochs=2),
    metric=Metric("loss", minimize=True),
    train_files=("a.nc", "b.nc"),
    rungs=((1, 0.5), (3, 0.25)),
    sha256={"a.nc": "00"},
)
CONFUSION = Confusion(2, ("ring", "disc"), (1, 1), ((0, 1, 1),), (Example(0, 1, 0.75, 1, 1, 3, "AAEC"),))
RESULT = Result("köln_t0001", Status.OK, value=0.5, metrics={"loss": 0.5}, curve=(0.75, 0.5), best_epoch=2, epochs=2)


def changed(**values):
    """The result as JSON, with other values; None leaves a key out."""
    raw = json.loads(result_to_json(RESULT)) | values
    return json.dumps({key: value for key, value in raw.items() if value is not None})


def test_a_training_of_which_nothing_is_said_is_adams_own():
    """Kingma and Ba (2015) propose 0.001, 0.9 and 0.999; what is optional is off."""
    settings = TrainSettings()
    assert (settings.optimizer, settings.schedule, settings.precision) == ("adam", "constant", "float32")
    assert settings.parallel == "auto"
    assert (settings.learning_rate, settings.momentum, settings.beta2) == (0.001, 0.9, 0.999)
    assert not any((settings.l2, settings.l1, settings.warmup, settings.clip, settings.compat, settings.as_dsstne))
    assert (settings.scale_rate, settings.base_batch, settings.stop_after_examples, settings.ema) == ("none", 256, 0, 0)
    assert (settings.epochs, settings.batch, settings.stop_after, settings.seed) == (30, 256, 5, 1)  # as documented
    assert Metric() == Metric("ndcg@20", minimize=False)


def test_a_result_of_which_nothing_is_said_counts_nothing():
    empty = Result("n", Status.MACHINE)
    for field in dataclasses.fields(Result):
        if field.name not in ("node", "status", "version"):
            assert not getattr(empty, field.name), field.name


def test_exit_codes_are_those_of_python_and_the_shell_where_these_have_some():
    assert (Exit.OK, Exit.BUG, Exit.EVICTED) == (0, 1, 128 + 15)  # SIGTERM is 15; Python ends with 1 after a traceback
    assert (Exit.MACHINE, Exit.CHECKPOINTED) == (os.EX_TEMPFAIL, 85)
    assert (Exit.DIVERGED, Exit.BAD_INPUT) == (3, 4)  # as documented
    assert len(set(Exit)) == 7
    assert not {Exit.DIVERGED, Exit.BAD_INPUT} & {2, 126, 127}  # of a shell, and of arguments that are wrong


def test_settings_keep_pythons_own_numbers_all_of_them():
    settings = TrainSettings(
        epochs=np.int64(3), learning_rate=np.float32(0.5), momentum=0.75, l2=np.float64(0.25), seed=np.uint8(9)
    )
    kept = [getattr(settings, name) for name in ("epochs", "learning_rate", "momentum", "l2", "seed")]
    assert kept == [3, 0.5, 0.75, 0.25, 9]
    assert [type(value) for value in kept] == [int, float, float, float, int]
    assert [TrainSettings(compat=text).as_dsstne for text in ("", "DSSTNE", "dsstne")] == [False, True, True]


def test_trials_and_results_are_read_as_they_were_written():
    assert trial_from_json(trial_to_json(TRIAL)) == TRIAL
    assert "several" not in trial_to_json(TRIAL)  # as all that were written before there was one
    several = dataclasses.replace(TRIAL, several=True)
    assert trial_from_json(trial_to_json(several)) == several
    assert result_from_json(result_to_json(RESULT)) == RESULT
    of_pictures = dataclasses.replace(RESULT, confusion=CONFUSION)
    assert result_from_json(result_to_json(of_pictures)) == of_pictures
    assert "confusion" not in json.loads(result_to_json(RESULT))  # others have the bytes that they had before
    for text in (trial_to_json(TRIAL), result_to_json(RESULT)):
        assert text.endswith("\n}\n") and "köln" in text  # for people, too
        assert list(json.loads(text)) == sorted(json.loads(text))
        assert [line[:2].count(" ") for line in text.splitlines()[:2]] == [0, 1]  # one space is enough
    with pytest.raises(ValueError, match="JSON"):
        result_to_json(Result("n", Status.OK, value=float("nan")))


@pytest.mark.parametrize("read", [trial_from_json, result_from_json])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ('{"version": 1', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "version 'list', this nnlib reads version 1"),
        ("{}", "version None, this nnlib reads version 1"),
        ('{"version": 2}', "version 2, this nnlib reads version 1"),
        ('{"version": 1}', "not a (trial|result) of version 1"),
    ],
)
def test_what_is_torn_or_of_another_version_is_refused(read, text, words):
    with pytest.raises(ContractError, match=words):
        read(text)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"seconds": -0.5}, "seconds: seen -0.5"),
        ({"seconds": True}, "seen True, legal: a finite number"),
        ({"value": float("inf")}, "seen inf, legal: a finite number"),
        ({"value": "0.5"}, "seen '0.5'"),
        ({"metrics": {"loss": None}}, "seen None"),
        ({"baseline": {"loss": float("nan")}}, "seen nan"),
        ({"compared": {"floor": {"loss": []}}}, "seen"),
        ({"curve": [0.5, "x"]}, "seen 'x'"),
        ({"best_epoch": -1}, "best_epoch: seen -1, legal: a whole number from 0"),
        ({"epochs": 2.0}, "epochs: seen 2.0"),
        ({"examples": True}, "examples: seen True"),
        ({"host": 3}, "host: seen 3, legal: a text"),
        ({"model": ["x"]}, "model: seen"),
        ({"gpu": []}, "gpu: seen"),
        ({"host": "\ud800"}, "surrogates not allowed"),
        ({"status": "good"}, "good"),
        ({"status": "removed"}, "only the manager says"),
        ({"confusion": {"of": 1}}, "confusion: 'pairs'"),
        ({"confusion": dataclasses.asdict(CONFUSION) | {"pictures": [1, 10**400]}}, "pictures: seen 1000"),
        ({"confusion": "<script>"}, "confusion: "),
    ],
)
def test_results_that_cannot_be_are_refused(values, words):
    with pytest.raises(ContractError, match=words):
        result_from_json(changed(**values))


def test_results_of_zeros_and_of_more_or_fewer_keys_are_read():
    zeros = {"seconds": 0, "best_epoch": 0, "epochs": 0, "examples": 0, "value": -0.0}
    assert result_from_json(changed(**zeros)).seconds == 0
    assert result_from_json(changed(praise="much")) == RESULT
    fewer = dict.fromkeys(("seconds", "curve", "metrics", "baseline", "compared", "value", "host", "epochs", "gpu"))
    assert result_from_json(changed(**fewer)) == Result("köln_t0001", Status.OK, best_epoch=2)
    check_figures({"value": None, "compared": {"floor": {"loss": 1}}})
    check_figures({"value": -sys.float_info.max, "curve": [sys.float_info.max, 10**308]})
    with pytest.raises(ValueError, match="seen 1000"):
        check_figures({"value": 10**309})  # a whole number that no float is
    with pytest.raises(ValueError, match="seen nan"):
        check_figures({"compared": {"floor": {"loss": float("nan")}}})


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Malta", "malta"),
        ("United Kingdom", "united-kingdom"),
        ("a-b C9", "a-b-c9"),
        ("x" * 40, "x" * 40),
        ("x" * 41, f"{'x' * 40}-{hashlib.sha256(b'x' * 41).hexdigest()[:8]}"),
        ("a  b", f"a-b-{hashlib.sha256(b'a  b').hexdigest()[:8]}"),
        ("a_b", f"a-b-{hashlib.sha256(b'a_b').hexdigest()[:8]}"),
        ("-a", f"a-{hashlib.sha256(b'-a').hexdigest()[:8]}"),
        (f"{'y' * 39} zz", f"{'y' * 39}-{hashlib.sha256(b'y' * 39 + b' zz').hexdigest()[:8]}"),
        ("日本", f"region-{hashlib.sha256('日本'.encode()).hexdigest()[:8]}"),
    ],
)
def test_slugs_of_plain_words_are_plain_and_others_have_a_digest(name, slug):
    assert slug_of(name) == slug


MEMBER = Recipe("ease", {"l2": 300.0, "k": 3, "on": True, "bias_scale": "log"}, 1)
BLEND = Recipe("blend", {}, 2, (MEMBER, Recipe("popularity", {}, 0)), (1.0, -0.25))


def altered(recipe=BLEND, **values):
    """A recipe as JSON, with other values; None leaves a key out."""
    raw = json.loads(recipe_to_json(recipe)) | values
    return json.dumps({key: value for key, value in raw.items() if value is not None})


def test_recipes_are_read_as_they_were_written():
    for recipe in (MEMBER, BLEND):
        assert recipe_from_json(recipe_to_json(recipe)) == recipe
    assert recipe_from_json(altered(MEMBER, members=None, weights=None)) == MEMBER
    assert recipe_to_json(MEMBER) == recipe_to_json(
        dataclasses.replace(MEMBER, hyperparameters=dict(reversed(MEMBER.hyperparameters.items())))
    )
    assert "\n" not in recipe_to_json(BLEND)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a recipe: Expecting value"),
        ("[" * 100_000, "not a recipe: "),
        ("[]", "seen list, legal: the keys family, hyperparameters, seed"),
        ("{}", "seen nothing, legal: the keys"),
        (altered(praise=1), "seen family, hyperparameters, members, praise"),
        (altered(seed=None), "seen family, hyperparameters, members, weights, legal"),
        (altered(family="Ease"), "family: seen 'Ease', legal: a name such as ease"),
        (altered(family=["ease"]), "family: seen "),
        (altered(seed=True), "seed: seen True"),
        (altered(seed=2**63), "legal: a whole number from 0"),
        (altered(seed=-1), "seed: seen -1"),
        (altered(hyperparameters=[]), r"hyperparameters: seen \[\]"),
        (altered(hyperparameters={f"a{n}": 1 for n in range(65)}), "an object of 64 values at most"),
        (altered(hyperparameters={"a b": 1}), "seen the name 'a b'"),
        (altered(hyperparameters={"a": None}), "a: seen None, legal: true, false"),
        (altered(hyperparameters={"a": [1]}), r"a: seen \[1\]"),
        (altered(hyperparameters={"a": 2**63}), "a: seen 9223372036854775808"),
        (altered(hyperparameters={"a": float("nan")}), "a: seen nan"),
        (altered(hyperparameters={"a": "x" * 257}), "a text of 256 characters at most"),
        (altered(hyperparameters={"a": "\ud800"}), "surrogates not allowed"),
        (altered(members=[json.loads(recipe_to_json(BLEND))], weights=[1]), "none in a member"),
        (altered(members=[json.loads(recipe_to_json(MEMBER))] * 17, weights=[1] * 17), "16 recipes at most"),
        (altered(weights=[1]), r"weights: seen \[1\], legal: 2 numbers"),
        (altered(weights=[1, "2"]), "legal: finite numbers"),
        (altered(weights=[1, True]), "legal: finite numbers"),
        (altered(weights=[1, float("inf")]), "legal: finite numbers"),
    ],
)
def test_recipes_that_cannot_be_are_refused(text, words):
    with pytest.raises(ContractError, match=words):
        recipe_from_json(text)


def test_recipes_at_their_bounds_are_read():
    most = {"a": 2**63 - 1, "b": -sys.float_info.max, "c": "x" * 256, "d" * 256: ""}
    found = recipe_from_json(altered(MEMBER, seed=2**63 - 1, hyperparameters=most))
    assert (found.hyperparameters, found.seed) == (most, 2**63 - 1)
    members = [json.loads(recipe_to_json(MEMBER))] * 16
    assert recipe_from_json(altered(members=members, weights=[1] * 16)).weights == (1.0,) * 16


VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())
JSON = st.recursive(VALUES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(st.dictionaries(st.sampled_from([field.name for field in dataclasses.fields(Recipe)]), JSON))
def test_whatever_is_said_to_be_a_recipe_is_one_or_is_refused(raw):
    text = json.dumps({"family": "ease", "hyperparameters": {}, "seed": 1} | raw)
    try:
        recipe = recipe_from_json(text)
    except ContractError:
        return
    assert recipe_from_json(recipe_to_json(recipe)) == recipe
