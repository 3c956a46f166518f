from dataclasses import replace

import pytest

from regiondag.config.load import load_config
from regiondag.generate.fresh_data import refresh_data
from regiondag.generate.plan import Plan, RegionPlan, build_plan
from regiondag.study.model import Init, Search
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.shop import STUDY as SHOP
from tests.workflows.shop import write_shop


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


def families_plan(folder, text=SHOP):
    study = write_shop(folder, text)
    refresh_data(study)
    return build_plan(load_config(study))


def named(pairs):
    return [([str(parent) for parent in parents], [str(child) for child in children]) for parents, children in pairs]


def test_the_blend_waits_for_all_rounds_and_the_final_training_for_the_blend(tmp_path):
    plan = families_plan(tmp_path)
    pooled = plan.regions[0]
    trials = [f"pooled_t{number:04d}" for number in range(9)]
    assert [str(node) for node in pooled.nodes()] == [*trials, "pooled_final"]
    assert named(pooled.edges()) == [
        (trials[:4], trials[4:8]),
        (trials[4:8], trials[8:]),
        (trials[8:], ["pooled_final"]),
    ]
    assert plan.trials == 8


def test_regions_that_are_served_have_one_node_that_waits_for_what_is_chosen(tmp_path):
    plan = families_plan(tmp_path)
    served = plan.regions[1:]
    assert [[str(node) for node in region.nodes()] for region in served] == [
        ["avon_final"], ["berg_final"], ["cove_final"], ["dale_final"],
    ]  # fmt: skip
    assert [list(region.edges()) for region in served] == [[]] * 4
    assert {(region.region.search.planned, region.region.search.last) for region in served} == {(0, -1)}
    starts = [(str(parent), [str(child) for child in children]) for parent, children in plan.starts()]
    assert starts == [("pooled_final", [f"{slug}_final"]) for slug in ("avon", "berg", "cove", "dale")]


def test_the_blend_comes_after_all_lanes(tmp_path):
    text = SHOP.replace("rounds: 2, parallel: 4", "rounds: 3, parallel: 2, schedule: lanes")
    pooled = families_plan(tmp_path, text).regions[0]
    search = pooled.region.search
    assert (search.trials, search.planned, search.nodes, search.blend, search.last) == (6, 7, 8, 8, 8)
    trials = [f"pooled_t{number:04d}" for number in range(9)]
    chains = [([trials[number]], [trials[number + 2]]) for number in range(6)]
    assert named(pooled.edges()) == [*chains, (trials[6:8], trials[8:]), (trials[8:], ["pooled_final"])]


def test_without_a_blend_the_last_round_is_the_end(tmp_path):
    pooled = families_plan(tmp_path, SHOP.replace(", blend]", "]")).regions[0]
    assert pooled.region.search.blend is None and pooled.blend() == ()
    assert (pooled.region.search.planned, pooled.region.search.last) == (8, 7)
    assert named(pooled.edges())[-1][1] == ["pooled_final"]
