"""The section `notify`: what it takes, where its paths lead, and that secrets do not stand in study.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from regiondag.config.keys import describe_study
from regiondag.config.load import load_config, load_notify
from regiondag.errors import ConfigError
from regiondag.study.notify import EVENTS, Notify
from regiondag.util.yaml_file import parse_yaml
from tests.workflows.conftest import STUDY, write_study


def read(folder: Path, text: str) -> Notify:
    return load_config(write_study(folder, f"{STUDY}notify: {text}\n")).notify


def test_nobody_is_told_by_default(tmp_path):
    assert load_config(write_study(tmp_path)).notify == Notify() and Notify().channels == ()


def test_all_of_it(tmp_path):
    text = (
        "{command: [./tell, --now], webhook: 'file:hook', headers: {Authorization: 'env:TOKEN', X-Key: 'file:/k'}, "
        "email: [ada@example.org, bob], events: [failed, missed], budget: 12.5}"
    )
    assert read(tmp_path, text) == Notify(
        (f"{tmp_path}/tell", "--now"),
        f"file:{tmp_path}/hook",
        {"Authorization": "env:TOKEN", "X-Key": "file:/k"},
        ("ada@example.org", "bob"),
        ("failed", "missed"),
        12.5,
    )
    VALIDATOR.validate(parse_yaml(f"{STUDY}notify: {text}\n", "study.yaml", "x").value)


def test_it_is_read_alone_where_the_rest_is_wrong_or_not_there_yet(tmp_path):
    (tmp_path / "study.yaml").write_text("data: {purchases: none.csv}\nmetric: 7\nnotify: {email: ada}\n")
    assert load_notify(tmp_path / "study.yaml") == Notify(email=("ada",))
    (tmp_path / "study.yaml").write_text("notify: {email: 7}\n")
    with pytest.raises(ConfigError, match=r"study\.yaml:1: notify\.email: seen 7"):
        load_notify(tmp_path / "study.yaml")


VALIDATOR = Draft202012Validator(describe_study())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{command: [logger, -t, regiondag]}", Notify(command=("logger", "-t", "regiondag"))),
        ("{webhook: 'https://example.org/hook'}", Notify(webhook="https://example.org/hook")),
        ("{webhook: 'http://127.0.0.1:80/hook'}", Notify(webhook="http://127.0.0.1:80/hook")),
        ("{webhook: 'http://[::1]/hook'}", Notify(webhook="http://[::1]/hook")),
        ("{email: ada@example.org}", Notify(email=("ada@example.org",))),
        ("{email: root, events: [failed, failed]}", Notify(email=("root",), events=("failed",))),
    ],
)
def test_one_way(text, expected, tmp_path):
    assert read(tmp_path, text) == expected
    VALIDATOR.validate(parse_yaml(f"{STUDY}notify: {text}\n", "study.yaml", "x").value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{comand: [x]}", "notify.comand: unknown key; did you mean 'command'?"),
        ("{command: x}", "notify.command: seen 'x', legal: a list: a program and its arguments"),
        ("{command: []}", "notify.command: seen [], legal"),
        ("{command: [1]}", "notify.command: seen [1], legal"),
        ("{webhook: 'http://example.org/'}", "it is not https, which only this machine's own addresses need not be"),
        ("{webhook: 'http://127.0.0.1.example.org/'}", "it is not https"),
        ("{webhook: 'ftp://example.org/'}", "it is not https"),
        ("{webhook: 'https://a:b@example.org/'}", "it holds a user or password"),
        ("{webhook: 'https://hooks.slack.com/services/T0/B0/x'}", "such an URL is a secret: put it into a file"),
        ("{webhook: 'https://example.org/?key=x'}", "such an URL is a secret"),
        ("{webhook: 'env:'}", "notify.webhook: seen 'env:', legal: https://..."),
        ("{webhook: 'https://[/'}", "notify.webhook: seen"),
        ("{webhook: x, headers: {Authorization: Bearer x}}", "names of headers, each with env:NAME or file:PATH"),
        ("{webhook: 'https://example.org', headers: {'A:b': 'env:X'}}", "'A:b' is no name of a header"),
        ("{headers: {A: 'env:X'}}", "notify.headers: stands without `webhook`"),
        ("{email: '-x'}", "notify.email: seen '-x', legal: an address, or a list of them"),
        ("{email: 'a b@c'}", "notify.email: seen"),
        ("{events: [finishd]}", "'finishd' is none; did you mean 'finished'?"),
        ("{events: []}", f"a list of some of {', '.join(EVENTS)}"),
        ("{budget: -1}", "notify.budget: seen -1, legal: a number from 0"),
        ("{budget: .nan}", "notify.budget: seen nan"),
        ("[x]", "notify: seen ['x'], legal: a mapping"),
    ],
)
def test_what_is_not_legal(text, said, tmp_path):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert any(said in problem for problem in caught.value.problems), caught.value.problems
