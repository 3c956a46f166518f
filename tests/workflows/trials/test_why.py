"""Why a trial has its hyperparameters, by made-up journals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nnlib.contract import Metric, Recipe, TrainSettings
from regiondag.run.history import History, Proposal, TrialOutcome
from regiondag.run.proposal import make_request
from regiondag.run.region_spec import RegionSpec
from regiondag.study.model import Search
from regiondag.study.space import Choice, Real
from regiondag.trials.why import explain_choice, say_why, tabulate_why
from regiondag.tuning.propose import propose
from regiondag.tuning.sharing import Neighbour, Observation, Shared

SPACE = (Real("rate", 0.0, 1.0), Choice("optimizer", ("adam", "sgd")))
NDCG, LOSS = Metric("ndcg@20"), Metric("loss", minimize=True)


def spec_of(method="bayes", metric=NDCG, **more):
    first = more.pop("first", ())
    incumbent = more.pop("incumbent", None)
    search = Search(method, more.pop("space", SPACE), (1,) * 20, **more)
    return RegionSpec(
        "made up", "Germany", "germany", metric, TrainSettings(), search, (), {}, first=first, incumbent=incumbent
    )


def worth(point):
    """Best at rate .4, with sgd."""
    return 0.5 - (point["rate"] - 0.4) ** 2 + 0.05 * (point["optimizer"] == "sgd")


def play(spec, trials, shared=None):
    """Return the journal of so many trials, one at a time, and the requests that they came from."""
    history, befores = History(), []
    for number in range(trials):
        before = History(dict(history.proposals), dict(history.settled))
        request = make_request(spec, before, range(number, number + 1), sorted(before.proposals), shared)
        told = list(request.told.values())
        [point] = request.given or propose(spec.search, told, request.pending, 1, request.seed, shared)
        history.proposals[number] = Proposal(number, point)
        value = worth(point)
        history.settle(TrialOutcome(number, "ok", "", -value if spec.metric.minimize else value, stderr=0.004))
        befores.append((before, request))
    return history, befores


@pytest.mark.parametrize("metric", [NDCG, LOSS])
def test_what_the_model_expected_is_in_the_metrics_own_unit_and_direction(metric):
    spec = spec_of(metric=metric)
    history, befores = play(spec, 11)
    found = [explain_choice(spec, *befores[n], history, n) for n in range(11)]
    assert all(one.reproduced for one in found)
    assert [one.source for one in found] == ["sequence"] * 5 + ["model"] * 6
    assert all((one.expected is None) == (one.source == "sequence") for one in found)
    modelled, sign = found[5:], -1 if metric.minimize else 1
    assert sum(one.expected.low <= one.value <= one.expected.high for one in modelled) >= 4
    assert all(one.expected.improvement >= 0 for one in modelled)
    assert all((one.deviations >= 0) == (sign * (one.value - one.expected.value) >= 0) for one in modelled)
    narrow = min(modelled, key=lambda one: one.expected.high - one.expected.low)
    assert narrow.expected.value == pytest.approx(sign * worth(narrow.hyperparameters), abs=2e-3)
    last = found[-1]
    assert last.expected.best == pytest.approx(last.best_value, abs=2e-3)
    assert last.best_value == (min if metric.minimize else max)(one.value for one in found[:-1])


def test_in_words():
    spec = spec_of()
    history, befores = play(spec, 9)
    first, expected, came = say_why(explain_choice(spec, *befores[8], history, 8))
    assert first.startswith("Germany, trial 8: ") and first.endswith("; 8 trials were known then")
    assert expected.startswith("expected: ndcg@20 0.") and "than the best until then" in expected
    assert came.startswith("came: 0.") and "± 0.004 (standard error)" in came and "deviations" in came
    headings, rows = tabulate_why(explain_choice(spec, *befores[8], history, 8))
    assert headings[:2] == ["hyperparameter", "trial 8"] and headings[2].startswith("best until then: trial ")
    assert [row[0] for row in rows] == ["rate", "optimizer"]


def test_before_the_model_nothing_was_expected():
    spec = spec_of()
    history, befores = play(spec, 1)
    history.settled.clear()
    why = explain_choice(spec, *befores[0], history, 0)
    assert list(say_why(why)) == [
        "Germany, trial 0: point 1 of the Sobol sequence; 0 trials were known then",
        "nothing was expected of it: no model was asked for it",
        "came: nothing yet, it is running",
    ]
    assert tabulate_why(why)[0] == ["hyperparameter", "trial 0"]


@pytest.mark.parametrize("method", ["sobol", "random"])
def test_a_method_without_a_model_is_called_so(method):
    spec = spec_of(method)
    history, befores = play(spec, 3)
    why = explain_choice(spec, *befores[2], history, 2)
    assert why.reproduced and f"the method {method} has no model" in list(say_why(why))[1]


def test_another_point_than_the_one_that_comes_out_has_no_criterion():
    spec = spec_of()
    history, befores = play(spec, 9)
    history.proposals[8] = Proposal(8, {"rate": 0.123, "optimizer": "adam"})
    why = explain_choice(spec, *befores[8], history, 8)
    assert not why.reproduced and "a criterion that cannot be told any more" in why.how
    assert why.expected.value == pytest.approx(worth(history.proposals[8].point), abs=0.05)  # the model is there still
    assert "another version of it proposed this one" in list(say_why(why))[1]


def test_a_trial_that_failed_came_to_nothing():
    spec = spec_of()
    history, befores = play(spec, 9)
    history.settled[8] = TrialOutcome(8, "diverged", "the loss is nan")
    why = explain_choice(spec, *befores[8], history, 8)
    assert why.expected is not None and why.deviations is None and list(say_why(why))[-1] == "came: diverged"


def test_a_region_that_knows_only_others_expects_no_value_of_its_own():
    friend = Neighbour(
        "friend", [Observation({"rate": n / 8, "optimizer": "sgd"}, -n / 8) for n in range(8)], earlier=True
    )
    spec = spec_of(share="model")
    history, befores = play(spec, 1, Shared(0, (friend,)))
    why = explain_choice(spec, *befores[0], history, 0)
    assert why.source == "model" and why.expected is None
    assert "no two different values of this region's own" in list(say_why(why))[1]


def test_points_that_were_given_say_by_whom():
    families = (Choice("family", ("ease", "popularity")), Real("ease_l2", 1.0, 9.0, when=(("family", ("ease",)),)))
    first = ({"family": "incumbent"}, {"family": "popularity"})
    spec = spec_of(space=families, first=first, incumbent=Recipe("blend"), blends=True)
    history = History({n: Proposal(n, point) for n, point in enumerate(first)})
    history.proposals[20] = Proposal(20, {"family": "blend"})
    request = make_request(spec, History(), range(1), [], None)
    found = [explain_choice(spec, History(), replace(request, numbers=range(n, n + 1)), history, n).how for n in (0, 1)]
    assert found == ["the recipe in office, fitted anew", "given: what an expert would try, before the tuner is asked"]
    own = explain_choice(spec, History(), make_request(spec, History(), range(2), [], None), history, 1)
    assert (own.known, own.pending) == (0, 0)  # it does not wait for itself
    blend = explain_choice(spec, history, None, history, 20)
    assert (blend.source, blend.reproduced, blend.expected) == (
        "given",
        True,
        None,
    ) and "blend of the best" in blend.how
