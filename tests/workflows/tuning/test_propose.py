"""Which trial's point comes from where: the sequence, a neighbour, a model or chance."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from regiondag.study.model import Search
from regiondag.study.space import Choice, Real, seed_of
from regiondag.tuning import skopt_method
from regiondag.tuning.domain import Domain, domain_of, identity_of
from regiondag.tuning.gp import ask, training_set
from regiondag.tuning.propose import (
    SEQUENCE_TRIES,
    count_initial_trials,
    foresee,
    propose,
    propose_with_reasons,
    rank_trials,
)
from regiondag.tuning.proposed import Proposed, Source
from regiondag.tuning.sharing import Neighbour, Observation, Shared, index_in_sequence
from regiondag.tuning.sobol import sobol_point

SPACE = (Real("x", 0.0, 1.0), Real("y", 0.0, 1.0))
SEED = 5


def search(method="bayes", trials=20, parallel=4, **more):
    return Search(method, more.pop("space", SPACE), (parallel,) * (trials // parallel), **more)


def tried(count, failed=()):
    return [
        Observation({"x": n / 64, "y": (n * 7 % 64) / 64}, None if n in failed else 1.0 + n / 8) for n in range(count)
    ]


def sobol(*numbers):
    return [domain_of(search()).in_sequence(sobol_point, number, SEED) for number in numbers]


def chance(number, taken=()):
    return domain_of(search()).random(seed_of(SEED, number), set(map(identity_of, taken)))


class Asked:
    """Plays a model: gives points that no other source does, and remembers how it was asked."""

    def __init__(self, monkeypatch, points=None):
        self.calls = []
        self.points = points if points is not None else [{"x": 2 / 3, "y": n / 11} for n in range(9)]
        monkeypatch.setattr(ask, "ask_with_reasons", self.ask_with_reasons)
        monkeypatch.setattr(skopt_method, "ask", self.ask)

    def ask(self, domain, history, pending, n, seed, *more):
        self.calls.append((domain, list(history), list(pending), n, seed, *more))
        return self.points[:n]

    def ask_with_reasons(self, *asked):
        return [Proposed(point, Source.MODEL, "played") for point in self.ask(*asked)]


@pytest.mark.parametrize("trials", [1, 4, 8, 9, 12, 16, 24, 28, 32, 36, 400])
def test_a_quarter_of_the_trials_is_spread_but_from_two_to_eight(trials):
    assert count_initial_trials(search(trials=trials, parallel=1)) == min(max(math.ceil(trials / 4), 2), 8)


@pytest.mark.parametrize("n", range(2, 9))
def test_the_first_batch_is_the_beginning_of_the_sequence(monkeypatch, n):
    asked = Asked(monkeypatch)
    points = propose(search(trials=4 * n, parallel=n), [], [], n, SEED)
    assert points == sobol(*range(n)) and asked.calls == []


def test_a_model_takes_over_after_the_trials_that_are_spread(monkeypatch):
    asked = Asked(monkeypatch)
    history, pending = tried(3, failed=(1,)), [{"x": 0.9, "y": 0.9}]
    points = propose(search(), history[:2], pending, 4, SEED)  # one success
    assert points == sobol(3, 4, 5, 6) and asked.calls == []
    points = propose(search(), history, pending, 4, SEED)  # trials 4 to 7, of which 4 is the last of five
    assert points == sobol(4) + asked.points[:3]
    [(domain, seen, waiting, n, seed, per_second, neighbours)] = asked.calls
    assert domain == domain_of(search()) and seen == history and waiting == [*pending, *sobol(4)]
    assert (n, seed, per_second, neighbours) == (3, seed_of(SEED, 4, "ask"), False, ())
    assert propose(search(), tried(5), pending, 4, SEED) == asked.points[:4]
    assert len(propose(search(), tried(4), [], 1, SEED)) == 1 and len(asked.calls) == 2  # nothing to be asked


def test_without_two_successes_all_is_spread_however_many_trials_failed(monkeypatch):
    asked = Asked(monkeypatch)
    for failed, spread in ((range(11), True), (range(12), True), (range(10), False)):
        points = propose(search(), tried(12, failed=failed), [], 4, SEED)
        assert (points == sobol(12, 13, 14, 15)) == spread and len(asked.calls) == (not spread)


def test_losses_that_are_no_numbers_are_failures(monkeypatch):
    asked = Asked(monkeypatch)
    odd = [replace(o, loss=loss) for o, loss in zip(tried(3), (math.nan, math.inf, -math.inf), strict=True)]
    assert propose(search(), odd * 4, [], 2, SEED) == sobol(12, 13)
    propose(search(), [*odd, *tried(5)[3:]], [], 2, SEED)
    [(_, seen, *_)] = asked.calls
    assert [o.loss for o in seen] == [None, None, None, 1.375, 1.5]


def test_what_a_model_may_not_propose_is_replaced_by_chance(monkeypatch):
    history, pending = tried(8), [{"x": 0.9, "y": 0.05}]
    good = {"x": 0.7, "y": 0.1}
    Asked(monkeypatch, [history[2].point, pending[0], {"x": 0.1, "y": 0.9}, good, good])
    points = propose(search(constraints=("x > y",)), history, pending, 5, SEED)
    assert points[0] == good and len(points) == 5 and len({identity_of(p) for p in points}) == 5
    assert all(p["x"] > p["y"] for p in points)
    expected = [domain_of(search(constraints=("x > y",))).random(seed_of(SEED, n), set()) for n in range(10, 14)]
    assert points[1:] == expected  # of the trials' own numbers, of which the first was the model's


def test_random_points_belong_to_their_numbers():
    assert propose(search("random"), tried(3), [{"x": 0.9, "y": 0.9}], 3, SEED) == [chance(n) for n in (4, 5, 6)]
    history = [*tried(3), Observation(chance(4), 1.0)]
    again = propose(search("random"), history, [], 1, SEED)
    assert again == [chance(4, [chance(4)])] and again != [chance(4)]


def test_a_sobol_search_is_the_sequence_from_its_first_trial_to_its_last(monkeypatch):
    asked = Asked(monkeypatch)
    assert propose(search("sobol"), tried(9), [{"x": 0.9, "y": 0.9}], 4, SEED) == sobol(10, 11, 12, 13)
    assert asked.calls == []


def test_points_of_the_sequence_that_are_illegal_or_taken_are_replaced_from_far_beyond(monkeypatch):
    seen = []
    drawn = Domain.in_sequence
    monkeypatch.setattr(Domain, "in_sequence", lambda self, of, n, seed: seen.append(n) or drawn(self, of, n, seed))
    legal = ("x + y < 0.5",)
    points = propose(search("sobol", trials=24, constraints=legal), [], [], 24, SEED)
    assert len({identity_of(p) for p in points}) == 24 and all(p["x"] + p["y"] < 0.5 for p in points)
    own = [index for index in seen if index < 24]
    assert own == list(range(24)) and len(seen) == len(set(seen)) > 40  # no point is looked at for two trials
    assert all(2**20 <= index < 2**20 + 24 * SEQUENCE_TRIES for index in seen if index >= 24)  # also in later releases
    kept = [p for p in sobol(*range(24)) if p["x"] + p["y"] < 0.5]
    assert [p for p in points if p in kept] == kept
    seen.clear()
    first = sobol(0)[0]
    [other] = propose(search("sobol"), [], [first], 1, SEED)
    assert other == sobol(1)[0]
    [other] = propose(search("sobol"), [Observation(sobol(1)[0], 1.0)], [], 1, SEED)
    assert other not in sobol(*range(100))


def test_where_the_sequence_finds_nothing_chance_does_and_says_when_there_is_no_more(monkeypatch):
    drawn, tried_ = Domain.random, []
    sequence = []
    monkeypatch.setattr(
        Domain, "in_sequence", lambda self, of, index, seed: sequence.append(index) or {"x": 0.9, "y": 0.9}
    )
    monkeypatch.setattr(Domain, "random", lambda self, seed, taken: tried_.append(seed) or drawn(self, seed, taken))
    points = propose(search("sobol", constraints=("x < 0.5",)), [], [], 2, SEED)
    assert len(points) == 2 and len(sequence) == 2 * SEQUENCE_TRIES == 128
    assert tried_ == [seed_of(SEED, number, "spread") for number in (0, 1)]
    tried_.clear()
    monkeypatch.setattr(Domain, "random", lambda self, seed, taken: tried_.append(seed))
    asked = Asked(monkeypatch)
    assert propose(search("sobol"), tried(1), [{"x": 0.9, "y": 0.9}], 3, SEED) == [] and len(tried_) == 1
    monkeypatch.setattr(Domain, "in_sequence", lambda self, of, index, seed: {"x": 0.9, "y": 0.9})
    found = propose(search(trials=32, parallel=4), tried(6), [], 4, SEED)
    assert found == [{"x": 0.9, "y": 0.9}] and asked.calls == []  # trial 7 finds no more, so nobody is asked


def test_a_space_that_is_used_up_gives_fewer_points():
    space = (Choice("kind", ("a", "b", "c")),)
    for method in ("random", "sobol", "bayes"):
        points = propose(search(method, space=space), [Observation({"kind": "b"}, 1.0)], [], 4, SEED)
        assert sorted(p["kind"] for p in points) == ["a", "c"]


def test_which_model_is_asked(monkeypatch):
    asked = Asked(monkeypatch)
    propose(search(acquisition="improvement_per_second"), tried(8), [], 2, SEED)
    assert asked.calls[-1][5:] == (True, ())
    propose(search("skopt"), tried(8), [], 2, SEED)
    assert len(asked.calls[-1]) == 5  # neither cost nor neighbours
    assert asked.calls[-1][3:5] == (2, seed_of(SEED, 8, "ask"))


def test_models_and_comparisons_work_on_one_core(monkeypatch):
    import threadpoolctl

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    now, seen = [], []

    @contextmanager
    def limits(number):
        now.append(number)
        yield
        now.pop()

    def noted(answer):
        return lambda *_: seen.append(list(now)) or answer

    monkeypatch.setattr(threadpoolctl, "threadpool_limits", limits)
    monkeypatch.setattr(ask, "ask_with_reasons", noted([]))
    monkeypatch.setattr(ask, "predict_losses", noted(None))
    monkeypatch.setattr(training_set, "compare", noted(training_set.Compared(None, ())))
    propose(search(share="warm"), tried(8), [], 2, SEED, Shared(0, (Neighbour("friend", tried(5)),)))
    monkeypatch.setattr(ask, "predict_noisy_losses", noted(None))
    rank_trials(search(winner="model"), tried(8), SEED)
    rank_trials(search(winner="auto"), tried(8), SEED)
    assert seen == [[1]] * 4 and now == []


@pytest.mark.parametrize("share", ["off", "warm", "model"])
def test_what_a_model_knows_of_others(monkeypatch, share):
    asked = Asked(monkeypatch)
    friend = Neighbour("friend", [*tried(5), Observation({"x": 0.5, "y": 0.5}, math.inf)])
    monkeypatch.setattr(training_set, "compare", lambda domain, history, neighbours: training_set.Compared(None, ()))
    propose(search(share=share), tried(9), [], 2, SEED, Shared(3, (friend,)))
    [(*_, seed, _, neighbours)] = asked.calls
    if share == "model":
        assert [n.name for n in neighbours] == ["friend"] and neighbours[0].history[5].loss is None
    else:
        assert neighbours == ()
    assert seed == seed_of(SEED, 9 if share == "off" else index_in_sequence(9, 4, 3), "ask")


def test_regions_that_share_start_in_their_block_and_then_go_on_from_it(monkeypatch):
    asked = Asked(monkeypatch)
    block = sobol(*(index_in_sequence(number, 4, 3) for number in range(16)))
    shared = Shared(3)
    assert propose(search(share="model"), [], [], 4, SEED, shared) == block[:4]
    assert propose(search(share="model"), tried(1), [], 2, SEED, shared) == block[1:3]
    failing = tried(10, failed=range(9))
    assert propose(search(share="model"), failing, [], 2, SEED, shared) == block[10:12]  # nothing is known
    assert propose(search(share="model"), tried(4), [], 4, SEED, shared) == [
        *block[5:8:2],
        *asked.points[:2],
    ]  # half of the second batch
    friends = Shared(3, (Neighbour("friend", tried(5)), Neighbour("new", ())))
    found = propose(search(share="model"), failing, [], 2, SEED, friends)
    assert found == asked.points[:2] and len(asked.calls) == 2  # others know something
    assert propose(search(share="model"), failing, [], 2, SEED, Shared(3, (Neighbour("new", ()),))) == block[10:12]


def test_without_successes_only_the_default_method_learns_from_others_alone(monkeypatch):
    asked = Asked(monkeypatch)
    friends = Shared(0, (Neighbour("friend", tried(5)),))
    for method, share, calls in (("skopt", "model", 0), ("bayes", "warm", 0), ("bayes", "model", 1)):
        points = propose(search(method, share=share), tried(9, failed=range(8)), [], 2, SEED, friends)
        assert len(points) == 2 and len(asked.calls) == calls
        if not calls and share == "model":
            numbers = [index_in_sequence(n, 4, 0) for n in (9, 10)]
            assert points == [chance(n) for n in numbers]
    assert len(propose(search("bayes", share="model"), tried(9, failed=range(7)), [], 2, SEED, friends)) == 2


def test_one_trial_of_four_is_the_best_of_the_most_similar_neighbours(monkeypatch):
    asked = Asked(monkeypatch)
    bests = [{"x": 0.31, "y": n / 16} for n in range(4)]
    neighbours = [
        Neighbour(str(n), [Observation({"x": 0.99, "y": n / 16}, 2.0), Observation(best, -1.0)])
        for n, best in enumerate(bests)
    ]
    order = [neighbours[2], neighbours[0], neighbours[2], neighbours[3]]  # two have the same best point
    compared = training_set.Compared(None, tuple((neighbour, None, 0.5) for neighbour in order))
    monkeypatch.setattr(training_set, "compare", lambda *of: compared)
    shared = Shared(1, tuple(neighbours))

    def points(first, n, pending=(), **more):
        return propose(search(trials=40, share="warm", **more), tried(first), pending, n, SEED, shared)

    assert points(8, 4) == [bests[2], *asked.points[:3]]
    assert asked.calls[-1][2] == [bests[2]] and asked.calls[-1][3] == 3
    assert points(9, 3) == asked.points[:3]  # none of 9, 10, 11
    assert points(9, 4) == [bests[2], *asked.points[:3]] and points(11, 2) == [bests[2], asked.points[0]]
    assert points(8, 8) == [bests[2], bests[0], *asked.points[:6]] and points(8, 1) == [bests[2]]
    assert points(8, 3, [bests[2]]) == asked.points[:3]  # 9, 10, 11
    assert points(7, 3, [bests[2]]) == [bests[0], *asked.points[:2]]
    history = [*tried(7), Observation(bests[2], 1.0)]
    assert propose(search(trials=40, share="warm"), history, [], 1, SEED, shared) == [bests[0]]
    assert propose(search(trials=40, share="model"), tried(8), [], 1, SEED, shared) == asked.points[:1]
    assert propose(search("random", share="warm"), tried(8), [], 1, SEED, shared) == [bests[2]]
    twelve = points(8, 16)
    assert twelve[:3] == [bests[2], bests[0], bests[3]] and bests[1] not in twelve and len(twelve) == 16
    assert propose(search(trials=40, share="warm"), tried(8), [], 1, SEED, Shared(1)) == asked.points[:1]


def test_neighbours_are_only_compared_where_a_slot_is_theirs(monkeypatch):
    Asked(monkeypatch)
    asked = []
    monkeypatch.setattr(training_set, "compare", lambda *of: asked.append(of) or training_set.Compared(None, ()))
    shared = Shared(0, (Neighbour("friend", tried(5)),))
    propose(search(share="warm"), tried(9), [], 3, SEED, shared)
    assert asked == []
    propose(search(share="warm"), tried(9), [], 4, SEED, shared)
    [(domain, history, neighbours)] = asked
    assert domain == domain_of(search()) and history == tried(9) and neighbours == shared.neighbours


def test_a_grid_gives_what_is_left_of_it():
    space = (Choice("a", ("x", "y")), Choice("b", (1, 2, 3)))
    grid = list(domain_of(search(space=space)).grid())
    found = propose(search("grid", space=space), [Observation(grid[1], None)], [grid[3]], 3, SEED)
    assert found == [grid[0], grid[2], grid[4]]


def test_trials_are_ranked_by_what_was_observed():
    history = [Observation({"x": 0.1, "y": 0.1}, loss) for loss in (3.0, None, 1.0, math.nan, 3.0, 2.0, -math.inf)]
    assert rank_trials(search(), history, 1) == [2, 5, 0, 4]


def test_or_by_what_a_model_believes(monkeypatch):
    asked = []
    believed = [0.3, -9.0, 0.1, 0.3, 0.2]
    monkeypatch.setattr(ask, "predict_losses", lambda *of: asked.append(of) or believed)
    history = [*tried(4, failed=(1,)), Observation({"x": 0.5, "y": 0.5}, math.inf)]
    friends = Shared(0, (Neighbour("friend", [*tried(2), Observation({"x": 0.5, "y": 0.5}, math.nan)]),))
    by_model = search(winner="model", share="model")
    assert rank_trials(by_model, history, 7, friends) == [2, 0, 3]
    [(domain, seen, seed, neighbours)] = asked
    assert domain == domain_of(by_model) and seen == [*history[:4], replace(history[4], loss=None)] and seed == 7
    assert [o.loss for o in neighbours[0].history] == [1.0, 1.125, None]
    for share, shared in (("model", None), ("off", friends)):
        assert rank_trials(search(winner="model", share=share), history, 7, shared) == [2, 0, 3]
        assert asked[-1][3] == ()
    monkeypatch.setattr(ask, "predict_losses", lambda *of: None)  # too little to learn from
    assert rank_trials(by_model, history, 7, friends) == [0, 2, 3]


def test_or_by_the_model_where_values_are_noisy():
    space = (Real("x", 0.0, 1.0),)
    points = [{"x": number / 60} for number in range(61)]
    true = [4 * (point["x"] - 0.4) ** 2 for point in points]

    def named(winner, chance, seed):
        noise = chance * np.random.default_rng(seed).standard_normal(61)
        history = [Observation(p, t + float(e)) for p, t, e in zip(points, true, noise, strict=True)]
        return rank_trials(search(winner=winner, space=space), history, 1)[0]

    assert all(named("auto", 0.0, seed) == named("observed", 0.0, seed) for seed in range(3))
    auto, seen = (sum(true[named(winner, 0.3, seed)] for seed in range(10)) for winner in ("auto", "observed"))
    assert auto < 0.7 * seen


def test_points_are_plain_data_of_ones_own(monkeypatch):
    asked = Asked(monkeypatch)
    points = propose(search(), tried(8), [], 2, SEED)
    points[0]["x"] = 0.0
    assert asked.points[0]["x"] == 2 / 3 and json.loads(json.dumps(points)) == points


def test_the_first_round_says_how_large_a_block_is(monkeypatch):
    Asked(monkeypatch)
    rounds = Search("bayes", SPACE, (8, 2, 3), share="model")
    block = sobol(*(index_in_sequence(number, 8, 3) for number in range(16)))
    assert propose(rounds, [], [], 8, SEED, Shared(3)) == block[:8]
    assert propose(rounds, tried(7), [], 1, SEED, Shared(3)) == block[7:8]
    assert propose(rounds, tried(9), [], 1, SEED, Shared(3)) == block[9:10]


def reasons(history, n=2, shared=None, **more):
    return [(one.source, one.how) for one in propose_with_reasons(search(**more), history, [], n, SEED, shared)]


def test_every_point_says_where_it_came_from(monkeypatch):
    Asked(monkeypatch, [{"x": 2 / 3, "y": 0.5}])
    assert reasons([]) == [("sequence", "point 1 of the Sobol sequence"), ("sequence", "point 2 of the Sobol sequence")]
    played = ("model", "played")
    assert reasons(tried(8)) == [played, ("chance", "a random point: the model had nothing to propose")]
    assert reasons([], method="random") == [("chance", "a random point: the method has no model")] * 2
    assert (
        reasons([], method="grid", space=(Real("x", 0, 1, points=3),)) == [("grid", "the next point of the grid")] * 2
    )
    skopt = [("model", "what scikit-optimize proposes by its defaults")]
    assert reasons(tried(8), 1, method="skopt") == skopt
    friend = Neighbour("friend", tried(5))
    best = reasons(
        [replace(o, point={"x": o.point["x"], "y": 0.99}) for o in tried(8)], 1, Shared(0, (friend,)), share="warm"
    )
    assert [source for source, _ in best] == ["neighbour"] and "of friend" in best[0][1]


def test_a_point_that_stands_in_for_one_of_the_sequence_is_called_so():
    found = reasons([], 8, method="sobol", constraints=("x + y < 0.5",))
    assert {source for source, _ in found} == {"sequence"} and len(set(found)) > 1
    assert ("sequence", "a point of the Sobol sequence in the place of one that is illegal or was tried") in found
    left = [how for source, how in reasons([], 3, method="sobol", space=(Choice("x", ("a", "b", "c")),))]
    assert len(left) == 3


def test_only_a_gaussian_process_foresees_anything():
    told, point = tried(12), {"x": 0.5, "y": 0.5}
    seen = foresee(search(), told, [], point, 2.0, SEED)
    assert seen.low < seen.mean < seen.high and seen == foresee(search(), told, [], point, 2.0, SEED)
    for method in ("random", "sobol", "grid", "skopt"):
        assert foresee(search(method), told, [], point, 2.0, SEED) is None
    assert foresee(search(), tried(12, failed=range(11)), [], point, 2.0, SEED) is None
