"""Runs from Python: trials as tables, waiting, champions."""

from __future__ import annotations

import subprocess
import sys

import polars
import pytest

import regiondag
from regiondag.errors import RegiondagError
from tests.support.made_up_run import Shape, write_run
from tests.workflows.conftest import STUDY
from tests.workflows.trained import trained_run


@pytest.fixture
def run(tmp_path):
    return regiondag.Run(write_run(tmp_path / "run-1", Shape(regions=3, trials=4)))


def test_trials_are_a_table_with_a_column_a_hyperparameter(run):
    frame = run.trials()
    assert len(frame) == 12 and {"region", "trial", "value", "hidden", "optimizer"} <= set(frame.columns)
    assert sorted(frame["region"].unique()) == ["region 0", "region 1", "region 2"]
    assert run.trials("region 1", library="polars").equals(
        run.trials(library="polars").filter(polars.col("region") == "region 1").select(run.trials("region 1").columns)
    )


def test_a_run_is_found_by_its_study(tmp_path):
    write_run(tmp_path / "runs" / "run-1", Shape(regions=1, trials=1))
    (tmp_path / "study.yaml").write_text("study: made up\n")
    assert regiondag.Run.load(tmp_path).name == regiondag.Study.load(tmp_path).newest_run().name == "run-1"


def test_waiting_for_what_was_never_submitted_says_what_to_do(run):
    with pytest.raises(RegiondagError, match="run-1 is not submitted; "):
        run.wait()


def test_no_champion_is_told(run):
    with pytest.raises(RegiondagError, match="run-1 has no champion of 'region 0' yet"):
        run.champion("region 0")
    with pytest.raises(RegiondagError, match="no region 'Atlantis'"):
        run.champion("Atlantis")


def test_the_champion_of_a_trained_run(tmp_path):
    text = STUDY.replace("rounds: 2\n  parallel: 2", "rounds: 1\n  parallel: 1")
    run = regiondag.Run(trained_run(tmp_path, text, 1))
    champion = run.champion("Germany")
    assert champion.run == run.name and champion.region == "Germany"
    assert champion.metrics == champion.facts["test"] and champion.metrics
    assert regiondag.Study(_study_of(tmp_path)).champion("germany").version == champion.version
    frame = champion.recommend([*champion.recommender.customers[:2], "nobody"], k=3)
    assert frame.groupby("customer", sort=False).size().tolist() == [3, 3, 3]
    assert frame["known"].tolist() == [True] * 6 + [False] * 3
    answers = champion.ask("nobody", k=3)
    assert [one.item for one in answers[0].items] == frame["item"].tolist()[6:]


def _study_of(folder):
    return regiondag.Study.load(folder).folder


def test_the_command_starts_without_all_of_this():
    code = "import sys, regiondag; assert 'regiondag.api' not in sys.modules; regiondag.Study; regiondag.Run"
    code += "; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
