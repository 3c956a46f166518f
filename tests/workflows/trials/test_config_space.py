"""Spaces as ConfigSpace's, and back."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.api.search import Search
from regiondag.config.space_section import read_space
from regiondag.errors import RegiondagError, UsageError
from regiondag.study.space import Choice, Integer, Real
from regiondag.trials.config_space import config_space_of, import_config_space, is_of_config_space, written_of_space
from regiondag.util.schema import Layer, Problems, Section
from regiondag.util.yaml_file import Document

cs = pytest.importorskip("ConfigSpace")

pytestmark = pytest.mark.slow


def test_without_it_its_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ConfigSpace", None)
    with pytest.raises(RegiondagError, match=r"this needs the package ConfigSpace, .*pip install .*\[configspace\]"):
        import_config_space("this")
    assert not is_of_config_space({}, "ConfigurationSpace")


KIND = Choice("kind", ("a", "b", "c"))
NUMBERS = st.integers(-(10**8), 10**8).map(lambda number: number / 10**6)  # it rounds others to 13 digits


def read(space):
    written = written_of_space(space)
    section = Section(Problems(Document("s", written, {})), [Layer(written, ())])
    return {one.name: one for one in read_space(section, None)}, section.problems.texts()


@st.composite
def parameters(draw):
    """Draw hyperparameters of which ConfigSpace can say everything."""
    kind = draw(st.sampled_from(["real", "log", "int", "int log", "choice", "ordered", "fixed"]))
    low, width = draw(st.integers(-1000, 1000)), draw(st.integers(1, 50))
    when = draw(st.sampled_from([(), (("kind", ("a",)),), (("kind", ("a", "c")),)]))
    if kind in ("choice", "ordered"):
        options = st.lists(st.integers(-1000, 1000), min_size=2, max_size=6, unique=True).map(sorted)
        return Choice("x", tuple(draw(options)), when, ordered=kind == "ordered")
    if kind == "fixed":
        return Choice("x", (draw(st.text(st.characters(codec="ascii"), min_size=1)),), when)
    if kind == "real":
        return Real("x", *sorted(draw(st.lists(NUMBERS, min_size=2, max_size=2, unique=True))), when=when)
    if kind == "log":
        return Real("x", 10.0 ** draw(st.integers(-9, 0)), 10.0 ** draw(st.integers(1, 9)), log=True, when=when)
    if kind == "int log":
        return Integer("x", abs(low) + 1, abs(low) + 1 + width, log=True, when=when)
    return Integer("x", low, low + width, when=when)


@given(parameters())
def test_a_space_is_the_same_after_it(parameter):
    space = config_space_of((KIND, parameter))
    assert is_of_config_space(space, "ConfigurationSpace") and is_of_config_space(space["x"], "Hyperparameter")
    assert read(space) == ({"kind": KIND, "x": parameter}, [])


def test_steps_are_ordinal_there():
    space = config_space_of((Real("x", 0.0, 0.3, step=0.1), Integer("y", 8, 24, step=8)))
    assert space["x"].sequence == (0.0, 0.1, 0.2, 0.3) and space["y"].sequence == (8, 16, 24)


@pytest.mark.parametrize(
    ("condition", "when"),
    [
        (lambda x, p: cs.NotEqualsCondition(x, p["kind"], "b"), {"kind": ["a", "c"]}),
        (lambda x, p: cs.GreaterThanCondition(x, p["layers"], 2), {"layers": [3, 4]}),
        (lambda x, p: cs.LessThanCondition(x, p["size"], 4), {"size": [1, 2]}),
        (
            lambda x, p: cs.OrConjunction(cs.EqualsCondition(x, p["kind"], "a"), cs.EqualsCondition(x, p["kind"], "b")),
            {"kind": ["a", "b"]},
        ),
        (
            lambda x, p: cs.AndConjunction(
                cs.NotEqualsCondition(x, p["kind"], "b"), cs.InCondition(x, p["layers"], [1, 3])
            ),
            {"kind": ["a", "c"], "layers": [1, 3]},
        ),
        (
            lambda x, p: cs.AndConjunction(
                cs.GreaterThanCondition(x, p["layers"], 1), cs.LessThanCondition(x, p["layers"], 4)
            ),
            {"layers": [2, 3]},
        ),
    ],
)
def test_conditions_are_lists_of_values(condition, when):
    space = cs.ConfigurationSpace({"kind": ["a", "b", "c"], "layers": (1, 4)})
    space.add(cs.OrdinalHyperparameter("size", [1, 2, 4]))
    space.add(x := cs.Constant("x", 3))
    space.add(condition(x, space))
    assert written_of_space(space)["x"] == {"choice": [3], "when": when}
    assert read(space)[1] == []


def test_what_a_search_cannot_be_told_is_refused_by_name(tmp_path):
    space = cs.ConfigurationSpace({"rate": (0.0, 1.0), "kind": ["a", "b"], "many": (0, 5000)})
    space.add(x := cs.Constant("x", 3))
    for condition in (
        cs.GreaterThanCondition(x, space["rate"], 0.5),
        cs.GreaterThanCondition(x, space["many"], 5),
        cs.OrConjunction(cs.EqualsCondition(x, space["kind"], "a"), cs.EqualsCondition(x, space["many"], 2)),
    ):
        again = cs.ConfigurationSpace(space=None)
        again.add(list(space.values()))
        again.add(condition)
        with pytest.raises(UsageError, match="legal: conditions on"):
            written_of_space(again)
    space.add(cs.ForbiddenEqualsClause(space["kind"], "b"))
    with pytest.raises(UsageError, match=r"seen .*kind.*, legal: no forbidden clauses"):
        written_of_space(space)
    for one, seen in (
        (cs.NormalFloatHyperparameter("x", 0, 1, lower=-1, upper=1), "NormalFloatHyperparameter"),
        (cs.CategoricalHyperparameter("x", ["a", "b"], weights=[1, 2]), "weights"),
    ):
        with pytest.raises(UsageError, match=f"x: seen {seen}, legal: uniform numbers"):
            Search({"x": one}, tmp_path / "search.jsonl")


@pytest.mark.parametrize(
    ("parameter", "text"),
    [
        (Real("x", 0.0, 1.0, step=1e-4), "10001 steps cannot be said"),
        (Choice("x", (1, True)), "takes some of .* for equal"),
        (Real("x", 1e-20, 1.0, log=True), "rounds or cannot hold"),
    ],
)
def test_what_it_cannot_be_told_is_refused_by_name(parameter, text):
    with pytest.raises(UsageError, match=text):
        config_space_of((parameter,))
    with pytest.raises(UsageError, match="constraints: 'a < b' cannot be said"):
        config_space_of((), ["a < b"])


def test_a_search_of_its_space(tmp_path):
    space = cs.ConfigurationSpace({"optimizer": ["sgd", "adam"], "rate": cs.Float("rate", (1e-4, 0.1), log=True)})
    space.add(momentum := cs.Float("momentum", (0, 0.9)))
    space.add(cs.EqualsCondition(momentum, space["optimizer"], "sgd"))
    search = Search(space, tmp_path / "search.jsonl")
    seen = set()
    for _ in range(12):
        trial = search.ask()
        configuration = cs.Configuration(search.to_config_space(), trial.hyperparameters)
        configuration.check_valid_configuration()
        search.tell(trial, trial.hyperparameters["rate"])
        seen.add(tuple(trial.hyperparameters))
    assert seen == {("optimizer", "rate"), ("optimizer", "rate", "momentum")}
    assert Search(space, tmp_path / "search.jsonl").trials == search.trials
    assert Search({"rate": space["rate"], "layers": {"int": [1, 3]}}, tmp_path / "other.jsonl").ask().number == 0
