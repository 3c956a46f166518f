import doctest

from hypothesis import given
from hypothesis import strategies as st

from regiondag.study.model import TRAIN_SETTINGS, Search
from regiondag.study.space import Choice, Integer, Real
from regiondag.tuning import fixed_shape
from regiondag.tuning.fixed_shape import find_shaping, fix_values
from regiondag.tuning.propose import propose

LAYERS = Integer("layers", 1, 3)
HIDDEN = Integer("hidden", 2, 64, log=True, when=(("optimizer", ("sgd", "adam")),), default=7)
OPTIMIZER = Choice("optimizer", ("sgd", "adam", "adagrad"))
MOMENTUM = Real("momentum", 0.0, 0.9, when=(("optimizer", ("sgd",)), ("layers", (2, 3))))
RATE = Real("learning_rate", 0.001, 0.1, log=True)
SPACE = (LAYERS, HIDDEN, OPTIMIZER, MOMENTUM, RATE)


def test_doctests():
    assert doctest.testmod(fixed_shape).failed == 0


def test_what_shapes_a_network():
    raw = {
        "Name": "$name",
        "denoising": {"p": "$denoising"},
        "Layers": [
            {"N": ["$width", "$height"], "PDROPOUT": "$dropout", "WeightInit": {"Scale": "$scale"}},
            {"Activation": "$activation", "N": "$width", "Sparse": True, "Bias": "$learning_rate"},
        ],
    }
    assert find_shaping(raw) == ("activation", "height", "name", "width")
    assert "learning_rate" in TRAIN_SETTINGS


def test_a_placeholder_that_shapes_and_does_not_is_fixed():
    assert find_shaping({"Layers": [{"N": "$x", "pDropout": "$x"}]}) == ("x",)
    assert find_shaping({"Augmentation": {"Crop": "$crop"}, "Layers": []}) == ()


def test_what_hangs_on_a_fixed_hyperparameter_hangs_on_what_that_hung_on():
    search = fix_values(Search("bayes", SPACE, (2,)), {"hidden": 100, "layers": 2})
    assert search.space == (
        Choice("layers", (2,)),
        Choice("hidden", (100,)),
        OPTIMIZER,
        Real("momentum", 0.0, 0.9, when=(("optimizer", ("sgd",)),)),
        RATE,
    )
    on_hidden = Real("l2", 0.0, 1.0, when=(("hidden", (2, 100)),))
    [*_, l2] = fix_values(Search("bayes", (*SPACE, on_hidden), (2,)), {"hidden": 100}).space
    assert l2.when == (("optimizer", ("sgd", "adam")),)


def test_what_can_never_exist_is_gone_with_all_that_speaks_of_it():
    below = Real("l2", 0.0, 1.0, when=(("momentum2", (1,)),))
    above = Integer("momentum2", 1, 2, when=(("layers", (3,)),))
    constraints = (
        "momentum <= 0.5",
        "l2 < 1",
        "hidden * layers <= 9",
        "hidden * learning_rate <= 1",
        "l2 + layers < 9",
    )
    search = fix_values(
        Search("bayes", (*SPACE, above, below), (2,), constraints=constraints), {"layers": 1, "hidden": 100}
    )
    assert [parameter.name for parameter in search.space] == ["layers", "hidden", "optimizer", "learning_rate"]
    assert search.constraints == ("hidden * learning_rate <= 1",)


def test_a_search_without_fixed_values_is_as_it_was():
    search = Search("bayes", SPACE, (2, 2), constraints=("layers < 3",), budget=9)
    assert fix_values(search, {}) == search


@given(
    st.sampled_from(["grid", "random", "sobol", "bayes"]),
    st.integers(1, 5),
    st.integers(1, 500),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_proposals_never_leave_the_shape(method, layers, hidden, seed, constrained):
    """Whatever the model has, be it outside of the region's own ranges."""
    steps = (Real("momentum", 0.0, 0.9, step=0.3, when=MOMENTUM.when), Real("learning_rate", 0.1, 0.4, step=0.1))
    space = (*SPACE[:3], *steps)
    constraints = ("learning_rate + momentum < 0.9", "hidden + layers < 30") if constrained else ()
    search = fix_values(Search(method, space, (4,), constraints=constraints), {"layers": layers, "hidden": hidden})
    points = propose(search, history=[], pending=[], n=6, seed=seed)
    assert len(points) == 6
    for point in points:
        assert (point["layers"], point["hidden"]) == (layers, hidden)
        assert ("momentum" in point) == (point["optimizer"] == "sgd" and layers in (2, 3))
        assert not constrained or point["learning_rate"] + point.get("momentum", 0) < 0.9
