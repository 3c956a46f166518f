"""What a run does not know of yet."""

from __future__ import annotations

import pytest

from regiondag.config.load import load_config
from regiondag.pipeline.news import MOVED, STUDY_CHANGED, find_news
from regiondag.run.layout import RunFolder
from tests.workflows.conftest import write_region


@pytest.fixture
def news(study_file, run):
    return lambda: find_news(load_config(study_file), [run])


def test_nothing_is_new_right_after_a_run_was_made(news):
    assert news() == ""


def test_a_study_without_runs_has_no_news(study_file):
    assert find_news(load_config(study_file), []) == ""


def test_comments_are_nothing_new_and_values_are(study_file, news):
    study_file.write_text("# of mine\n" + study_file.read_text().replace("  rounds: 2\n", "  rounds: 2   # few\n"))
    assert news() == ""
    study_file.write_text(study_file.read_text().replace("rounds: 2", "rounds: 3"))
    assert news() == STUDY_CHANGED


def test_a_region_with_other_data_is_named(study_file, news):
    write_region(study_file.parent / "data", "germany", users=9)
    assert news() == "new data or network: Germany"


def test_another_network_is_news_to_all(study_file, news):
    network = study_file.parent / "network.json"
    network.write_text(network.read_text() + " ")
    assert news() == "new data or network: United Kingdom, Germany"


def test_a_region_that_a_run_left_out_is_compared_with_its_last_champion(study_file, run, tmp_path):
    """None was ever finished here, so that it is as new as one that was never there."""
    from regiondag.run.manifest import read_manifest

    text = run.manifest.read_text().replace('"germany": "Germany"', '"gone": "Gone"')
    run.manifest.write_text(text)
    assert set(read_manifest(run).regions) == {"united-kingdom", "gone"}
    said = find_news(load_config(study_file), [run])
    assert said == "new data or network: Germany; not there any more: Gone"


def test_a_run_that_was_moved_cannot_go_on(study_file, run):
    moved = RunFolder(run.path.rename(run.path.with_name("run-moved")))
    assert find_news(load_config(study_file), [moved]) == MOVED


def test_a_run_without_its_study_is_another_one(news, run):
    (run.path / "study.yaml").unlink()
    assert news() == STUDY_CHANGED
