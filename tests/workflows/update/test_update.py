"""`regiondag update` without a pool: what it takes, what it leaves out, what it refuses."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from nnlib.contract import Recipe
from regiondag.cli import main
from regiondag.node.post import JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.pool.pool import Pool
from regiondag.run.layout import NodeName, RunFolder
from regiondag.run.region_spec import read_spec
from regiondag.update.nightly import job_environment
from tests.workflows.conftest import NETWORK, STUDY, write_region, write_study
from tests.workflows.generate.test_write_run import snapshot
from tests.workflows.played import play_job

pytestmark = pytest.mark.slow

SUBMITTED = "000 (007.000.000) 2026-01-05 03:30:00 Job submitted from host: <127.0.0.1:9618>\n...\n"
ENDED = """\
005 (007.000.000) 2026-01-05 04:30:00 Job terminated.
\t(1) Normal termination (return value 0)
...
"""


@pytest.fixture(autouse=True)
def no_pool(monkeypatch):
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda name=None: None)


@pytest.fixture
def update(tmp_path, capsys):
    """Return a function that updates the study and gives (exit code, the run if one was made, what was said)."""

    def call(*options: str) -> tuple[int, RunFolder | None, str]:
        code = main(["update", str(tmp_path / "study.yaml"), *options])
        captured = capsys.readouterr()
        path = captured.out.strip()
        return code, RunFolder(Path(path)) if path else None, captured.err

    return call


def complete(run: RunFolder, *slugs: str) -> None:
    """Play the jobs of some regions to their champions."""
    end = JobEnd(0, 0, 2)
    for folder in map(run.region, slugs):
        trials = [NodeName(folder.path.name, number) for number in range(read_spec(folder.spec).search.trials)]
        for node in [*trials, NodeName(folder.path.name, None)]:
            prepare = prepare_final if node.number is None else prepare_trial
            assert prepare(folder, node)
            play_job(folder, node)
            (settle_final if node.number is None else settle_trial)(folder, node, end)


def regions_of(run: RunFolder | None) -> list[str]:
    assert run is not None
    return list(json.loads(run.manifest.read_text())["regions"])


BOTH = ["united-kingdom", "germany"]


@pytest.fixture
def first(study_file, update):
    """The first run of the study, finished."""
    _, run, _ = update()
    complete(run, *BOTH)
    return run


def test_the_first_run_is_as_generate_makes_it(tmp_path, update):
    write_study(tmp_path, STUDY + "update: {rounds: 1}\n")
    code, run, said = update()
    assert code == 0 and regions_of(run) == BOTH
    assert "no earlier run of the study 'tiny'" in said
    assert f"`regiondag submit` refuses it: {run.path} lies in /tmp" in said
    assert f"type: regiondag update {tmp_path}/study.yaml --out ~/runs" in said and "Next:" not in said
    assert read_spec(run.region("germany").spec).search.sizes == (2, 2)


def test_nothing_new_is_no_run(first, update, tmp_path):
    before = snapshot(tmp_path)
    code, run, said = update()
    assert (code, run) == (0, None) and "nothing new: no run made" in said
    assert f"Germany: left out, its data and network are those of {first.path}" in said
    assert snapshot(tmp_path) == before


def test_a_region_with_new_data_is_taken_and_no_other(first, update, tmp_path):
    write_region(tmp_path / "data", "germany", users=9)
    code, run, said = update()
    assert code == 0 and regions_of(run) == ["germany"]
    assert "United Kingdom: left out" in said and "Germany" not in said
    champion = json.loads(first.region("germany").champion_metrics.read_text())
    assert read_spec(run.region("germany").spec).first == (champion["hyperparameters"],)
    assert read_spec(run.region("germany").spec).incumbent == Recipe("network")
    complete(run, "germany")
    assert update()[1] is None  # Germany's newest run is now this one, the United Kingdom's the one before
    assert regions_of(update("--all")[1]) == BOTH


def test_a_new_network_concerns_all_regions_and_a_new_part_one(first, update, tmp_path):
    (tmp_path / "data" / "uk.final.nc").unlink()
    assert regions_of(update()[1]) == ["united-kingdom"]
    (tmp_path / "network.json").write_text(json.dumps({**NETWORK, "Name": "other"}))
    assert regions_of(update()[1]) == BOTH


def test_a_region_that_did_not_finish_is_taken_again(study_file, update):
    _, run, _ = update()
    complete(run, "germany")
    code, again, said = update()
    assert code == 0 and regions_of(again) == ["united-kingdom"] and f"{run.path} was never submitted" in said
    again.region("united-kingdom").journal.write_text("edited by hand\n")
    assert regions_of(update()[1]) == ["united-kingdom"]


@pytest.mark.parametrize(
    ("start", "source"),
    [("init: pooled\n", "pooled"), ("init: neighbour\nneighbour: United Kingdom\n", "united-kingdom")],
)
def test_what_starts_from_a_model_comes_with_the_region_that_it_is_of(tmp_path, update, start, source):
    """And with nothing new nothing is made, though the pooled region has no data of its own to compare."""
    write_study(tmp_path, STUDY + start)
    _, run, _ = update()
    complete(run, source, *(slug for slug in BOTH if slug != source))
    assert update()[1] is None
    write_region(tmp_path / "data", "germany", users=9)
    _, run, said = update()
    assert sorted(regions_of(run)) == sorted({"germany", source})
    assert ("United Kingdom: nothing new, but others start from its champion" in said) == (source != "pooled")
    assert f"PARENT {source}_final CHILD germany_t0000 germany_t0001\n" in run.study_dag.read_text()
    complete(run, source, "germany")


def test_update_overrides_search_where_there_is_a_champion(study_file, update, tmp_path):
    _, run, _ = update()
    complete(run, "germany")
    write_study(tmp_path, STUDY + "update: {rounds: 1, budget: 30m}\n")
    _, run, _ = update("--all")
    germany, uk = (read_spec(run.region(slug).spec).search for slug in ("germany", "united-kingdom"))
    assert (germany.sizes, germany.budget) == ((2,), 1800)
    assert (uk.sizes, uk.budget) == ((2, 2), 0)  # nothing to start from yet


def submitted(run: RunFolder, slug: str | None = None, text: str = SUBMITTED) -> None:
    dag = run.study_dag if slug is None else run.region(slug).dag
    dag.with_name(f"{dag.name}.dagman.log").write_text(text)


@pytest.mark.parametrize("slug", [None, "germany"])
@pytest.mark.parametrize("in_queue", [None, True, False])
def test_a_run_in_progress_is_let_end(first, update, monkeypatch, slug, in_queue):
    """in_queue None: no pool; False: DAGMan crashed and left its log without an end."""
    submitted(first, slug)
    if in_queue is not None:
        pool = Pool("x", "installed", (25, 14, 1))
        monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda name=None: pool)
        monkeypatch.setattr("regiondag.condor.client.query_status", lambda *_: "running" if in_queue else None)
    code, run, said = update("--all", "--htcondor", "23.9")
    assert (code, run is None) == ((0, False) if in_queue is False else (1, True))
    if code:
        assert f"{first.path} is still in progress" in said and "job 7" in said
        assert ("condor_rm 7" in said) if in_queue else ("regiondag pool up" in said)


def test_a_run_that_ended_is_none_in_progress_and_newer_ones_that_never_ran_hide_none(first, update):
    submitted(first)
    first.study_dag.with_name("study.dag.dagman.log").write_text(SUBMITTED + ENDED)
    assert update("--all")[0] == 0
    submitted(first)
    assert update("--all")[0] == 1


def test_submit_wants_a_pool_and_a_folder_that_dagman_likes(study_file, update, run_area, capsys):
    code, run, said = update("--submit")
    assert (code, run) == (1, None) and "lies in /tmp" in said
    assert f"type: regiondag update {study_file} --submit --out ~/runs" in said
    study = write_study(run_area)
    assert main(["update", str(study), "--submit"]) == 5
    assert not (run_area / "runs").exists()


@pytest.mark.parametrize("options", [(), ("--submit",), ("--cron", "30 3 * * *")])
def test_mistakes_in_the_study_exit_2_and_write_nothing(run_area, options, capsys):
    study = write_study(run_area, STUDY + "update: {rounds: two}\n")
    before = snapshot(run_area)
    assert main(["update", str(study), *options]) == 2
    assert snapshot(run_area) == before


def test_damaged_data_are_named(first, update, tmp_path):
    (tmp_path / "data" / "germany.valid.nc").write_bytes(b"hello")
    code, run, said = update()
    assert (code, run) == (2, None) and "Germany" in said and "germany.valid.nc" in said


# --- every night -------------------------------------------------------------------------------------------


def commands_of(path: str) -> dict[str, str]:
    lines = (line for line in Path(path).read_text().splitlines() if " = " in line and not line.startswith("#"))
    return dict(line.split(" = ", 1) for line in lines)


def test_a_job_for_every_night(run_area, capsys):
    study = write_study(run_area)
    before = snapshot(run_area)
    options = ["--cron", "30 3 * * 1-5", "--all", "--htcondor", "23.9", "--out", str(run_area / "runs")]
    assert main(["update", str(study), *options]) == 0
    captured = capsys.readouterr()
    path = captured.out.strip()
    assert path == f"{run_area}/nightly-tiny/nightly.sub" and f"condor_submit {path}" in captured.err
    assert set(snapshot(run_area)) - set(before) == {"nightly-tiny/nightly.sub", "nightly-tiny/nights.json"}
    commands = commands_of(path)
    assert commands["universe"] == "local" and commands["on_exit_remove"] == "false"
    assert [commands[f"cron_{name}"] for name in ("minute", "hour", "day_of_month", "month", "day_of_week")] == [
        "30", "3", "*", "*", "1,2,3,4,5",
    ]  # fmt: skip
    words = shlex.split(commands["arguments"].strip('"'))
    night = ["--night", "tiny", "30 3 * * 1-5"]
    assert words[-10:] == [str(study), "--submit", "--out", f"{run_area}/runs", "--all", *night, "--htcondor", "23.9"]
    assert all(Path(word).is_absolute() for word in words[:5])
    assert (run_area / "nightly-tiny" / "nightly.sub").read_text().endswith("\nqueue\n")


def test_the_job_runs_the_update(run_area, capsys):
    """As HTCondor would, with the words and the environment of the submit file."""
    study = write_study(run_area / "it's $(x)")
    assert main(["update", str(study), "--cron", "30 3 * * *", "--out", str(run_area / "runs")]) != 0  # its folder
    study = write_study(run_area)
    capsys.readouterr()
    assert main(["update", str(study), "--cron", "30 3 * * *"]) == 0
    commands = commands_of(capsys.readouterr().out.strip())
    words, variables = (shlex.split(commands[name].strip('"')) for name in ("arguments", "environment"))
    root = Path(__file__).parents[3]
    environment = {"PATH": "", "PYTHONPATH": str(root), **dict(word.split("=", 1) for word in variables)}
    environment |= {"REGIONDAG_HOME": str(run_area / "home")}  # in which no pool is known
    done = subprocess.run([commands["executable"], *words], env=environment, cwd=run_area / "nightly-tiny", check=False)
    said = (run_area / "nightly-tiny" / "update.log").read_text()
    assert done.returncode == 5 and "pool" in said and said.endswith("exit code 5\n"), said


def test_one_nightly_job_at_a_time(run_area, capsys):
    study = write_study(run_area)
    assert main(["update", str(study), "--cron", "30 3 * * *", "--quiet"]) == 0
    (run_area / "nightly-tiny" / "job.log").write_text(SUBMITTED)
    assert main(["update", str(study), "--cron", "30 4 * * *"]) == 1
    assert "condor_rm 7" in capsys.readouterr().err
    assert commands_of(f"{run_area}/nightly-tiny/nightly.sub")["cron_hour"] == "3"


@pytest.mark.parametrize(
    ("times", "word"), [("30 3 * *", "4 fields"), ("61 3 * * *", "minute: seen '61'"), ("0 3 30 2 *", "no month")]
)
def test_wrong_times_exit_2(run_area, capsys, times, word):
    study = write_study(run_area)
    before = snapshot(run_area)
    assert main(["update", str(study), "--cron", times]) == 2
    assert word in capsys.readouterr().err and snapshot(run_area) == before


def test_a_nightly_job_in_slash_tmp_is_refused(study_file, update):
    code, path, said = update("--cron", "30 3 * * *")
    assert (code, path) == (1, None) and "lies in /tmp" in said
    assert f"type: regiondag update {study_file} --cron '30 3 * * *' --out ~/runs" in said


def test_the_environment_of_the_job(monkeypatch):
    outside = {"PATH": "/opt/condor/bin", "CONDOR_CONFIG": "/c", "PYTHONPATH": "/a b", "SECRET": "x"}
    installed, embedded = (job_environment(outside, embedded=flag) for flag in (False, True))
    assert installed[0].startswith("PATH=/opt/condor/bin:") and ":/usr/bin" in installed[0]
    assert {"REGIONDAG_POOL=installed", "PYTHONPATH=/a b", "CONDOR_CONFIG=/c"} <= set(installed)
    assert not any("SECRET" in word for word in installed)
    assert [word for word in installed if word not in embedded] == ["CONDOR_CONFIG=/c"]
    assert os.environ["PATH"] in job_environment(embedded=False)[0]
