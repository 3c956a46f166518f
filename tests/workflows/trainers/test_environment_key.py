"""`trainer.environment` of study.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from regiondag.study.program import Container, Environment
from tests.workflows.conftest import write_study

STUDY = """\
regions: [{{name: North}}]
trainer:
  command: [python, train.py]
  metric: {{name: auc}}
  environment: {}
search: {{rounds: 1, space: {{rate: {{real: [0, 1]}}}}}}
job: {{gpus: 0}}
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in ("requirements.txt", "env.tar.gz", "env.tar.zst", "env.rar"):
        (tmp_path / name).write_text("")
    return tmp_path


def read(folder: Path, said: str) -> Environment | None:
    [region] = load_config(write_study(folder, STUDY.format(said))).regions
    assert region.program is not None
    return region.program.environment


def test_a_file_says_by_its_name_what_it_is(folder):
    assert read(folder, "requirements.txt") == Environment(folder / "requirements.txt")
    assert read(folder, "requirements.txt").is_list and not read(folder, "env.tar.gz").is_list


def test_a_list_is_for_a_python_and_a_platform(folder):
    said = "{file: requirements.txt, python: '3.13', platform: manylinux_2_28_aarch64}"
    assert read(folder, said) == Environment(folder / "requirements.txt", "3.13", "manylinux_2_28_aarch64")


OF_REGION = """\
regions:
  - {{name: North, trainer: {}}}
  - {{name: South}}
trainer:
  command: [python, train.py]
  metric: {{name: auc}}
  {}
search: {{rounds: 1, space: {{rate: {{real: [0, 1]}}}}}}
job: {{gpus: 0}}
"""


def read_both(folder: Path, of_region: str, of_study: str) -> list[tuple[Environment | None, Container | None]]:
    regions = load_config(write_study(folder, OF_REGION.format(of_region, of_study))).regions
    return [(region.program.environment, region.program.container) for region in regions if region.program]


def test_a_region_says_that_it_needs_none(folder):
    built, image = Environment(folder / "requirements.txt"), Container("/images/r")
    shared = "container: {image: /images/r, shared: true}"
    assert read(folder, "none") is None
    assert read_both(folder, "{environment: none}", "environment: requirements.txt") == [(None, None), (built, None)]
    assert read_both(folder, "{environment: requirements.txt}", "environment: none") == [(built, None), (None, None)]
    assert read_both(folder, "{container: none}", shared) == [(None, None), (None, image)]
    assert read_both(folder, f"{{{shared}}}", "container: none") == [(None, image), (None, None)]
    assert read_both(folder, f"{{environment: none, {shared}}}", "environment: requirements.txt") == [
        (None, image),
        (built, None),
    ]
    assert read_both(folder, "{environment: requirements.txt, container: none}", shared) == [
        (built, None),
        (None, image),
    ]
    with pytest.raises(ConfigError, match=r"environment: beside trainer.container .* say none there"):
        read_both(folder, f"{{{shared}}}", "environment: requirements.txt")
    for wrong in ("no", "null", "[]"):
        with pytest.raises(ConfigError, match=r"regions\[0\].trainer.container: seen .*, legal: a mapping"):
            read_both(folder, f"{{container: {wrong}}}", shared)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("missing.txt", "missing.txt: No such file"),
        ("env.rar", "env.rar: legal: a list of packages that ends with .txt or .in such as requirements.txt, or"),
        ("'.'", ".: legal: a list of packages"),
        ("{file: env.tar.gz, python: '3.13'}", "python and platform are of a list of packages"),
        ("{file: requirements.txt, python: 3.13}", "python: 3.13, legal: a version in quotes such as '3.13'"),
        ("{file: requirements.txt, pythn: '3.13'}", "legal: requirements.txt, or an archive such as env.tar.gz"),
        ("{python: '3.13'}", "legal: requirements.txt, or an archive"),
        ("[requirements.txt]", "legal: requirements.txt, or an archive"),
    ],
)
def test_what_is_not_legal_is_said(folder, said, message):
    with pytest.raises(ConfigError) as caught:
        read(folder, said)
    assert "study.yaml:5: trainer.environment: " in str(caught.value) and message in str(caught.value)


def test_zstandard_is_refused_where_workers_cannot_read_it(folder, monkeypatch):
    from regiondag.trainers import environment_key

    monkeypatch.setattr(environment_key.sys, "version_info", (3, 13, 0))
    with pytest.raises(ConfigError, match=r"no worker with a Python before 3\.14 can read that"):
        read(folder, "env.tar.zst")
    monkeypatch.setattr(environment_key.sys, "version_info", (3, 14, 0))
    assert read(folder, "env.tar.zst") == Environment(folder / "env.tar.zst")


def test_a_container_has_its_own(folder):
    with pytest.raises(ConfigError, match=r"beside trainer\.container it is not legal"):
        read(folder, "requirements.txt\n  container: {image: x.sif}")
