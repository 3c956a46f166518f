from dataclasses import replace

import pytest

from regiondag.config.load import load_config
from regiondag.generate.plan import Plan, RegionPlan, build_plan
from regiondag.study.model import Init, Search
from tests.workflows.conftest import STUDY, write_study


def plan_of(folder, text=STUDY):
    return build_plan(load_config(write_study(folder, text)))


def test_rounds_wait_for_each_other_and_the_final_training_for_all(tmp_path):
    plan = plan_of(tmp_path)
    germany = plan.regions[1]
    assert [str(node) for node in germany.nodes()] == [
        "germany_t0000", "germany_t0001", "germany_t0002", "germany_t0003", "germany_final",
    ]  # fmt: skip
    edges = [([str(p) for p in parents], [str(c) for c in children]) for parents, children in germany.edges()]
    assert edges == [
        (["germany_t0000", "germany_t0001"], ["germany_t0002", "germany_t0003"]),
        (["germany_t0002", "germany_t0003"], ["germany_final"]),
    ]
    assert plan.trials == 8


def test_trials_are_numbered_through_all_rounds(tmp_path):
    germany = plan_of(tmp_path).regions[1]
    search = replace(germany.region.search, sizes=(2, 3, 1))
    plan = RegionPlan(replace(germany.region, search=search))
    assert [[node.number for node in nodes] for nodes in plan.rounds()] == [[0, 1], [2, 3, 4], [5]]
    assert [search.round_of(number) for number in range(6)] == [0, 0, 1, 1, 1, 2]
    assert [node.number for node in plan.first()] == [0, 1]
    for beyond in (6, 7):
        with pytest.raises(ValueError, match="beyond the last of 6"):
            search.round_of(beyond)


def test_a_region_that_starts_from_another_ones_model_waits_for_it(tmp_path):
    plan = plan_of(tmp_path)
    other, germany = plan.regions[0], plan.regions[1]
    start = Init("neighbour", other.region.slug)
    waiting = RegionPlan(replace(germany.region, init=start))
    pairs = [(parent, list(children)) for parent, children in Plan(plan.config, (other, waiting)).starts()]
    assert pairs == [(other.final, list(germany.first()))]
    assert list(plan.starts()) == [] and not start.random and Init().random


def test_a_random_search_has_no_barrier(tmp_path):
    plan = plan_of(tmp_path, STUDY.replace("method: bayes", "method: random"))
    assert [len(parents) for parents, _ in plan.regions[0].edges()] == [4]


def test_lanes_have_no_barrier_but_the_final_training(tmp_path):
    text = STUDY.replace("method: bayes", "method: bayes\n  schedule: lanes").replace("rounds: 2", "rounds: 3")
    edges = [
        ([parent.number for parent in parents], [child.number for child in children])
        for parents, children in plan_of(tmp_path, text).regions[1].edges()
    ]
    chains = [([number], [number + 2]) for number in range(6)]  # six trials, and a node more for each lane
    assert edges == [*chains, ([6, 7], [None])]


def test_a_last_round_that_is_smaller_leaves_as_many_lanes(tmp_path):
    region = plan_of(tmp_path).regions[1].region
    plan = RegionPlan(replace(region, search=replace(region.search, sizes=(3, 1), schedule="lanes")))
    edges = [([one.number for one in parents], [one.number for one in children]) for parents, children in plan.edges()]
    assert [node.number for node in plan.first()] == [0, 1, 2]
    assert edges == [([0], [3]), ([1], [4]), ([2], [5]), ([3], [6]), ([4, 5, 6], [None])]


@pytest.mark.parametrize(
    ("sizes", "schedule", "nodes"),
    [
        ((4,) * 9, "lanes", 48),
        ((4, 4, 2), "lanes", 14),
        ((1,) * 5, "lanes", 5),
        ((4,) * 9, "rounds", 36),
        ((9,) * 11_111, "lanes", 99_999),
    ],
)
def test_lanes_have_more_nodes_than_trials(sizes, schedule, nodes):
    assert Search("bayes", (), sizes, schedule=schedule).nodes == nodes
