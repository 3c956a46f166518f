"""Regions that learn from each other: blocks of one sequence, neighbours' best points, one model, and its guard."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real, is_legal, random_point
from regiondag.tuning.domain import domain_of
from regiondag.tuning.encoding import Encoding
from regiondag.tuning.gp.process import NOISE_CENTRE, GaussianProcess, Observed, Posterior
from regiondag.tuning.gp.similarity import estimate_noises, estimate_similarities
from regiondag.tuning.gp.training_set import EACH, compare, tell
from regiondag.tuning.propose import propose, rank_trials
from regiondag.tuning.sharing import Neighbour, Observation, Shared, index_in_sequence
from regiondag.tuning.sobol import sobol_point

SPACE = (
    Real("learning_rate", 1e-4, 1e-1, log=True),
    Integer("hidden", 8, 64, log=True),
    Choice("optimizer", ("adam", "sgd")),
    Real("momentum", 0.0, 0.9, step=0.1, when=(("optimizer", ("sgd",)),)),
)
KINDS = ("warm", "model")


def place(point):
    return (math.log10(point["learning_rate"]) + 4) / 3


def loss(point):
    return (place(point) - 0.6) ** 2 + 0.1 * (point["optimizer"] == "sgd") + 0.02 * point.get("momentum", 0)


def opposite(point):
    return -loss(point)


def search(share, trials=16, parallel=4, method="bayes"):
    return Search(method, SPACE, (parallel,) * (trials // parallel), share=share)


def tried(objective, count, start=0):
    points = [random_point(SPACE, start + number) for number in range(count)]
    return [Observation(point, objective(point)) for point in points]


def neighbours(*objectives, count=20):
    return tuple(Neighbour(str(n), tried(objective, count, 100 * n)) for n, objective in enumerate(objectives))


def identities(points):
    return {json.dumps(point, sort_keys=True) for point in points}


@pytest.mark.parametrize("share", KINDS)
def test_regions_start_on_blocks_of_one_sequence(share):
    starts = [propose(search(share), [], [], 4, 1, Shared(block)) for block in range(8)]
    assert len(identities(point for points in starts for point in points)) == 32
    parts = [int(place(point) * 32) for points in starts for point in points]
    assert sorted(parts) == list(range(32))  # together they are spread as one sequence is
    assert all(sum(place(point) < 0.5 for point in points) == 2 for points in starts)  # and each alone, too


@pytest.mark.parametrize("share", ("off", *KINDS))
def test_a_region_does_not_see_what_it_does_not_share(share):
    history = tried(loss, 8, 1000)
    alone = propose(search(share), history, [], 4, 1, Shared(3))
    beside = propose(search(share), history, [], 4, 1, Shared(3, neighbours(loss)))
    assert (alone == beside) == (share == "off")


@pytest.mark.parametrize("share", KINDS)
def test_half_of_the_second_batch_is_the_regions_own(share):
    first = propose(search(share), [], [], 4, 1, Shared(2))
    history = [Observation(point, loss(point)) for point in first]
    second = propose(search(share), history, [], 4, 1, Shared(2, neighbours(loss)))
    block = [
        domain_of(search(share)).in_sequence(sobol_point, index_in_sequence(number, 4, 2), 1) for number in range(8)
    ]
    assert first == block[:4]
    assert [point for point in second if point in block] == [block[5], block[7]]


def test_a_neighbours_best_point_has_a_slot():
    found = neighbours(loss)
    history = tried(loss, 8, 1000)
    best = min(found[0].history, key=lambda o: o.loss).point
    assert best in propose(search("warm"), history, [], 4, 1, Shared(0, found))
    assert best not in propose(search("warm"), [*history, Observation(best, 0.1)], [], 4, 1, Shared(0, found))
    assert best not in propose(search("warm"), history, [best], 4, 1, Shared(0, found))


@pytest.mark.slow
def test_a_neighbours_best_point_has_a_slot_beside_those_of_scikit_optimize():
    found = neighbours(loss)
    history = tried(loss, 8, 1000)
    best = min(found[0].history, key=lambda o: o.loss).point
    skopt = propose(search("warm", method="skopt"), history, [], 4, 1, Shared(0, found))
    assert best in skopt and len(identities(skopt)) == 4


@pytest.mark.parametrize("share", KINDS)
def test_an_earlier_run_is_where_the_first_batch_starts(share):
    earlier = Neighbour("run-1", tried(loss, 30), earlier=True)
    best = min(o.loss for o in earlier.history)
    points = propose(search(share), [], [], 4, 1, Shared(0, (earlier,)))
    assert len(identities(points)) == 4 and min(map(loss, points)) <= best + 0.01
    assert (
        sum(point in [domain_of(search(share)).in_sequence(sobol_point, n, 1) for n in (1, 3)] for point in points) == 2
    )


@pytest.mark.parametrize("share", KINDS)
@pytest.mark.parametrize(
    "useless",
    [
        Neighbour("nothing", []),
        Neighbour("one", tried(loss, 1)),
        Neighbour("failed", [Observation(o.point, None) for o in tried(loss, 9)]),
        Neighbour("not finite", [Observation(o.point, math.nan) for o in tried(loss, 9)]),
        Neighbour("other space", [Observation({"depth": 3}, 0.5)] * 9),
        Neighbour("beyond", [Observation({**o.point, "learning_rate": 7.0}, 0.5) for o in tried(loss, 9)]),
    ],
    ids=lambda n: n.name,
)
def test_neighbours_that_say_nothing_do_no_harm(share, useless):
    for history in ([], tried(loss, 1), [Observation(o.point, None) for o in tried(loss, 6)], tried(loss, 8)):
        points = propose(search(share), history, [], 4, 1, Shared(0, (useless,)))
        assert len(identities(points)) == 4
        assert all(domain_of(search(share)).has(point) for point in points)


def test_all_alike_failures_and_huge_losses_of_neighbours():
    odd = (
        Neighbour("equal", [Observation(o.point, 1.0) for o in tried(loss, 9)]),
        Neighbour("huge", [Observation(o.point, (o.loss or 0.0) * 1e300) for o in tried(loss, 9)]),
        Neighbour(
            "half failed", [Observation(o.point, o.loss if n % 2 else None) for n, o in enumerate(tried(loss, 9))]
        ),
    )
    assert len(propose(search("model"), tried(loss, 8, 50), [], 4, 1, Shared(0, odd))) == 4


def test_similar_and_opposite_families_are_told_apart():
    found = neighbours(loss, opposite, loss, opposite)
    told = tell(domain_of(search("model")), tried(loss, 8, 1000), found)
    assert told.own == 8 and len(told.rows) == 8 + 2 * EACH - 8  # 20 trials of each of the two that are alike
    assert set(np.unique(told.data.sources)) == {0, 1, 2}
    assert (told.data.similarity[1:] > 0.6).all()


def data(objective, count, start, noise=0.0):
    """Return trials of which `noise` is the part that is chance, as targets of mean 0 and deviation 1."""
    encoding = Encoding(SPACE)
    history = tried(objective, count, start)
    targets = np.array([o.loss for o in history])
    chance = np.random.default_rng(start).standard_normal(count)
    targets = math.sqrt(1 - noise) * targets / targets.std() + math.sqrt(noise) * chance
    rows = encoding.coordinates(o.point for o in history)
    return Observed(
        encoding.features(rows) * encoding.weights, (targets - targets.mean()) / targets.std(), encoding.groups
    )


def test_similarity_grows_with_what_is_known():
    few, many = data(loss, 4, 0), data(loss, 16, 0)
    alike, unlike = data(loss, 16, 500), data(opposite, 16, 900)
    early, late = (estimate_similarities(own, [alike, unlike], [False] * 2, np.full(3, 0.01)) for own in (few, many))
    assert late[0] > 0.8 > 0.2 > late[1]
    assert abs(early[0] - early[1]) < late[0] - late[1]
    assert estimate_similarities(few, [], [], np.zeros(1)).shape == (0,)
    nothing = Observed(np.zeros((0, few.features.shape[1])), np.zeros(0), few.groups)
    unknown = estimate_similarities(nothing, [alike, alike], [False, True], estimate_noises([nothing, alike, alike]))
    assert 0.4 < unknown[0] < unknown[1] < 0.9


def test_what_is_chance_is_seen_and_does_not_speak_against_a_similarity():
    regions = [data(loss, 24, 0), data(loss, 24, 500), data(loss, 24, 900, noise=0.7), data(opposite, 24, 1300)]
    chance = estimate_noises(regions)
    assert chance[2] > 0.5 > 0.1 > max(chance[0], chance[1], chance[3])
    alike, noisy, unlike = estimate_similarities(regions[0], regions[1:], [False] * 3, chance)
    assert alike > 0.8 and noisy > 0.6 and unlike < 0.2
    blind = estimate_similarities(regions[0], regions[1:], [False] * 3, np.full(4, 0.01))
    assert blind[1] < 0.3 < noisy


def test_regions_in_which_all_is_equal_learn_from_others_all_the_same():
    few, others = data(loss, 4, 0), [data(loss, 24, 500), data(loss, 24, 900)]
    before = estimate_similarities(
        replace(few, targets=np.zeros(0), features=few.features[:0]), others, [False] * 2, np.ones(3)
    )
    for count in (4, 24):
        flat = data(loss, count, 0)
        flat = replace(flat, targets=np.zeros(count))
        chance = estimate_noises([flat, *others])
        assert chance[0] > chance[1]  # nothing speaks for values without chance
        assert estimate_similarities(flat, others, [False] * 2, chance) == pytest.approx(before)
        assert (estimate_similarities(others[0], [flat], [False], chance[:2]) > 0.4).all()
    history = [Observation(o.point, 0.0) for o in tried(loss, 24, 1000)]
    by_model = replace(search("model"), winner="model")
    best = rank_trials(by_model, history, 1, Shared(0, neighbours(loss, loss)))[0]
    assert loss(history[best].point) <= sorted(loss(o.point) for o in history)[3]


def test_a_neighbour_that_is_mostly_chance_comes_last():
    rows = tried(loss, 20, 500)
    chance = 0.15 * np.random.default_rng(1).standard_normal(20)
    noisy = Neighbour("noisy", [Observation(o.point, o.loss + float(e)) for o, e in zip(rows, chance, strict=True)])
    [clear] = neighbours(loss)
    compared = compare(domain_of(search("model")), tried(loss, 20, 1000), [noisy, clear])
    assert [neighbour.name for neighbour, _, _ in compared.neighbours] == [clear.name, "noisy"]
    (_, first, _), (_, last, _) = compared.neighbours
    assert max(compared.own.noise, first.noise) < 0.2 < 0.5 < last.noise
    told = tell(domain_of(search("model")), tried(loss, 20, 1000), [noisy, clear])
    assert told.data.noises * math.exp(NOISE_CENTRE) == pytest.approx([compared.own.noise, first.noise, last.noise])
    assert told.data.scales[2] < 0.8 < told.data.scales[1]


@pytest.mark.parametrize("failed", [0, 2])
@pytest.mark.parametrize("seed", [0, 2, 3])
def test_the_winner_by_the_model_is_not_the_luckiest(seed, failed):
    true = tried(loss, 40, 1000)
    order = sorted(range(40), key=lambda number: true[number].loss)
    chance = 0.1 * np.random.default_rng(seed).standard_normal(40)
    history = [replace(o, loss=o.loss + float(e)) for o, e in zip(true, chance, strict=True)]
    lucky = order[20]
    history[lucky] = replace(history[lucky], loss=min(o.loss for o in history) - 0.02)
    for number in order[1 : 1 + failed]:
        history[number] = replace(history[number], loss=None)
    assert rank_trials(search("model"), history, 1)[0] == lucky
    for winner in ("model", "auto"):
        by_model = replace(search("model"), winner=winner)
        found = rank_trials(by_model, history, 1, Shared(0, neighbours(loss, loss)))
        assert found[0] in order[:5]
        assert len(found) == 40 - failed and not set(order[1 : 1 + failed]) & set(found)
        assert rank_trials(by_model, history, 1, Shared(0, neighbours(loss, loss))) == found


def test_what_failed_does_not_bend_the_model_that_names_the_winner():
    history = tried(loss, 16, 1000)
    failed = [Observation(o.point, None) for o in tried(loss, 4, 2000)]
    by_model = replace(search("model"), winner="model")
    shared = Shared(0, neighbours(loss))
    assert rank_trials(by_model, [*history, *failed], 1, shared) == rank_trials(by_model, history, 1, shared)


@pytest.mark.parametrize("winner", ["observed", "model", "auto"])
def test_a_winner_of_few_or_failed_trials(winner):
    by = replace(search("model"), winner=winner)
    assert rank_trials(by, [], 1) == []
    failed = [Observation(o.point, loss) for o, loss in zip(tried(loss, 3), (None, math.nan, math.inf), strict=True)]
    assert rank_trials(by, failed, 1, Shared(0, neighbours(loss))) == []
    [one] = tried(loss, 1)
    assert rank_trials(by, [one], 1) == [0]
    assert rank_trials(by, [*failed, one], 1) == [3]


def test_the_model_of_several_sources_is_the_textbooks():
    own, other = data(loss, 6, 0), data(loss, 5, 50)
    both = Observed(
        np.concatenate([own.features, other.features]),
        np.concatenate([own.targets, other.targets]),
        own.groups,
        np.repeat([0, 1], [6, 5]),
        np.array([1.0, 0.7]),
        scales=np.array([1.0, 0.5]),
        noises=np.array([3.0, 9.0]),
    )
    theta = np.array([[*[-0.3] * own.parameters, 0.2, -4.0]])
    scale = np.exp(-theta[0, :-2])[both.groups]

    def kernel(left, right):
        distance = math.sqrt(5) * np.linalg.norm((left[:, None] - right[None]) * scale, axis=2)
        return math.exp(0.2) * (1 + distance + distance**2 / 3) * np.exp(-distance)

    covariance = kernel(both.features, both.features)
    covariance[:6, 6:] *= 0.7 * 0.5
    covariance[6:, :6] *= 0.7 * 0.5
    covariance[6:, 6:] *= 0.5**2
    covariance += np.diag(np.repeat([3.0, 9.0], [6, 5]) * math.exp(-4) + 1e-8)
    there = own.features[:3] * 0.9 + 0.05
    cross = kernel(there, both.features) * np.repeat([1.0, 0.7 * 0.5], [6, 5])
    means, deviations = GaussianProcess(both, theta).predict(there)
    assert means[0] == pytest.approx(cross @ np.linalg.solve(covariance, both.targets))
    rest = math.exp(0.2) - np.einsum("ij,ji->i", cross, np.linalg.solve(covariance, cross.T))
    assert deviations[0] == pytest.approx(np.sqrt(rest))
    believed = GaussianProcess(both, theta)
    believed.believe(there[:1])
    seen = rest[0] + 3.0 * math.exp(-4) + 1e-8  # a believed point has the noise of the region's own
    assert believed.predict(there[:1])[1][0] == pytest.approx(np.sqrt(rest[0] - rest[0] ** 2 / seen))
    energy, gradient = Posterior(both).energy_and_gradient(theta)
    moves = np.eye(theta.shape[1]) * 1e-5
    ups, downs = (Posterior(both).energy(theta + sign * moves) for sign in (1, -1))
    assert gradient[0] == pytest.approx((ups - downs) / 2e-5, rel=1e-4, abs=1e-4)
    assert energy[0] == pytest.approx(Posterior(both).energy(theta)[0])


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    own=st.integers(0, 10),
    n=st.integers(1, 5),
    share=st.sampled_from(KINDS),
    seed=st.integers(0, 99),
)
def test_legal_different_and_the_same_again(counts, own, n, share, seed):
    found = tuple(Neighbour(str(k), tried(loss, count, 50 * k), k == 0) for k, count in enumerate(counts))
    history = tried(loss, own, 5000)
    points = propose(search(share), history, [], n, seed, Shared(seed, found))
    assert points == propose(search(share), history, [], n, seed, Shared(seed, found))
    assert len(identities([*points, *(o.point for o in history)])) == n + own
    assert all(domain_of(search(share)).has(point) for point in points)


@given(st.integers(0, 10**6))
def test_points_of_a_space_are_legal_there_and_others_are_not(seed):
    domain = domain_of(search("off"))
    point = random_point(SPACE, seed)
    assert domain.has(point) and domain.has(json.loads(json.dumps(point)))
    assert not domain.has({**point, "hidden": 65}) and not domain.has({**point, "hidden": 32.0})
    assert not domain.has({**point, "optimizer": "other"}) and not domain.has({"hidden": 32})
    assert domain.has({**point, "optimizer": "adam"}) == ("momentum" not in point)
    assert not is_legal(SPACE[3], 0.25) and is_legal(SPACE[3], 0.3) and not is_legal(SPACE[3], True)
