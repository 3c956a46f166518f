"""Spaces as Optuna's distributions, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.config.space_section import read_space
from regiondag.study.space import Choice, Integer, Real
from regiondag.trials.optuna_space import distributions_of, is_distribution, written_of
from regiondag.util.schema import Layer, Problems, Section
from regiondag.util.yaml_file import Document

optuna = pytest.importorskip("optuna")
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402

pytestmark = pytest.mark.slow

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)
TEXTS = st.text(st.characters(codec="utf-8"))


@st.composite
def parameters(draw):
    """Draw hyperparameters of which Optuna can say everything."""
    kind = draw(st.sampled_from(["real", "log", "step", "int", "int log", "int step", "choice"]))
    low, width = draw(st.integers(-1000, 1000)), draw(st.integers(1, 50))
    if kind == "choice":
        return Choice("x", tuple(draw(st.lists(TEXTS | st.integers(-(2**60), 2**60), min_size=1, unique=True))))
    if kind == "real":
        return Real("x", *sorted(draw(st.lists(NUMBERS, min_size=2, max_size=2, unique=True))))
    if kind == "log":
        return Real("x", 10.0 ** draw(st.integers(-9, 0)), 10.0 ** draw(st.integers(1, 9)), log=True)
    if kind == "step":
        step = draw(st.sampled_from([0.5, 0.25, 0.1]))
        return Real("x", float(low), low + round(width * step, 2), step=step)
    if kind == "int log":
        return Integer("x", abs(low) + 1, abs(low) + 1 + width, log=True)
    step = draw(st.integers(2, 9)) if kind == "int step" else None
    return Integer("x", low, low + width * (step or 1), step=step)


def read(distributions):
    written = {name: written_of(one) for name, one in distributions.items()}
    section = Section(Problems(Document("s", written, {})), [Layer(written, ())])
    return read_space(section, None), section.problems.texts()


@given(parameters())
def test_a_space_is_the_same_after_optuna(parameter):
    distributions = distributions_of((parameter,))
    assert all(map(is_distribution, distributions.values()))
    space, told = read(distributions)
    assert (space, told) == ((parameter,), [])
    assert distributions_of(space) == distributions


@pytest.mark.parametrize(
    ("distribution", "parameter"),
    [
        (IntDistribution(3, 3), Choice("x", (3,))),
        (FloatDistribution(0.5, 0.5), Choice("x", (0.5,))),
        (IntDistribution(1, 8, log=True), Integer("x", 1, 8, log=True)),
        (CategoricalDistribution([True, "a", 0.5]), Choice("x", (True, "a", 0.5))),
    ],
)
def test_distributions_are_parameters(distribution, parameter):
    assert read({"x": distribution}) == ((parameter,), [])


@pytest.mark.parametrize(
    "distribution",
    [CategoricalDistribution([None, "a"]), IntDistribution(0, 2**60), FloatDistribution(0, float("inf"))],
)
def test_what_no_space_of_ours_can_be_is_said(distribution):
    space, told = read({"x": distribution})
    assert space == () and len(told) == 1 and "legal: " in told[0]


def test_nothing_else_is_a_distribution():
    assert not any(map(is_distribution, ({"real": [0, 1]}, 3, "FloatDistribution", FloatDistribution, None)))
