"""The summary of a run whose files are damaged: what is wrong is said, and hides nothing else."""

from __future__ import annotations

import json

import pytest

from regiondag.cli import main
from regiondag.node import main as scripts
from regiondag.node.post import settle_final
from regiondag.node.pre_final import prepare_final
from regiondag.report.summary import summarise
from regiondag.run.journal import Journal
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import END, FINAL, finish, play_trials


@pytest.fixture
def run(study_file, tmp_path):
    run = create(study_file, tmp_path / "runs")
    folder = run.region("germany")
    play_trials(folder, [0.1, 0.4])
    prepare_final(folder, FINAL)
    finish(folder, FINAL, 0.5)
    settle_final(folder, FINAL, END)
    return run


def by_slug(run):
    return {region.slug: region for region in summarise(run).regions}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"test": {}}', '{"hyperparameters": 3}'])
def test_a_damaged_champion_hides_no_other_region(run, capsys, text):
    metrics = run.region("germany").champion_metrics
    metrics.write_text(text)
    rows = by_slug(run)
    assert rows["germany"].status == "failed" and f"{metrics} is damaged" in rows["germany"].reason
    assert rows["united-kingdom"].status == "unfinished"
    assert main(["report", str(run.path)]) in (0, 1)
    assert "is damaged" in (run.report / "summary.md").read_text()
    assert "bug" not in capsys.readouterr().err


def test_a_damaged_journal_hides_no_other_region(run):
    journal = run.region("united-kingdom").journal
    journal.write_text("what?\n")
    assert scripts.main(["post", str(run.path), "report", "0"]) == 1
    rows = by_slug(run)
    assert rows["germany"].status == "promoted"
    assert rows["united-kingdom"].status == "failed" and f"{journal}:1: not a line" in rows["united-kingdom"].reason
    assert "not a line" in (run.report / "summary.md").read_text()


@pytest.mark.parametrize("manifest", ["[]", "{}", json.dumps({"name": "a web page", "icons": []})])
@pytest.mark.parametrize("command", ["status", "report", "explain", "stats", "verify", "submit"])
def test_a_folder_with_somebody_elses_manifest_is_no_run(tmp_path, capsys, command, manifest):
    (tmp_path / "manifest.json").write_text(manifest)
    assert main([command, str(tmp_path)]) == 1
    assert "is not a run directory" in capsys.readouterr().err


def test_what_a_search_saved_is_said(run, monkeypatch):
    monkeypatch.setattr("regiondag.tuning.noise.LEAST", 2)
    journal = Journal(run.region("germany").journal)
    with journal.locked():
        for trial in (2, 3):
            journal.append("expected", trial=trial, gain=0.0001, stderr=0.01)
    assert by_slug(run)["germany"].reason.endswith("its search ended after 2 of 4 trials: the next was expected to "
        "gain 0.00010, and the standard error of a trial is 0.0100 (stop: noise)")  # fmt: skip
