"""The default method: what it fits, in what order it asks its criteria, and what it takes as known."""

from __future__ import annotations

import numpy as np
import pytest

from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real, random_point
from regiondag.tuning.domain import domain_of, identity_of
from regiondag.tuning.encoding import Encoding
from regiondag.tuning.gp import ask
from regiondag.tuning.gp.acquisition import Bound, Improvement
from regiondag.tuning.gp.process import GaussianProcess, Observed, Posterior
from regiondag.tuning.gp.success import Likely
from regiondag.tuning.gp.training_set import TrainingSet, tell
from regiondag.tuning.sharing import Neighbour, Observation

SPACE = (Real("x", 0.0, 1.0), Integer("n", 1, 9), Choice("kind", ("a", "b", "c")))
DOMAIN = domain_of(Search("bayes", SPACE, (4,) * 5, share="model"))
ENCODING = Encoding(SPACE)


def loss(point):
    return (point["x"] - 0.4) ** 2 + abs(point["n"] - 4) / 9 + (point["kind"] != "b")


def tried(count, start=0, objective=loss):
    numbers = range(start, start + count)
    points = [{"x": 0.61803 * n % 1, "n": 1 + 4 * n % 9, "kind": "abc"[n % 3]} for n in numbers]
    return [Observation(p, objective(p), 1.0 + 9 * p["x"]) for p in points]


def features(points):
    return ENCODING.features(ENCODING.coordinates(points)) * ENCODING.weights


def generator(seed=1):
    return np.random.Generator(np.random.PCG64(seed))


class Looked:
    """Plays the search for a point: finds given ones, and remembers what it was asked."""

    def __init__(self, monkeypatch, found):
        self.found, self.asked = iter(found), []
        monkeypatch.setattr(ask, "Maximiser", self.search)

    def search(self, domain, encoding, criterion, random, others):
        self.now = {"criterion": criterion, "others": others, "domain": domain, "random": random}
        self.now["known"] = getattr(criterion, "criterion", criterion).process.inputs.shape[1]
        return self

    def best(self, anchors, reach, taken):
        self.asked.append({**self.now, "anchors": anchors, "reach": reach, "taken": set(taken)})
        return next(self.found, None)

    def draw(self, taken):
        return None


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_a_batch_is_new_legal_and_the_same_again(n):
    history, pending = tried(8), [o.point for o in tried(2, 20)]
    points = ask.ask(DOMAIN, history, pending, n, 3)
    assert points == ask.ask(DOMAIN, history, pending, n, 3) and len(points) == n
    assert len({identity_of(p) for p in [*points, *pending, *(o.point for o in history)]}) == n + 10
    assert all(DOMAIN.has(point) for point in points)


def test_points_are_good_ones():
    history = tried(20)
    points = ask.ask(DOMAIN, history, [], 4, 1)
    assert min(map(loss, points)) < sorted(o.loss for o in history)[2]


def test_without_anything_to_choose_or_to_learn_from_there_are_no_points():
    fixed = domain_of(Search("bayes", SPACE[2:], (4,)))
    alone = domain_of(Search("bayes", (Choice("one", (5,)),), (4,)))
    assert ask.ask(alone, [Observation({"one": 5}, 1.0)] * 3, [], 2, 1) == []
    assert ask.predict_losses(alone, [Observation({"one": 5}, 1.0)] * 3, 1) is None
    assert ask.ask(fixed, [Observation({"kind": k}, 1.0) for k in "ab"], [], 3, 1) == [{"kind": "c"}]
    for history in ([], tried(1)):
        assert ask.ask(DOMAIN, history, [], 2, 1) == [] and ask.predict_losses(DOMAIN, history, 1) is None
        friend = Neighbour("friend", tried(12, 30))
        assert len(ask.ask(DOMAIN, history, [], 2, 1, neighbours=[friend])) == 2
        assert ask.predict_losses(DOMAIN, history, 1, [friend]).shape == (len(history),)
    assert len(ask.ask(DOMAIN, tried(2), [], 2, 1)) == 2 and ask.predict_losses(DOMAIN, tried(2), 1).shape == (2,)


def test_a_batch_takes_its_criteria_in_turn(monkeypatch):
    points = [o.point for o in tried(7, 50)]
    looked = Looked(monkeypatch, points)
    assert ask.ask(DOMAIN, tried(8), [], 6, 1) == points[:6]
    kinds = [(type(a["criterion"]), getattr(a["criterion"], "beta", None), a["reach"]) for a in looked.asked]
    turns = [(Improvement, None, 1.0), (Bound, 1.0, 1.0), (Improvement, None, 0.3), (Bound, 2.5, 1.0)]
    assert kinds == [*turns, *turns[:2]]
    assert all(a["criterion"].cost is None for a in looked.asked if type(a["criterion"]) is Improvement)
    assert len({id(a["random"]) for a in looked.asked}) == 1  # one stream of chance


def test_lanes_that_ask_for_one_point_at_a_time_take_turns_too(monkeypatch):
    looked = Looked(monkeypatch, [o.point for o in tried(8, 50)])
    pending = [o.point for o in tried(3, 20)]  # what three other lanes try
    for done in range(5, 9):
        ask.ask(DOMAIN, tried(done), pending, 1, 1)
    assert [(type(a["criterion"]), a["reach"]) for a in looked.asked] == [
        (Improvement, 1.0),
        (Bound, 1.0),
        (Improvement, 0.3),
        (Bound, 1.0),
    ]


def test_what_was_tried_is_pending_or_chosen_is_taken_and_believed(monkeypatch):
    points, pending = [o.point for o in tried(3, 50)], [o.point for o in tried(2, 20)]
    looked = Looked(monkeypatch, points)
    history = tried(8)
    ask.ask(DOMAIN, history, pending, 3, 1)
    before = {identity_of(p) for p in [*pending, *(o.point for o in history)]}
    assert [a["taken"] for a in looked.asked] == [before | set(map(identity_of, points[:k])) for k in range(3)]
    assert [a["known"] for a in looked.asked] == [10, 11, 12]
    process = looked.asked[0]["criterion"].process
    assert process.inputs / process.scale == pytest.approx(
        features([*(o.point for o in history), *pending, *points])[None]
    )


def test_a_search_that_finds_no_more_ends_the_batch(monkeypatch):
    points = [o.point for o in tried(2, 50)]
    looked = Looked(monkeypatch, points)
    assert ask.ask(DOMAIN, tried(8), [], 6, 1) == points and len(looked.asked) == 3


def test_a_point_has_to_improve_on_the_models_best_and_on_those_of_the_batch(monkeypatch):
    history = tried(8)
    model = ask._fit(tell(DOMAIN, history).data, generator())
    candidates = [random_point(SPACE, seed) for seed in range(300)]
    promising = candidates[int(model.predict(features(candidates))[0][0].argmin())]
    others = [o.point for o in tried(4, 50)]
    looked = Looked(monkeypatch, [promising, *others])
    ask.ask(DOMAIN, history, [], 5, 1)
    first, third, fifth = (looked.asked[number]["criterion"] for number in (0, 2, 4))
    means = first.process.predict(features([o.point for o in history]))[0]  # believing leaves them as they are
    assert first.best == pytest.approx(means.min(axis=1)) and first.best.shape == (1,)
    for criterion, known in ((third, 2), (fifth, 4)):
        seen = [o.point for o in history] + [promising, *others][:known]
        assert criterion.best == pytest.approx(first.process.predict(features(seen))[0].min(axis=1))
    assert third.best < first.best


def test_only_ones_own_trials_are_to_be_improved_on_if_there_are_any(monkeypatch):
    better = Neighbour("better", [Observation(o.point, o.loss - 9) for o in tried(20, 30)])
    for history in (tried(6), []):
        looked = Looked(monkeypatch, [])
        ask.ask(DOMAIN, history, [], 1, 1, neighbours=[better])
        [asked] = looked.asked
        told = tell(DOMAIN, history, [better])
        assert len(told.rows) == len(history) + 20
        means = asked["criterion"].process.predict(told.data.features)[0]
        assert asked["criterion"].best == pytest.approx(means[:, : len(history) or None].min(axis=1))
        anchors, fresh = ask._anchors(means.mean(axis=0), told)
        assert (asked["anchors"] == anchors).all() and (asked["others"] == fresh).all()


def test_per_second_every_turn_is_improvement_over_cost(monkeypatch):
    looked = Looked(monkeypatch, [o.point for o in tried(4, 50)])
    history = tried(8)
    ask.ask(DOMAIN, history, [], 4, 1, per_second=True)
    assert [type(a["criterion"]) for a in looked.asked] == [Improvement] * 4
    cost = looked.asked[0]["criterion"].cost
    assert isinstance(cost, GaussianProcess) and [a["reach"] for a in looked.asked] == [1.0, 1.0, 0.3, 1.0]
    spent = np.log([o.seconds for o in history])
    found = cost.predict(features([o.point for o in history]))[0][0]
    assert found == pytest.approx(spent - spent.mean(), abs=0.15)
    looked = Looked(monkeypatch, [o.point for o in tried(4, 50)])
    ask.ask(DOMAIN, [Observation(o.point, o.loss) for o in history], [], 4, 1, per_second=True)
    assert [type(a["criterion"]) for a in looked.asked] == [Improvement, Bound] * 2  # nothing is known of the cost


def test_what_a_trial_costs_is_learned_from_the_latest_successes(monkeypatch):
    asked = []
    monkeypatch.setattr(ask, "Posterior", lambda data: asked.append(data) or Posterior(data))
    monkeypatch.setattr(Posterior, "mode", lambda self, random: np.zeros(5))
    history = [Observation(o.point, o.loss, 2.0 + n) for n, o in enumerate(tried(230))]
    history[40] = Observation(history[40].point, None, 5.0)
    history[50] = Observation(history[50].point, 1.0)
    assert ask._cost(history, ENCODING, generator()) is not None
    known = [o for number, o in enumerate(history) if number >= 30 and number not in (40, 50)]
    [data] = asked
    logs = np.log([o.seconds for o in known])
    assert data.features == pytest.approx(features(o.point for o in known))
    assert data.targets == pytest.approx(logs - logs.mean()) and data.groups.tolist() == ENCODING.groups.tolist()


def test_where_trials_failed_is_avoided_and_the_model_of_losses_knows_nothing_of_it(monkeypatch):
    history = [Observation(o.point, None if o.point["x"] > 0.6 else o.loss) for o in tried(16)]
    failed = [o.point for o in history if o.loss is None]
    looked = Looked(monkeypatch, [o.point for o in tried(4, 50)])
    ask.ask(DOMAIN, history, [], 4, 1)
    criteria = [asked["criterion"] for asked in looked.asked]
    assert [type(one) for one in criteria] == [Likely] * 4
    assert sorted(type(one.criterion).__name__ for one in criteria) == ["Bound", "Bound", "Improvement", "Improvement"]
    likely = np.exp(criteria[0].success.value(features([o.point for o in history])))
    assert (likely < 0.5).tolist() == [o.loss is None for o in history]
    assert looked.asked[0]["known"] == 16  # it believes to have seen them, as it foresaw them
    good = [o for o in history if o.loss is not None]
    alone = ask._fit(tell(DOMAIN, good).data, generator())
    seen, expected = (process.predict(features(failed))[0] for process in (criteria[0].criterion.process, alone))
    assert seen == pytest.approx(expected)


def test_without_failures_nothing_is_said_of_success(monkeypatch):
    for failures in ([False] * 5, [True] * 5):
        same = [Observation(o.point, None if failed else o.loss) for o, failed in zip(tried(5), failures, strict=True)]
        assert ask._success(same, ENCODING, generator()) is None
    monkeypatch.setattr(ask, "_success", lambda *of: pytest.fail("nothing failed"))
    assert len(ask.ask(DOMAIN, tried(8), [], 4, 1)) == 4
    assert len(ask.ask(DOMAIN, [*tried(2), Observation(tried(1, 9)[0].point, None)], [], 2, 1)) == 2


def test_fewer_than_four_known_costs_are_too_few():
    for count in range(6):
        history = [*tried(count), Observation(tried(1)[0].point, None, 3.0), Observation(tried(1)[0].point, 3.0)]
        assert (ask._cost(history, ENCODING, generator()) is None) == (count < 4)


def test_the_cost_is_the_process_of_its_most_probable_hyperparameters():
    history = tried(9)
    logs = np.log([o.seconds for o in history])
    data = Observed(features([o.point for o in history]), logs - logs.mean(), ENCODING.groups)
    expected = GaussianProcess(data, Posterior(data).mode(generator())[None])
    there = features([o.point for o in tried(3, 50)])
    assert ask._cost(history, ENCODING, generator()).predict(there)[0] == pytest.approx(expected.predict(there)[0])


@pytest.mark.parametrize("count", [2, 119, 120, 121, 300])
def test_hyperparameters_are_fitted_to_the_best_and_to_some_of_the_others(monkeypatch, count):
    asked = []
    monkeypatch.setattr(ask, "Posterior", lambda data: asked.append(data) or Posterior(data))
    monkeypatch.setattr(Posterior, "mode", lambda self, random: np.array([0.12345] * 5))
    random = np.random.default_rng(0)
    data = Observed(np.arange(3.0 * count).reshape(count, 3), random.permutation(count) * 1.0, np.array([0, 1, 2]))
    process = ask._fit(data, generator())
    [fitted] = asked
    assert process.inputs.shape[1] == count and np.log(process.amplitude) == pytest.approx([0.123])
    numbers = (fitted.features[:, 0] / 3).astype(int)
    assert (np.diff(numbers) > 0).all()  # in the order in which they were tried, each once
    assert (fitted.targets == data.targets[numbers]).all()
    if count <= 120:
        assert fitted is data
        return
    assert len(numbers) == 120 and set(range(60)) <= set(fitted.targets)
    if count == 300:
        drawn = sorted(set(fitted.targets) - set(range(60)))
        assert 90 < np.mean(drawn) < 270 and drawn[-1] > 250  # from all of them


def test_hyperparameters_are_rounded_so_that_machines_agree():
    told = tell(DOMAIN, tried(10))
    process = ask._fit(told.data, generator())
    for value in (np.log(process.amplitude[0]), np.log(process.noise[0]), *-np.log(process.scale[0])):
        assert value == pytest.approx(round(value, 3), abs=1e-9)
    mode = Posterior(told.data).mode(generator())
    assert np.log(process.noise[0]) == pytest.approx(mode[-1], abs=5.1e-4)


def test_beliefs_are_the_means_of_the_model_at_each_trial():
    history = [*tried(9), Observation(tried(1, 70)[0].point, None)]
    for neighbours in ((), (Neighbour("friend", tried(12, 30)),)):
        found = ask.predict_losses(DOMAIN, history, 4, neighbours)
        told = tell(DOMAIN, history[:9], neighbours)  # what failed is no bad value
        mode = np.round(Posterior(told.data).mode(generator(4)), 3)
        expected = GaussianProcess(told.data, mode[None]).predict(features([o.point for o in history]))[0][0]
        assert found == pytest.approx(expected) and found.shape == (10,)
        assert np.argmin(found) == min(range(9), key=lambda n: history[n].loss)
    assert ask.predict_noisy_losses(DOMAIN, history, 4) is None
    flat = [Observation(o.point, 1.0) for o in tried(9)]  # the model is told those of the neighbour alone
    friends = ask.predict_losses(DOMAIN, flat, 4, [Neighbour("friend", tried(20, 30))])
    assert friends.shape == (9,) and friends.std() > 0.1


def test_of_noisy_losses_the_better_known_one_is_better():
    chance = np.random.default_rng(3).standard_normal(31)
    points = [{"x": number / 30, "n": 5, "kind": "b"} for number in range(31)]
    history = [Observation(p, loss(p) + 0.3 * float(e)) for p, e in zip(points, chance, strict=True)]
    process = ask._fit(tell(DOMAIN, history).data, generator(4))
    mean, deviation = process.predict(features([o.point for o in history]))
    assert process.noise[0] >= ask.NOISY
    assert ask.predict_noisy_losses(DOMAIN, history, 4) == pytest.approx(mean[0] + deviation[0])


def told_of(rows, targets, own):
    return TrainingSet(Observed(np.zeros((len(rows), 1)), np.array(targets), np.array([0])), np.array(rows), own)


def test_anchors_are_the_best_three_by_the_model_and_the_best_seen():
    rows = [[number / 10, 0.5] for number in range(6)]
    told = told_of(rows, [0.0, -2.0, 1.0, 1.0, 1.0, 1.0], 6)
    anchors, fresh = ask._anchors(np.array([3.0, 2.0, 1.0, -1.0, 0.0, 5.0]), told)
    assert anchors.tolist() == [rows[3], rows[4], rows[2], rows[1]] and fresh.shape == (0, 2)
    anchors, _ = ask._anchors(np.array([3.0, -2.0, 1.0, -1.0, 0.0, 5.0]), told)
    assert anchors.tolist() == [rows[1], rows[3], rows[4]]  # each once


def test_anchors_are_also_the_best_three_of_neighbours_and_new_ones_are_candidates():
    own = [[0.1, 0.5], [0.9, 0.2]]
    others = [[0.3, 0.3], [0.1 + 0.9e-4, 0.5], [0.9, 0.2 - 1.1e-4], [0.7, 0.7], [0.1, 0.2]]
    told = told_of(own + others, [0.0] * 7, 2)
    anchors, fresh = ask._anchors(np.array([1.0, 0.5, 0.9, 0.1, 0.2, 0.8, 0.3]), told)
    assert anchors.tolist() == [own[1], own[0], others[1], others[2], others[4]]
    assert fresh.tolist() == [others[2], others[4]]  # the other one was tried here, but for rounding
    apart = told_of([[0.0, 0.5], [1e-4, 0.5]], [0.0] * 2, 1)
    assert ask._anchors(np.array([0.9, 0.1]), apart)[1].tolist() == [[1e-4, 0.5]]  # the least that is another one
    anchors, fresh = ask._anchors(np.array([0.9, 0.1, 0.2, 0.8, 0.3]), told_of(others, [0.0] * 5, 0))
    assert anchors.tolist() == fresh.tolist() == [others[1], others[2], others[4]]


def test_each_point_says_which_criterion_chose_it():
    asked = ask.ask_with_reasons(DOMAIN, tried(8), [], 4, 3)
    assert [one.point for one in asked] == ask.ask(DOMAIN, tried(8), [], 4, 3)
    assert {one.source for one in asked} == {"model"}
    assert sorted(one.how for one in asked) == [
        "expected improvement",
        "expected improvement near the best points",
        "lower bound, beta 1",
        "lower bound, beta 2.5",
    ]
    cheap = ask.ask_with_reasons(DOMAIN, tried(8), [], 4, 3, per_second=True)  # a bound has no price
    assert {one.how.removesuffix(" near the best points") for one in cheap} == {"expected improvement per second"}


def test_where_the_model_finds_nothing_new_chance_is_named(monkeypatch):
    looked = Looked(monkeypatch, [])
    monkeypatch.setattr(looked, "draw", lambda taken: {"x": 0.5, "n": 5, "kind": "a"})
    [one] = ask.ask_with_reasons(DOMAIN, tried(8), [], 1, 3)
    assert one.source == "chance" and one.how == "a random point: the model found nothing new"


LINE = domain_of(Search("bayes", SPACE[:1], (4,) * 5))


def on_a_line(objective, count=9):
    return [Observation({"x": n / (count - 1)}, objective(n / (count - 1))) for n in range(count)]


def test_what_is_foreseen_of_a_known_function_is_its_values_in_their_own_unit():
    def parabola(x):
        return 100 + 50 * (x - 0.4) ** 2  # whatever its scale and place

    history = on_a_line(parabola)
    for x in (0.3, 0.42, 0.8):
        seen = ask.foresee_loss(LINE, history, {"x": x}, parabola(x), 1)
        assert seen.mean == pytest.approx(parabola(x), abs=0.15) and seen.low < parabola(x) < seen.high
        assert abs(seen.surprise) < 2 and seen.best == pytest.approx(100.03, abs=0.1)  # at .375
    there = ask.foresee_loss(LINE, history, {"x": 0.375}, None, 1)
    assert there.surprise is None and there.high - there.low < 1 and 0 < there.improvement < 0.1


def test_a_surprise_is_counted_in_deviations_of_what_was_foreseen():
    history = on_a_line(lambda x: x + 0.05 * np.sin(40 * x), 12)
    seen = ask.foresee_loss(LINE, history, {"x": 0.21}, None, 1)
    for part, came in ((-1.959964, seen.low), (0.0, seen.mean), (1.959964, seen.high)):
        assert ask.foresee_loss(LINE, history, {"x": 0.21}, came, 1).surprise == pytest.approx(part, abs=1e-6)


def test_nothing_is_foreseen_without_values_of_ones_own_that_differ():
    friend = Neighbour("friend", tried(12, 30))
    flat = [Observation(o.point, 1.0) for o in tried(9)]
    for history in ([], tried(1), flat, [Observation(o.point, None) for o in tried(9)]):
        assert ask.foresee_loss(DOMAIN, history, tried(1)[0].point, 1.0, 1, [friend]) is None
