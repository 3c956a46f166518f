from __future__ import annotations

import json
import re

import pytest

from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from regiondag.generate.plan import build_plan
from regiondag.study.init import choose_init, describe_init
from regiondag.study.model import Init
from tests.workflows.config.test_load import HOSTILE, problems_of
from tests.workflows.conftest import STUDY, write_region, write_study

THREE = STUDY.replace("network:", "  - {name: Malta, data: data/malta.nc}\nnetwork:", 1)


def study_of(folder, text):
    (folder / "data").mkdir(parents=True)
    write_region(folder / "data", "malta", users=3)
    return write_study(folder, text)


def starts_of(config):
    return {region.name: region.init for region in config.regions}


def test_every_region_starts_from_random_unless_told(study_file):
    assert set(starts_of(load_config(study_file)).values()) == {Init()}


def test_a_neighbour_by_its_name(tmp_path):
    text = THREE.replace("malta.nc}", "malta.nc, init: neighbour, neighbour: United Kingdom}")
    config = load_config(study_of(tmp_path, text))
    assert starts_of(config) == {
        "United Kingdom": Init(), "Germany": Init(), "Malta": Init("neighbour", "united-kingdom"),
    }  # fmt: skip
    assert list(describe_init(config, config)) == ["trainings start from the champion of United Kingdom: Malta"]


def test_the_neighbour_of_a_whole_study_starts_from_random_itself(tmp_path):
    config = load_config(study_of(tmp_path, THREE + "init: neighbour\nneighbour: Germany\n"))
    assert starts_of(config) == {
        "United Kingdom": Init("neighbour", "germany"), "Germany": Init(), "Malta": Init("neighbour", "germany"),
    }  # fmt: skip


def test_without_a_name_the_neighbour_is_the_largest_region(tmp_path):
    config = load_config(study_of(tmp_path, THREE + "init: neighbour\n"))
    assert set(starts_of(config).values()) == {Init("neighbour")}
    chosen = choose_init(config, {"united-kingdom": 40, "germany": 900, "malta": 3}, ())
    assert starts_of(chosen) == {
        "United Kingdom": Init("neighbour", "germany"), "Germany": Init(), "Malta": Init("neighbour", "germany"),
    }  # fmt: skip


def test_a_neighbour_may_be_a_region_that_was_told_to_start_from_random(tmp_path):
    text = THREE.replace("germany.nc}", "germany.nc, init: random}") + "init: neighbour\n"
    chosen = choose_init(load_config(study_of(tmp_path, text)), {"germany": 9, "united-kingdom": 8, "malta": 3}, ())
    assert {start.source for start in starts_of(chosen).values()} == {"", "germany"}
    assert starts_of(chosen)["Germany"] == Init()


def test_the_region_of_all_data_is_nobodys_neighbour(tmp_path):
    text = THREE.replace("germany.nc}", "germany.nc, init: pooled}") + "init: neighbour\n"
    chosen = choose_init(load_config(study_of(tmp_path, text)), {"pooled": 99, "united-kingdom": 8, "malta": 3}, ())
    assert starts_of(chosen)["Malta"] == Init("neighbour", "united-kingdom")


def test_champions_are_there_or_not(tmp_path):
    config = load_config(study_of(tmp_path, THREE + "init: champion\n"))
    chosen = choose_init(config, {}, {"germany"})
    assert list(describe_init(config, chosen)) == [
        "trainings start from random: no champion yet: United Kingdom, Malta",
        "trainings start from their own champions: Germany",
    ]
    assert starts_of(chosen) == {
        "United Kingdom": Init(), "Germany": Init("champion"), "Malta": Init(),
    }  # fmt: skip


POOLED = "init: pooled\npooled: {search: {rounds: 1}, job: {memory: 1GB}, train: {batch: 8}}\n"


def test_pooled_adds_a_region_of_all_data(tmp_path):
    text = THREE.replace("germany.nc}", "germany.nc, init: random}") + POOLED
    uk, germany, malta, pooled = load_config(study_of(tmp_path, text)).regions
    assert uk.init == malta.init == Init("pooled", "pooled") and germany.init == pooled.init == Init()
    assert (pooled.name, pooled.slug, pooled.data) == ("pooled", "pooled", {})
    assert pooled.merged == {
        part: tuple(region.data[part] for region in (uk, germany, malta)) for part in ("train", "valid", "test")
    }
    assert pooled.search.sizes == (2,) and uk.search.sizes == (2, 2)
    assert (pooled.job.memory, pooled.train.batch) == (1 << 30, 8) and uk.train.batch == 4


def test_what_others_start_from_has_seen_no_validation_data(tmp_path):
    uk, *_, pooled = load_config(study_of(tmp_path, THREE + POOLED)).regions
    assert pooled.final_parts == ("train",) and uk.final_parts == ("final",)


def test_a_file_of_two_regions_is_pooled_once(tmp_path):
    text = THREE.replace("data/malta.nc", "data/germany.nc") + POOLED
    pooled = load_config(study_of(tmp_path, text)).regions[-1]
    assert [path.name for path in pooled.merged["train"]] == ["uk.train.nc", "germany.train.nc"]


MALTA = "malta.nc}"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({MALTA: "malta.nc, init: neighbor}"}, [":5: regions[2].init: seen 'neighbor'", "did you mean 'neighbour'"]),
        ({MALTA: "malta.nc, init: neighbour, neighbour: Germoney}"},
         ["regions[2].neighbour: seen 'Germoney', which is no region; did you mean 'Germany'?",
          "legal: a region that starts from random: United Kingdom, Germany"]),
        ({MALTA: "malta.nc, init: neighbour, neighbour: Malta}"}, ["which is the region itself", "United Kingdom"]),
        ({MALTA: "malta.nc, init: neighbour, neighbour: Germany}", "germany.nc}": "germany.nc, init: champion}"},
         ["regions[2].neighbour: seen 'Germany'", "but from champion; legal: a region that starts from random: U"]),
        ({MALTA: "malta.nc, init: neighbour, neighbour: Germany}",
          "germany.nc}": "germany.nc, init: neighbour, neighbour: Malta}"}, ["but from neighbour; legal: "]),
        ({MALTA: "malta.nc, neighbour: Germany}"}, ["regions[2].neighbour: is used by init: neighbour only"]),
        ({"job:": "neighbour: Germany\njob:"}, [": neighbour: is used by init: neighbour only, and no region has"]),
        ({"job:": "init: champion\njob:", MALTA: "malta.nc, init: neighbour}"},
         ["regions[2].init: there is no neighbour: no other region starts from random"]),
        ({"job:": "pooled: {}\njob:"}, [": pooled: no region has init: pooled"]),
        ({"job:": "init: pooled\npooled: {network: x}\njob:"}, [": pooled.network: unknown key", "search, train"]),
        ({"job:": "init: pooled\npooled: 3\njob:"}, [": pooled: seen 3, legal: a mapping"]),
        ({"job:": "init: pooled\npooled: {search: {rounds: many}}\njob:"}, [": pooled.search.rounds: seen 'many'"]),
        ({"job:": "init: pooled\njob:", "name: Malta": "name: Pooled"},
         ["regions[2].name: seen 'Pooled', which is what all regions together are called; rename yours"]),
        ({MALTA: "malta.nc, init: [pooled]}"}, ["regions[2].init: seen ['pooled']"]),
    ],
)  # fmt: skip
def test_mistakes(tmp_path, changes, words):
    text = THREE
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    write_region((tmp_path / "data").mkdir() or tmp_path / "data", "malta")
    problem = problems_of(tmp_path, text)[-1]
    assert all(word in problem for word in words), problem


def test_a_region_may_be_called_pooled_where_nothing_is(tmp_path):
    config = load_config(study_of(tmp_path, THREE.replace("name: Malta", "name: pooled")))
    assert [region.name for region in config.regions] == ["United Kingdom", "Germany", "pooled"]


@pytest.mark.parametrize("name", HOSTILE)
def test_neighbours_of_any_name(tmp_path, name):
    text = THREE.replace("name: Germany", f"name: {json.dumps(name)}")
    text = text.replace(MALTA, f"malta.nc, init: neighbour, neighbour: {json.dumps(name)}}}")
    try:
        config = load_config(study_of(tmp_path, text))
    except ConfigError as error:
        assert any("regions[1].name" in problem for problem in error.problems)
        return
    assert config.regions[2].init == Init("neighbour", config.regions[1].slug)
    [(parent, _)] = build_plan(config).starts()
    assert re.fullmatch(r"[a-z0-9-]+_final", str(parent))


@pytest.mark.parametrize("schedule", ["rounds", "lanes"])
def test_first_trials_wait_for_the_neighbours_final_training(tmp_path, schedule):
    text = THREE.replace("method: bayes", f"method: bayes\n  schedule: {schedule}")
    text = text.replace(MALTA, "malta.nc, init: neighbour, neighbour: Germany}")
    starts = build_plan(load_config(study_of(tmp_path, text))).starts()
    edges = [(str(parent), [str(node) for node in nodes]) for parent, nodes in starts]
    assert edges == [("germany_final", ["malta_t0000", "malta_t0001"])]


def test_all_that_start_from_the_pooled_model_wait_for_it(tmp_path):
    plan = build_plan(load_config(study_of(tmp_path, THREE + POOLED)))
    assert [str(parent) for parent, _ in plan.starts()] == ["pooled_final"] * 3
    assert plan.trials == 3 * 4 + 2


def test_a_model_from_a_file(tmp_path):
    text = THREE.replace("germany.nc}", "germany.nc, init: random}") + "init: {model: models/body.nc}\n"
    study = study_of(tmp_path, text)
    with pytest.raises(ConfigError, match=r"init: .*models/body.nc is no file; legal: the path of a model file"):
        load_config(study)
    (tmp_path / "models").mkdir()
    (tmp_path / "models/body.nc").write_bytes(b"a model")
    config = load_config(study)
    body = Init("model", model=str(tmp_path.resolve() / "models/body.nc"))
    assert starts_of(config) == {"United Kingdom": body, "Germany": Init(), "Malta": body}
    chosen = choose_init(config, {}, ())
    assert list(describe_init(config, chosen)) == ["trainings start from the model body.nc: United Kingdom, Malta"]
    plan = build_plan(config)
    assert list(plan.starts()) == []  # no region waits for another


@pytest.mark.parametrize("value", ["{model: 3}", "{file: body.nc}", "{model: body.nc, more: 1}", "body.nc", "[model]"])
def test_what_is_no_start(tmp_path, value):
    with pytest.raises(
        ConfigError, match=r"init: seen .* legal: random, champion, neighbour, pooled, or {model: FILE}"
    ):
        load_config(study_of(tmp_path, THREE + f"init: {value}\n"))
