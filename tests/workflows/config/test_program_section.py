from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nnlib.contract import Metric, Terms
from regiondag.config.data_check import check_data
from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from tests.workflows.conftest import NETWORK, write_region, write_study
from tests.workflows.conftest import STUDY as NETWORKS

STUDY = """\
regions: [{name: North}, {name: South}]
trainer:
  command: [python, train.py, --lr, "{learning_rate}"]
  files: [train.py, lib/, "data/{region}.csv"]
  metric: {name: auc}
train: {epochs: 7, seed: 3}
search:
  rounds: 2
  parallel: 2
  space: {learning_rate: {real: [0.01, 1.0], log: true}}
job: {gpus: 0}
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in ("train.py", "lib/a.py", "lib/b/c.py", "data/North.csv", "data/South.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def mistakes(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(write_study(folder, text))
    return str(caught.value)


def test_each_region_has_the_program_with_its_own_files(folder):
    north, south = load_config(write_study(folder, STUDY)).regions
    assert north.program is not None and south.program is not None
    assert [name for name, _ in north.program.files] == ["data/North.csv", "lib/a.py", "lib/b/c.py", "train.py"]
    assert ("data/South.csv", folder / "data/South.csv") in south.program.files
    assert north.program.command == ("python", "train.py", "--lr", "{learning_rate}")
    assert (north.metric, north.network, north.data, north.final_parts) == (Metric("auc"), None, {}, ())
    assert (north.train.epochs, north.train.seed, north.search.trials) == (7, 3, 4)
    assert check_data(load_config(write_study(folder, STUDY))) == {}


def test_less_can_be_better_and_regions_can_be_files(folder):
    text = STUDY.replace("[{name: North}, {name: South}]", "{from: data/*.csv}")
    regions = load_config(write_study(folder, text.replace("{name: auc}", "{name: rmse, mode: min}"))).regions
    assert [(region.name, region.metric) for region in regions] == [
        ("North", Metric("rmse", True)),
        ("South", Metric("rmse", True)),
    ]


def test_a_region_may_have_a_program_of_its_own(folder):
    own = "{name: South, trainer: {command: [Rscript, train.R], metric: {name: auc}}}"
    north, south = load_config(write_study(folder, STUDY.replace("{name: South}", own))).regions
    assert (north.program.command[0], south.program.command) == ("python", ("Rscript", "train.R"))


def test_hyperparameters_with_names_of_our_settings_are_the_programs(folder):
    space = "{learning_rate: {choice: [fast, slow]}, batch: {real: [0.1, 0.2]}}"
    text = STUDY.replace("{learning_rate: {real: [0.01, 1.0], log: true}}", space)
    assert len(load_config(write_study(folder, text)).regions[0].search.space) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{learning_rate}", "{learningrate}", "{learningrate} is no hyperparameter; did you mean 'learning_rate'?"),
        ("[python, train.py, --lr, ", "[python, train.py, --lr, '{', ", "a brace by itself is written twice: {{"),
        ('command: [python, train.py, --lr, "{learning_rate}"]', "command: python train.py", "legal: a list of words"),
        ("command: [python", "retry: [0]\n  command: [python", "legal: a list of exit codes and texts"),
        ("  metric: {name: auc}\n", "", "trainer.metric.name: missing, legal: the name of what the program reports"),
        ("{name: auc}", "{name: a b}", "legal: a name such as auc"),
        ("{name: auc}", "{name: auc, mode: high}", "legal: max or min"),
        ("train.py, lib/", "trian.py, lib/", "trian.py: no such file or folder, for region 'North'"),
        ("data/{region}.csv", "data/{slug}.csv", "{slug}: legal: {region} alone"),
        ("train: {epochs: 7, seed: 3}", "train: {batch: 7}", "train.batch: is for models that nnlib makes"),
        ("job:", "network: n.json\njob:", "network: is for models that nnlib makes; beside `trainer` it is not legal"),
        ("job:", "metric: ndcg@20\njob:", "metric: trainer.metric says it; beside `trainer` it is not legal"),
        ("job:", "families: [ease]\njob:", "families: is for models that nnlib makes"),
        ("job:", "init: champion\njob:", "init: is for models that nnlib makes"),
        ("{name: North}", "{name: North, data: x.nc}", "data: trainer.files says what a job gets"),
    ],
)
def test_mistakes(folder, old, new, said):
    assert old in STUDY
    assert said in mistakes(folder, STUDY.replace(old, new, 1))


def test_a_conditional_hyperparameter_in_a_command_needs_a_default(folder):
    space = "{learning_rate: {real: [0.01, 1.0], when: {kind: a}}, kind: {choice: [a, b]}}"
    text = STUDY.replace("{learning_rate: {real: [0.01, 1.0], log: true}}", space)
    assert "{learning_rate} has no value where its `when` does not hold; give it a default" in mistakes(folder, text)
    load_config(write_study(folder, text.replace("when: {kind: a}", "when: {kind: a}, default: 0.1")))


def test_names_that_a_job_uses_itself_are_refused(folder):
    (folder / "trial.json").write_text("{}")
    said = mistakes(folder, STUDY.replace("[train.py, lib/", "[train.py, trial.json"))
    assert "trial.json: a job has a file of that name; rename it" in said


def test_files_from_elsewhere_come_under_their_own_names_and_links_are_followed_once(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "shared.py").write_text("1")
    text = STUDY.replace("[train.py, lib/", f"[train.py, {other}/shared.py, lib/")
    program = load_config(write_study(folder, text)).regions[0].program
    assert program is not None and ("shared.py", other / "shared.py") in program.files


def test_a_link_is_named_as_the_study_names_it_and_counts_as_what_it_leads_to(folder):
    (folder / "src").mkdir()
    (folder / "src" / "v2.py").write_text("2")
    (folder / "train.py").unlink()
    (folder / "train.py").symlink_to("src/v2.py")
    (folder / "lib" / "linked.py").symlink_to("../src/v2.py")
    program = load_config(write_study(folder, STUDY)).regions[0].program
    assert program is not None
    assert [name for name, _ in program.files if name.endswith(".py")] == [
        "lib/a.py",
        "lib/b/c.py",
        "lib/linked.py",
        "train.py",
    ]
    (folder / "lib" / "more").symlink_to("../src")
    assert "lib/more': a link to a folder is not followed; list that folder itself" in mistakes(folder, STUDY)


def test_two_files_of_one_name_are_told_of(folder, tmp_path_factory):
    places = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for place in places:
        (place / "x.py").write_text(str(place))
    listed = ", ".join(f"{place}/x.py" for place in places)
    assert "would both be 'x.py'; rename one" in mistakes(
        folder, STUDY.replace("[train.py, ", f"[train.py, {listed}, ")
    )


def test_names_that_no_archive_holds_are_told_of(folder):
    (folder / "lib" / os.fsdecode(b"\xff.py")).write_text("1")
    assert "a name in UTF-8 without line breaks is needed; rename it" in mistakes(folder, STUDY)
    assert "File name too long" in mistakes(folder, STUDY.replace("lib/", "x" * 300))


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("{family: {choice: [a, b]}}", "family: that name says something else of a trial"),
        ("{checkpoint: {int: [1, 2]}}", "checkpoint: that name says something else of a trial"),
        ('{kind: {choice: ["a\\0b", c]}}', "it holds a line break, a NUL or half of a character"),
    ],
)
def test_hyperparameters_that_no_program_can_be_told(folder, space, said):
    text = STUDY.replace("{learning_rate: {real: [0.01, 1.0], log: true}}", space).replace(
        ', --lr, "{learning_rate}"', ""
    )
    assert said in mistakes(folder, text)


def test_epochs_may_be_searched(folder):
    text = STUDY.replace("{learning_rate: {real: [0.01, 1.0], log: true}}", "{epochs: {int: [1, 9]}}")
    assert (
        load_config(write_study(folder, text.replace(', --lr, "{learning_rate}"', ", '{epochs}'"))).regions[0].program
    )


def test_programs_are_run_for_one_region_each(folder):
    said = mistakes(folder, STUDY.replace("search:\n", "search:\n  scope: all\n"))
    assert "search.scope: a program is run for one region; beside `trainer` it is not legal, remove it" in said


def test_what_the_study_says_of_networks_is_for_its_other_regions(tmp_path):
    for stem in ("a", "b"):
        write_region(tmp_path, stem)
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    text = NETWORKS.replace("data/uk.nc", "a.nc").replace("data/germany.nc", "b.nc")
    space = "search: {space: {x: {real: [0, 1]}}}"
    own = f"  - {{name: Own, trainer: {{command: [echo, auc=1], metric: {{name: auc}}}}, {space}}}\n"
    config = load_config(write_study(tmp_path, text.replace("network: network.json", f"{own}network: network.json")))
    assert [region.program is not None for region in config.regions] == [False, False, True]
    assert config.regions[0].network == tmp_path / "network.json" and config.regions[2].network is None
    pooled = text.replace("network: network.json", f"{own}init: pooled\nnetwork: network.json")
    regions = load_config(write_study(tmp_path, pooled)).regions
    assert [region.init.kind for region in regions] == ["pooled", "pooled", "random", "random"]
    assert len(regions[3].merged["train"]) == 2, "of the networks' regions alone"


URL_FILE = 'files: [train.py, lib/, {url: "https://host/{region}.csv", sha256: SUM, name: data.csv}]'


def test_files_from_urls_are_each_regions_own(folder):
    (folder / "SUM").write_text(f"{'a1' * 32}  North.csv\n{'b2' * 32}  South.csv\n")
    text = STUDY.replace('files: [train.py, lib/, "data/{region}.csv"]', URL_FILE)
    north, south = (region.program for region in load_config(write_study(folder, text)).regions)
    assert north is not None and south is not None
    assert [(one.url, one.name, one.sha256) for one in (*north.downloads, *south.downloads)] == [
        ("https://host/North.csv", "data.csv", "a1" * 32),
        ("https://host/South.csv", "data.csv", "b2" * 32),
    ]


def test_what_is_wrong_with_files_from_urls_is_said(folder):
    given = f"files: [train.py, {{url: 'https://host/a.csv', sha256: {'a1' * 32}, name: NAME}}, OTHER]"
    other = f"{{url: 'https://other/a.csv', sha256: {'a1' * 32}, name: b.csv}}"
    text = STUDY.replace('files: [train.py, lib/, "data/{region}.csv"]', given)
    assert "two URLs end with that name" in mistakes(folder, text.replace("NAME", "a.csv").replace("OTHER", other))
    assert "train.py: two files would have that name" in mistakes(
        folder, text.replace("NAME", "train.py").replace(", OTHER", "")
    )
    assert "{lr}: legal: {region} alone" in mistakes(folder, text.replace("NAME", "'{lr}'").replace(", OTHER", ""))
    assert "unknown key 'md5'" in mistakes(folder, text.replace("NAME", "a, md5: x").replace(", OTHER", ""))
    assert "seen 3, legal: a list of paths" in mistakes(folder, STUDY.replace("[train.py, lib/, ", "3 #"))


def test_where_the_metric_is_what_of_it_counts_and_how_long_it_may_take(folder):
    text = STUDY.replace("{name: auc}", "{name: auc, value: best, report: {csv: logs/*/metrics.csv}}\n  seconds: 30m")
    text = text.replace('"{learning_rate}"]', '"{learning_rate}", "{seconds}"]')
    program = load_config(write_study(folder, text)).regions[0].program
    assert program is not None and program.terms == Terms("csv", "logs/*/metrics.csv", True, 1800)
    plain = load_config(write_study(folder, STUDY)).regions[0].program
    assert plain is not None and plain.terms == Terms()


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("{name: auc, report: {}}", "metric.report: seen none, legal: one of csv, mlflow, tensorboard"),
        ("{name: auc, report: {csv: a, mlflow: b}}", "seen csv and mlflow, legal: one of"),
        ("{name: auc, report: {csv: ../a.csv}}", "report.csv: seen '../a.csv', legal: a path in the program's folder"),
        ("{name: auc, report: {csv: /a.csv}}", "report.csv: seen '/a.csv'"),
        ("{name: auc, report: {csv: 'a/**/b'}}", "seen 'a/**/b'"),
        ("{name: auc, report: {wandb: a}}", "wandb"),
        ("{name: auc, value: first}", "value: seen 'first', legal: last or best"),
        ("{name: auc}\n  seconds: 2h", "seconds: seen 2h: job.deadline (2h) removes the job before"),
        ('{name: auc}\n  command: ["{seconds}"]', "{seconds} is no hyperparameter"),
    ],
)
def test_what_cannot_be_read_or_in_time_is_refused(folder, metric, said):
    text = STUDY.replace("{name: auc}", metric)
    if "command" in metric:
        text = text.replace('  command: [python, train.py, --lr, "{learning_rate}"]\n', "")
    assert said in mistakes(folder, text)
