"""The section `track`: what it takes, and that secrets do not stand in study.yaml nor go where others read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from regiondag.config.keys import describe_study
from regiondag.config.load import load_config, load_track
from regiondag.errors import ConfigError
from regiondag.study.track import Track, track_from_json, track_to_json
from regiondag.util.yaml_file import parse_yaml
from tests.workflows.conftest import STUDY, write_study

VALIDATOR = Draft202012Validator(describe_study())


def read(folder: Path, text: str) -> Track | None:
    return load_config(write_study(folder, f"{STUDY}track: {text}\n")).track


def test_nothing_is_tracked_by_default(tmp_path):
    assert load_config(write_study(tmp_path)).track is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{mlflow: 'http://mlflow.example.org:5000'}", Track("http://mlflow.example.org:5000")),
        ("{mlflow: 'https://example.org/a/', token: 'env:TOKEN'}", Track("https://example.org/a", "env:TOKEN")),
        ("{mlflow: 'http://[::1]:5000', token: 'file:/t'}", Track("http://[::1]:5000", "file:/t")),
        (
            "{mlflow: 'https://example.org', username: ada, password: 'file:/p'}",
            Track("https://example.org", "", "ada", "file:/p"),
        ),
    ],
)
def test_what_is_taken(text, expected, tmp_path):
    assert read(tmp_path, text) == expected
    VALIDATOR.validate(parse_yaml(f"{STUDY}track: {text}\n", "study.yaml", "x").value)


def test_paths_are_relative_to_study_yaml_and_the_rest_may_be_wrong(tmp_path):
    (tmp_path / "study.yaml").write_text("metric: 7\ntrack: {mlflow: 'https://example.org', token: 'file:t'}\n")
    assert load_track(tmp_path / "study.yaml") == Track("https://example.org", f"file:{tmp_path}/t")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{mlflow: 'file:/mlruns'}", "legal: the URL of a server of MLflow"),
        ("{mlflow: 'sqlite:///x.db'}", "legal: the URL of a server of MLflow"),
        ("{mlflow: 7}", "legal: the URL of a server of MLflow"),
        ("{mlflow: 'https://ada:secret@example.org'}", "holds a user or password"),
        ("{mlflow: 'https://example.org/?a=b'}", "holds a query"),
        ("{mlflow: 'https://example.org', token: secret}", "legal: env:NAME or file:PATH"),
        ("{mlflow: 'https://example.org', username: 'a:b', password: 'env:P'}", "legal: a user's name"),
        ("{mlflow: 'https://example.org', username: ada}", "`username` and `password`"),
        ("{mlflow: 'https://example.org', username: ada, password: 'env:P', token: 'env:T'}", "`token` alone"),
        ("{mlflow: 'http://example.org', token: 'env:T'}", "is http, by which no token goes"),
        ("{token: 'env:T'}", "stands without `mlflow`"),
        ("{mlflow: 'https://example.org', experiment: x}", "track.experiment"),
    ],
)
def test_what_is_refused(text, said, tmp_path):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)


@given(st.builds(Track, st.text(), st.text(), st.text(), st.text()))
def test_settings_come_back(track):
    assert track_from_json(track_to_json(track)) == track
