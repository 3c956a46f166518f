import re
from dataclasses import replace
from pathlib import Path

import pytest

from nnlib.contract import Metric
from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from regiondag.study.space import Choice, Integer, Real
from tests.workflows.conftest import STUDY, write_region, write_study


def problems_of(folder, text):
    with pytest.raises(ConfigError) as caught:
        load_config(write_study(folder, text))
    return caught.value.problems


def test_defaults_and_sections(study_file):
    config = load_config(study_file)
    assert config.name == "tiny"
    uk, germany = config.regions
    assert (uk.name, uk.slug) == ("United Kingdom", "united-kingdom")
    assert uk.metric == Metric("ndcg@5")
    assert uk.search.sizes == (2, 2)
    assert uk.search.space == (Integer("hidden", 2, 8, True), Real("learning_rate", 1e-3, 1e-1, True))
    assert uk.train.epochs == 2 and uk.train.optimizer == "adam"
    assert germany.job.memory == 256 << 20
    assert config.limits.jobs == 8
    assert set(uk.data) == {"train", "valid", "final", "test"}


def test_a_region_overrides_any_section(tmp_path):
    text = STUDY.replace(
        "{name: Germany, data: data/germany.nc}",
        "{name: Germany, data: data/germany.nc, minimize: loss, train: {epochs: 9}, job: {memory: 2GB},\n"
        "     search: {rounds: 5, space: {hidden: 4}}}",
    )
    uk, germany = load_config(write_study(tmp_path, text)).regions
    assert germany.search.sizes == (2,) * 5 and uk.search.sizes == (2, 2)
    assert germany.search.space[0] == Choice("hidden", (4,))
    assert germany.search.space[1] == uk.search.space[1]
    assert germany.train.epochs == 9 and germany.train.batch == 4 and uk.train.epochs == 2
    assert germany.job.memory == 2 << 30 and germany.job.cpus == 1
    assert germany.metric == Metric("loss", minimize=True) and uk.metric == Metric("ndcg@5")


def test_regions_from_files(tmp_path):
    text = re.sub(r"regions:.*?(?=network:)", "regions: {from: data/*.nc}\n", STUDY, flags=re.DOTALL)
    assert [region.name for region in load_config(write_study(tmp_path, text)).regions] == ["germany", "uk"]


def test_regions_that_nobody_is_asked_in_are_not_taken_from_files(tmp_path):
    text = re.sub(r"regions:.*?(?=network:)", "regions: {from: data/*.nc}\n", STUDY, flags=re.DOTALL)
    study = write_study(tmp_path, text)
    for region in ("germany", "uk"):
        (tmp_path / "data" / f"{region}.all.nc").touch()
    assert [region.name for region in load_config(study).regions] == ["germany", "uk"]
    (tmp_path / "data" / "uk.test.nc").unlink()
    assert [region.name for region in load_config(study).regions] == ["germany"]


@pytest.mark.parametrize("pattern", ["data/*.nc", "../here/data/*.nc"])
def test_files_are_found_beside_a_study_that_is_given_by_a_relative_path(tmp_path, monkeypatch, pattern):
    text = re.sub(r"regions:.*?(?=network:)", f"regions: {{from: {pattern}}}\n", STUDY, flags=re.DOTALL)
    write_study(tmp_path / "here", text)
    monkeypatch.chdir(tmp_path)
    config = load_config(Path("here/study.yaml"))
    assert [region.name for region in config.regions] == ["germany", "uk"]
    assert all(file.is_file() for region in config.regions for file in region.data.values())


def test_grid_counts_its_points_and_a_region_may_leave_the_rounds(tmp_path):
    space = "{hidden: {choice: [2, 4]}, learning_rate: {real: [1e-3, 1e-1], log: true, points: 3}}"
    text = STUDY.replace("data/germany.nc}", f"data/germany.nc, search: {{method: grid, space: {space}}}}}")
    uk, germany = load_config(write_study(tmp_path, text)).regions
    assert germany.search.sizes == (6,)
    assert uk.search.method == "bayes"


@pytest.mark.parametrize("method", ["random", "sobol"])
def test_searches_that_do_not_learn_wait_for_nobody(tmp_path, method):
    text = STUDY.replace("method: bayes", f"method: {method}")
    assert load_config(write_study(tmp_path, text)).regions[0].search.sizes == (4,)


@pytest.mark.parametrize("key", ["budget: 1h", "prune: asha", "prune: median"])
@pytest.mark.parametrize("method", ["random", "sobol"])
def test_searches_that_do_not_learn_keep_their_rounds_where_something_depends_on_what_ended(tmp_path, method, key):
    text = STUDY.replace("method: bayes", f"method: {method}\n  {key}").replace("epochs: 2", "epochs: 4")
    assert load_config(write_study(tmp_path, text)).regions[0].search.sizes == (2, 2)


@pytest.mark.parametrize("key", ["budget: 1h", "prune: asha"])
def test_a_grid_has_no_budget_and_prunes_nothing(tmp_path, key):
    space = "{hidden: {choice: [2, 4]}, learning_rate: 0.01}"
    study = STUDY.replace("epochs: 2", "epochs: 4")
    own = study.replace("data/germany.nc}", f"data/germany.nc, search: {{method: grid, {key}, space: {space}}}}}")
    [problem] = problems_of(tmp_path, own)
    assert "proposed before any" in problem and key.partition(":")[0] in problem
    above = study.replace("method: bayes", f"method: bayes\n  {key}")
    above = above.replace("data/germany.nc}", f"data/germany.nc, search: {{method: grid, space: {space}}}}}")
    search = load_config(write_study(tmp_path, above)).regions[1].search
    assert (search.budget, search.prune) == (0, "none")


def test_conditions_steps_and_constraints(tmp_path):
    space = """\
    hidden: {int: [2, 8], step: 2, when: {optimizer: adam}, default: 5}
    optimizer: {choice: [adam, sgd, momentum]}
    momentum: {real: [0, 0.9], step: 0.3, when: {optimizer: [sgd, momentum], batch: 4}}
    batch: {int: [4, 5]}
"""
    more = 'constraints: ["hidden != 4"]\n  acquisition: improvement_per_second\n  give_up_after: 0'
    text = STUDY[: STUDY.index("    hidden:")].replace("rounds: 2", more) + space
    search = load_config(write_study(tmp_path, text)).regions[0].search
    assert (search.constraints, search.acquisition, search.give_up_after) == (
        ("hidden != 4",), "improvement_per_second", 0
    )  # fmt: skip
    when = (("optimizer", ("sgd", "momentum")), ("batch", (4,)))
    assert search.space[2] == Real("momentum", 0.0, 0.9, step=0.3, when=when)


def test_a_search_has_no_more_trials_than_its_space_has_points(tmp_path):
    space = "    hidden: {int: [2, 8], step: 2, when: {optimizer: adam}, default: 5}\n"
    space += "    optimizer: {choice: [adam, sgd]}\n"
    head = STUDY[: STUDY.index("    hidden:")]
    search = load_config(write_study(tmp_path, head.replace("rounds: 2", "rounds: 9") + space)).regions[0].search
    assert search.sizes == (2, 2, 1)
    assert search.space[0] == Integer("hidden", 2, 8, step=2, when=(("optimizer", ("adam",)),), default=5)
    grid = (
        head.replace("method: bayes\n  rounds: 2\n  parallel: 2", 'method: grid\n  constraints: ["hidden != 4"]')
        + space
    )
    assert load_config(write_study(tmp_path, grid)).regions[0].search.sizes == (4,)
    wide = space.replace("[2, 8], step: 2", "[1, 9000000]")
    assert any("before constraints" in p for p in problems_of(tmp_path, grid.replace(space, wide)))


def test_all_mistakes_at_once_each_with_its_place(tmp_path):
    text = STUDY.replace("rounds: 2", "roundz: 2").replace("[2, 8]", "[8, 2]").replace("epochs: 2", "epochs: two")
    text = text.replace("data/germany.nc", "data/nowhere.nc").replace("memory: 256MB", "memory: 256")
    found = problems_of(tmp_path, text)
    file = re.escape(str(tmp_path / "study.yaml"))
    expected = [
        rf"{file}:4: regions\[1\].data: seen 'data/nowhere.nc', but there is no file .*nowhere.train.nc, "
        r"\.valid\.nc, \.test\.nc; `nnlib import` writes such sets; there is: .*data/germany.nc, .*data/uk.nc",
        rf"{file}:7: train.epochs: seen 'two', legal: a whole number from 1",
        rf"{file}:10: search.roundz: unknown key; did you mean 'rounds'\? Legal keys: .*parallel",
        rf"{file}:13: search.space.hidden.int: seen \[8, 2\] \(low must be smaller than high\), legal: ",
        rf"{file}:15: job.memory: seen 256, legal: a size such as 512MB",
    ]
    for pattern in expected:
        assert any(re.match(pattern, problem) for problem in found), (pattern, found)
    assert len(found) == 5  # that three files of one region are missing is one mistake


HIDDEN = "hidden: {int: [2, 8], log: true}"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("method: bayes", "method: bays", ["search.method", "'bays'", "did you mean 'bayes'"]),
        ("method: bayes", "method: bayes\n  schedule: loops", ["search.schedule", "legal: rounds or lanes"]),
        ("method: bayes", "method: bayes\n  prune: all", ["search.prune", "legal: none, median or asha"]),
        ("method: bayes", "method: bayes\n  budget: 3", ["search.budget", "a duration such as"]),
        ("metric: ndcg@5", "metric: ndgc@5", ["metric: seen 'ndgc@5', legal: p@K, recall@K, ndcg@K"]),
        ("metric: ndcg@5", "metric: ndcg@5\nminimize: loss", ["minimize", "give one of the two"]),
        ("hidden: {int: [2, 8], log: true}", "hidden: {int: [0, 8], log: true}", ["hidden.int", "above 0"]),
        ("hidden: {int: [2, 8], log: true}", "hiden: {int: [2, 8]}", ["nothing uses 'hiden'", "did you mean 'hidden'"]),
        ("hidden: {int: [2, 8], log: true}", "hiden: {int: [2, 8]}", ["$hidden is not in search.space"]),
        ("hidden: {int: [2, 8], log: true}", "hidden: {choice: []}", ["hidden.choice", "seen []"]),
        ("hidden: {int: [2, 8], log: true}", "hidden: {int: [2, 8], real: [1, 2]}", ["search.space.hidden", "legal"]),
        (HIDDEN, "hidden: {int: [2, 8], step: 4}", ["hidden.step", "6 is the last one below"]),
        (HIDDEN, "hidden: {int: [2, 8], step: 2, points: 3}", ["hidden.points", "stands beside `step`"]),
        (HIDDEN, "hidden: {int: [2, 8], when: {learning_rate: 1}, default: 4}",
         ["when.learning_rate", "a real number"]),
        (HIDDEN, "hidden: {int: [2, 8], when: {optimiser: adam}, default: 4}\n    optimizer: {choice: [adam, sgd]}",
         ["hidden.when.optimiser", "did you mean 'optimizer'"]),
        (HIDDEN, "hidden: {int: [2, 8], when: {optimizer: adma}, default: 4}\n    optimizer: {choice: [adam, sgd]}",
         ["hidden.when.optimizer", "seen 'adma'", "adam, sgd"]),
        (HIDDEN, "hidden: {int: [2, 8], when: {optimizer: sgd}}\n    optimizer: {choice: [adam, sgd]}",
         ["search.space.hidden", "add default"]),
        (HIDDEN, "hidden: {int: [2, 8], default: 4}", ["hidden.default", "only a parameter with `when`"]),
        (HIDDEN, "hidden: {int: [2, 8]}\n    momentum: {real: [0, 0.9], when: {hidden: [9]}}",
         ["when.hidden", "2 to 8"]),
        (HIDDEN, "hidden: {int: [2, 8]}\n    momentum: {real: [0, 0.9], when: {hidden: [8]}, default: 0}",
         ["momentum.default", "takes its value from `train`"]),
        (HIDDEN, "hidden: {int: [2, 8], when: {batch: 4}, default: 4}\n    batch: {choice: [4, 8], when: {hidden: 4}}",
         ["when", "depends on itself"]),
        ("rounds: 2", "constraints: [hidden * lerning_rate < 1]",
         ["search.constraints[0]", "did you mean 'learning_rate'"]),
        ("rounds: 2", "constraints: [hidden > 1, hidden.real > 3]",
         ["search.constraints[1]", "not allowed", "legal: a comparison"]),
        ("rounds: 2", "constraints: [hidden > 8]", ["search.constraints[0]", "no point of search.space satisfies"]),
        ("rounds: 2", "constraints: [hidden > 4, hidden < 3]", ["search.constraints", "satisfies all of them"]),
        ("rounds: 2", "constraints: [hidden > 'a']", ["search.constraints[0]", "not supported between"]),
        ("rounds: 2", "constraints: hidden > 3", ["search.constraints", "a list of texts"]),
        ("rounds: 2", "acquisition: ei", ["search.acquisition", "improvement or improvement_per_second"]),
        ("rounds: 2", "give_up_after: -1", ["search.give_up_after", "a whole number from 0"]),
        ("[1e-3, 1e-1]", "[.nan, 1]", ["learning_rate.real", "finite"]),
        ("[1e-3, 1e-1]", "[-1, 1e-1]", ["learning_rate"]),
        ("[1e-3, 1e-1]", "[1e-160, 1e160]", ["learning_rate.real", "300 decades"]),
        ("learning_rate: {real: [1e-3, 1e-1], log: true}", "optimizer: {choice: [adam, adamx]}", ["'adamx'"]),
        ("job: {cpus: 1", "job: {requirements: TARGET.GPUs > 1, cpus: 1", ["job.requirements", "mentions GPUs"]),
        ("job: {cpus: 1", "job: {memory_max: 1MB, cpus: 1", ["memory_max", "not larger"]),
        ("job: {cpus: 1", "job: {deadline: 2, cpus: 1", ["job.deadline", "90s, 30m"]),
        ("job: {cpus: 1", "job: {deadline: 0, cpus: 1", ["job.deadline", "90s, 30m"]),
        ("job: {cpus: 1", "job: {checkpoint: 30, cpus: 1", ["job.checkpoint", "seen 30", "1d, or 0"]),
        ("job: {cpus: 1", "job: {checkpoint: false, cpus: 1", ["job.checkpoint", "seen False", "1d, or 0"]),
        ("job: {cpus: 1", "job: {idle_limit: forever, cpus: 1", ["job.idle_limit", "seen 'forever'"]),
        ("limits: {jobs: 8", "limits: {deadline: 20, jobs: 8", ["limits.deadline", "seen 20", "90s, 30m"]),
        ("job: {cpus: 1, memory: 256MB", "job: {cpus: 1, memory: 500KB", ["job.memory", "at least 1MB"]),
        ("metric: ndcg@5", "metric: loss", ["metric", "minimize: loss"]),
        ("metric: ndcg@5", "minimize: ndcg@5", ["minimize", "metric: ndcg@20"]),
        ("study: tiny", "study: a b", ["study", "'a b'"]),
        ("name: Germany", "name: United Kingdom", ["regions[1].name", "second time"]),
        ("name: Germany", "name: united-kingdom", ["regions[1].name", "rename one"]),
        ("name: Germany", "title: Germany", ["regions[1]", "title", "unknown key"]),
        ("name: Germany", "name: Germany, limits: {jobs: 1}", ["regions[1].limits", "unknown key"]),
        ("network: network.json", "network: nowhere.json", ["network", "nowhere.json"]),
        ("network: network.json", "", ["search.space.hidden", "is of no family but a network, and there is none"]),
        ("rounds: 2", "rounds: 100000", ["search.rounds"]),
        ("rounds: 2", "rounds: true", ["search.rounds", "seen True"]),
        ("job: {cpus: 1, memory: 256MB, disk: 100MB}", "job: 3", ["job", "seen 3", "mapping"]),
    ],
)  # fmt: skip
def test_one_mistake(tmp_path, old, new, words):
    assert old in STUDY
    found = problems_of(tmp_path, STUDY.replace(old, new))
    assert any(all(word in problem for word in words) for problem in found), found


def test_a_number_and_a_file_name_that_are_too_large_are_mistakes(tmp_path):
    text = STUDY.replace("batch: 4", f"learning_rate: {'9' * 400}").replace("data/germany.nc", "x" * 300)
    name, rate = problems_of(tmp_path, text)
    assert ":4: regions[1].data: seen 'xxx" in name and "File name too long" in name and "legal: the region's" in name
    assert ":7: train.learning_rate: seen 999" in rate and rate.endswith("legal: a number from 1e-12 to 1e+06")


@pytest.mark.parametrize("text", ["regions: []\nnetwork: network.json", "- a\n", "3\n", "regions: 3\nnetwork: n\n"])
def test_no_study(tmp_path, text):
    assert problems_of(tmp_path, text)


@pytest.mark.parametrize("spelling", ["P@5", "p@5", "precision@5"])
def test_metrics_are_stored_as_results_spell_them(tmp_path, spelling):
    config = load_config(write_study(tmp_path, STUDY.replace("ndcg@5", spelling)))
    assert config.regions[0].metric == Metric("p@5")


def test_the_network_is_tried_at_both_ends_of_every_range(tmp_path):
    text = STUDY.replace("    learning_rate:", "    dropout: {real: [0.1, 1.5]}\n    learning_rate:")
    study = write_study(tmp_path, text)
    network = tmp_path / "network.json"
    network.write_text(network.read_text().replace('"N": "$hidden"', '"N": "$hidden", "pDropout": "$dropout"'))
    with pytest.raises(ConfigError, match=r"search.space.dropout: dropout = 1.5: .*pDropout"):
        load_config(study)


@pytest.mark.parametrize(
    ("method", "key", "word"),
    [("grid", "rounds: 3", "as many trials as the space has points"), ("sobol", "share: model", "legal with method")],
)
def test_a_key_that_the_method_further_up_has_no_use_for_is_a_mistake(tmp_path, method, key, word):
    study = STUDY.replace("method: bayes\n  rounds: 2\n  parallel: 2", f"method: {method}")
    for range_, values in (("{int: [2, 8], log: true}", "[2, 8]"), ("{real: [1e-3, 1e-1], log: true}", "[0.1, 0.01]")):
        study = study.replace(range_, f"{{choice: {values}}}")
    load_config(write_study(tmp_path, study))
    for text in (f"{study}update: {{{key}}}\n", study.replace("germany.nc}", f"germany.nc, search: {{{key}}}}}")):
        problems = problems_of(tmp_path, text)
        assert problems and all(word in problem for problem in problems)


@pytest.mark.parametrize("method", ["grid", "sobol"])
def test_what_an_update_says_for_all_does_not_contradict_the_method_of_one_region(tmp_path, method):
    keys = "rounds: 3" if method == "grid" else "share: warm"
    space = "{hidden: {choice: [2, 4]}, learning_rate: {choice: [0.1, 0.01]}}"
    text = STUDY.replace("germany.nc}", f"germany.nc, search: {{method: {method}, space: {space}}}}}")
    config = load_config(write_study(tmp_path, f"{text}update: {{{keys}}}\n"))
    assert [region.search.method for region in config.regions] == ["bayes", method]


@pytest.mark.parametrize("method", ["skopt", "sobol", "random"])
def test_what_only_bayes_can_take_into_account_is_a_mistake_elsewhere(tmp_path, method):
    text = STUDY.replace("method: bayes", f"method: {method}\n  acquisition: improvement_per_second")
    (problem,) = problems_of(tmp_path, text)
    assert f"not legal with method {method}" in problem and "search.acquisition" in problem


@pytest.mark.parametrize(("kind", "fewest"), [("median", 4), ("asha", 4)])
def test_pruning_needs_trainings_that_it_can_end(tmp_path, kind, fewest):
    text = STUDY.replace("method: bayes", f"method: bayes\n  prune: {kind}")
    (problem,) = problems_of(tmp_path, text.replace("epochs: 2", f"epochs: {fewest - 1}"))
    assert f"train.epochs: {fewest - 1}, legal: at least {fewest}" in problem and "search.prune" in problem
    load_config(write_study(tmp_path, text.replace("epochs: 2", f"epochs: {fewest}")))


def test_a_range_that_a_grid_cannot_count_is_named(tmp_path):
    text = STUDY.replace("method: bayes\n  rounds: 2\n  parallel: 2", "method: grid")
    (problem,) = problems_of(tmp_path, text)
    assert "search.space.learning_rate: a grid needs" in problem and ":12:" in problem


def test_all_metrics_that_are_legal_are_named(tmp_path):
    (problem,) = problems_of(tmp_path, STUDY.replace("metric: ndcg@5", "metric: auc@5"))
    assert "map@K" in problem.partition("legal")[2] and "mrr@K" in problem


def test_a_key_of_the_study_that_a_regions_method_has_no_use_for_is_passed_over(tmp_path):
    text = STUDY.replace("  parallel: 2\n", "  parallel: 2\n  share: model\n")
    text = text.replace("germany.nc}", "germany.nc, search: {method: sobol}}")
    uk, germany = load_config(write_study(tmp_path, text)).regions
    assert (uk.search.share, germany.search.share) == ("model", "off")
    assert (uk.search.winner, germany.search.winner) == ("model", "observed")


def shares_of(folder, text):
    return [(region.search.share, region.search.winner) for region in load_config(write_study(folder, text)).regions]


def test_regions_with_searches_of_their_own_learn_from_each_other_unless_the_study_says_otherwise(tmp_path):
    assert shares_of(tmp_path, STUDY) == [("model", "auto")] * 2
    assert shares_of(tmp_path, STUDY.replace("  parallel: 2\n", "  parallel: 2\n  share: auto\n")) == shares_of(
        tmp_path, STUDY
    )
    assert shares_of(tmp_path, STUDY.replace("method: bayes", "method: skopt")) == [("off", "observed")] * 2
    assert shares_of(tmp_path, STUDY.replace("  parallel: 2\n", "  parallel: 2\n  share: off\n"))[0][0] == "off"
    one = "".join(line for line in STUDY.splitlines(keepends=True) if "germany.nc" not in line)
    assert shares_of(tmp_path, one) == [("off", "auto")]  # there is nobody else
    together = STUDY.replace("  parallel: 2\n", "  parallel: 2\n  scope: all\n")
    assert {share for share, _ in shares_of(tmp_path, together)} == {"off"}


def test_an_update_learns_from_others_as_the_study_does(tmp_path):
    text = STUDY + "update: {rounds: 1}\n"
    uk, _ = load_config(write_study(tmp_path, text)).regions
    assert uk.update is not None and uk.update.share == uk.search.share == "model"


def test_a_grid_too_large_to_list_is_counted_all_the_same(tmp_path):
    text = STUDY.replace("method: bayes\n  rounds: 2\n  parallel: 2", "method: grid").replace(
        "[2, 8]", "[2, 9007199254740991]"
    )
    text = text.replace("[1e-3, 1e-1]", "[1e-3, 1e-1], points: 2")
    assert any("search.space" in p and "at most 99,999" in p for p in problems_of(tmp_path, text))


@pytest.mark.parametrize("pattern", ["data/**x.nc", "/abs/*.nc", "nowhere/*.nc"])
def test_patterns_that_find_nothing(tmp_path, pattern):
    text = re.sub(r"regions:.*?(?=network:)", f'regions: {{from: "{pattern}"}}\n', STUDY, flags=re.DOTALL)
    assert any("regions.from" in p for p in problems_of(tmp_path, text))


def test_empty_space(tmp_path):
    text = STUDY[: STUDY.index("    hidden:")] + "    {}\n"
    assert any("search.space: empty" in problem for problem in problems_of(tmp_path, text))


def test_a_wrong_network_is_reported_with_its_own_key_path(tmp_path):
    study = write_study(tmp_path)
    network = tmp_path / "network.json"
    network.write_text(network.read_text().replace('"Tanh"', '"Tanhh"'))
    with pytest.raises(ConfigError, match=r"Layers\[1\].*Tanhh"):
        load_config(study)


HOSTILE = [
    "United  Kingdom", "it's", 'say "hi"', "a; rm -rf /", "$(reboot)", "`id`", "..", "../../etc/passwd", "/abs",
    "Côte d'Ivoire", "日本", "x" * 200, "NO", "1e5", "true", "-", "--help", "a\tb", "PARENT", "ALL_NODES", "report",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_region_names_are_safe_or_refused(tmp_path, name):
    import json

    text = STUDY.replace(
        "{name: Germany, data: data/germany.nc}", f"{{name: {json.dumps(name)}, data: data/germany.nc}}"
    )
    study = write_study(tmp_path, text)
    try:
        region = load_config(study).regions[1]
    except ConfigError as error:
        assert "regions[1].name" in str(error) and "\t" in name
        return
    assert region.name == name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", region.slug) and len(region.slug) <= 60


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", " ", "a\u2028b", "a\x9bb", "a\u202eb"])
def test_region_names_that_are_refused(tmp_path, name):
    import json

    text = STUDY.replace("name: Germany", f"name: {json.dumps(name)}")
    assert any("regions[1].name" in problem for problem in problems_of(tmp_path, text))


def test_data_without_a_final_part_trains_on_train_and_valid(tmp_path):
    study = write_study(tmp_path)
    (tmp_path / "data" / "uk.final.nc").unlink()
    uk, germany = load_config(study).regions
    assert uk.final_parts == ("train", "valid") and germany.final_parts == ("final",)


def test_data_of_another_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    write_region(tmp_path / "elsewhere", "uk")
    text = STUDY.replace("data/uk.nc", str(tmp_path / "elsewhere" / "uk.nc"))
    assert load_config(write_study(tmp_path, text)).regions[0].data["train"].parent.name == "elsewhere"


def test_update_overrides_the_search_of_runs_after_the_first(tmp_path):
    text = STUDY.replace("data/germany.nc}", "data/germany.nc, update: {parallel: 3}, search: {rounds: 5}}")
    uk, germany = load_config(write_study(tmp_path, text + "update: {rounds: 1, budget: 30m}\n")).regions
    assert uk.search.sizes == (2, 2) and uk.search.budget == 0
    assert uk.update == replace(uk.search, sizes=(2,), budget=1800)
    assert germany.search.sizes == (2,) * 5
    assert germany.update == replace(germany.search, sizes=(3,), budget=1800)


def test_without_an_update_section_there_is_none(study_file):
    assert all(region.update is None for region in load_config(study_file).regions)


@pytest.mark.parametrize(
    ("update", "words"),
    [
        ("{rounds: two}", [":17: update.rounds: seen 'two'", "a whole number"]),
        ("{roundz: 2}", ["update.roundz: unknown key", "did you mean 'rounds'", "budget"]),
        ("{space: {hidden: 3}}", [":17: update.space", "change search.space instead"]),
        ("{method: bays}", ["update.method", "did you mean 'bayes'"]),
        ("3", ["update: seen 3", "a mapping of keys to values"]),
    ],
)
def test_mistakes_in_update(tmp_path, update, words):
    problems = problems_of(tmp_path, f"{STUDY}update: {update}\n")
    assert len(problems) == 1 and all(word in problems[0] for word in words), problems


@pytest.mark.parametrize(
    ("name", "legal"),
    [("x" * 60, True), ("x" * 61, False), ("a-B_9", True), ("a?b", False), ("a.b", False), ("é", False), ("", False)],
)
def test_a_study_is_named_with_at_most_sixty_plain_characters(tmp_path, name, legal):
    study = write_study(tmp_path, STUDY.replace("study: tiny", f"study: '{name}'"))
    if legal:
        assert load_config(study).name == name
    else:
        with pytest.raises(ConfigError, match=r"study: seen .*, legal: letters, digits, '-' and '_', at most 60"):
            load_config(study)


def test_a_study_without_a_name_has_its_files(tmp_path):
    assert load_config(write_study(tmp_path, STUDY.replace("study: tiny\n", ""))).name == "study"


def test_the_name_of_a_region_has_at_most_two_hundred_characters(tmp_path):
    study = write_study(tmp_path, STUDY.replace("name: Germany", f"name: {'x' * 200}"))
    assert load_config(study).regions[1].name == "x" * 200
    study.write_text(STUDY.replace("name: Germany", f"name: {'x' * 201}"))
    with pytest.raises(ConfigError, match=r"regions\[1\].name.*201 characters.*at most 200 characters"):
        load_config(study)


@pytest.mark.parametrize(
    ("regions", "problems"),
    [
        ("{form: data/*.nc, from: data/*.nc}", ["regions.form: unknown key; did you mean 'from'?"]),
        ("{}", ["regions.from: missing: a pattern such as data/*.nc", "regions: no region: "]),
        ("{from: /abs/*.nc}", ["regions.from: seen '/abs/*.nc' ", "regions: no region: "]),
        ("{from: no/*.nc}", ["regions.from: no file matches 'no/*.nc' ", "regions: no region: "]),
        ("[]", ["regions: no region: "]),
        ("3", ["regions: seen 3, legal: a list of {name, data}, or {from: data/*.nc}", "regions: no region: "]),
        ("[Malta]", ["regions[0]: seen 'Malta', legal: a mapping with `name` and `data`"]),
        ("[{data: data/uk.nc}]", ["regions[0].name: missing: the region's name"]),
        ("[{name: Malta}]", ["regions[0].data: missing: the region's data, such as data/germany.nc"]),
    ],
)
def test_each_way_to_name_no_regions_is_told_once_with_its_place(tmp_path, regions, problems):
    text = re.sub(r"regions:.*?(?=network:)", f"regions: {regions}\n", STUDY, flags=re.DOTALL)
    found = [re.sub(r"^.*?study\.yaml:\d+: ", "", problem) for problem in problems_of(tmp_path, text)]
    assert len(found) == len(problems), found
    for start in problems:
        assert any(problem.startswith(start) for problem in found), (start, found)


def test_a_key_of_the_study_that_is_none_is_told(tmp_path):
    [problem] = problems_of(tmp_path, STUDY + "limit: {jobs: 8}\n")
    assert "study.yaml:17: limit: unknown key; did you mean 'limits'?" in problem


def test_every_region_of_a_name_that_is_taken_is_told(tmp_path):
    text = STUDY.replace(
        "network: network.json",
        "  - {name: Malta, data: data/uk.nc}\n  - {name: Germany, data: data/uk.nc}\n"
        "  - {name: malta, data: data/uk.nc}\nnetwork: network.json",
    )
    second, other = problems_of(tmp_path, text)
    assert "regions[3].name: the region 'Germany' stands here a second time" in second
    assert "regions[4].name: seen 'malta', which becomes the folder 'malta' as 'Malta' does; rename one" in other


def test_a_network_that_regions_share_is_told_of_once(tmp_path):
    [problem] = problems_of(tmp_path, STUDY.replace("network: network.json", "network: nowhere.json"))
    assert "network: seen " in problem and "nowhere.json" in problem and "legal: DSSTNE's JSON" in problem
    problems = problems_of(tmp_path, STUDY.replace("network: network.json\n", ""))
    assert len(problems) == 2  # hidden and learning_rate
    assert all("is of no family but a network, and there is none: add `network`" in problem for problem in problems)


def test_pruning_is_no_mistake_where_the_search_says_how_long_trainings_are(tmp_path):
    text = STUDY.replace("method: bayes", "method: bayes\n  prune: median")
    [problem] = problems_of(tmp_path, text)
    assert "search.prune: median ends no training of train.epochs: 2, legal: at least 4" in problem
    study = write_study(tmp_path, text.replace("  space:", "  space:\n    epochs: {int: [4, 9]}"))
    assert load_config(study).regions[0].search.prune == "median"
    study.write_text(text.replace("epochs: 2", "epochs: 4"))
    assert load_config(study).regions[0].search.prune == "median"


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_each_file_of_a_regions_data_but_the_final_one_must_be_there(tmp_path, part):
    study = write_study(tmp_path)
    (tmp_path / "data" / f"uk.{part}.nc").unlink()
    with pytest.raises(ConfigError) as caught:
        load_config(study)
    [problem] = caught.value.problems
    assert f"regions[0].data: seen 'data/uk.nc', but there is no file {tmp_path}/data/uk.{part}.nc; " in problem


def test_layers_are_frozen_only_where_a_training_starts_from_a_model(tmp_path):
    frozen = '"FineTuning": {"freeze": "Hidden", "Rates": {"Hidden": "$hidden"}}, "Layers"'

    def freeze(text):
        study = write_study(tmp_path, text)
        network = tmp_path / "network.json"
        network.write_text(network.read_text().replace('"Layers"', frozen, 1))
        assert frozen in network.read_text()
        return study

    with pytest.raises(ConfigError) as caught:
        load_config(freeze(STUDY))
    [problem] = caught.value.problems
    assert "network.json: FineTuning.freeze: every region that has it starts from random weights; legal: " in problem
    load_config(freeze(STUDY + "init: pooled\n"))
