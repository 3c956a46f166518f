"""`regiondag clean`: what is needed by nobody goes, and nothing else, whatever goes wrong on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import pytest

from nnlib.contract import Status
from regiondag.cli import main
from regiondag.registry.promote import pin, promote_region, roll_back
from regiondag.registry.read import open_registry
from regiondag.run.champions import earlier_runs
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder, dagman_log
from regiondag.run.study_folder import find_study
from regiondag.update.clean import clean, plan_clean
from regiondag.update.old_runs import Rule
from tests.nnlib.util.steps import at_step
from tests.workflows.registry.registered import place_champion, spec_of

ROOT = Path(__file__).parents[3]
DAYS = [f"202601{day:02d}-033000" for day in range(1, 11)]
SLUGS = ("berg", "tal")


def make_run(runs: Path, night: str, finished: tuple[str, ...] = SLUGS, promote: bool = True) -> RunFolder:
    """A run of which some regions have ended."""
    run = RunFolder(runs / f"run-shop-{night}")
    for slug in SLUGS:
        run.region(slug).path.mkdir(parents=True)
        if slug in finished:
            folder = place_champion(runs, night, slug)
            Journal(folder.journal).append("settled", **asdict(TrialOutcome(None, Status.OK, value=0.1)))
            if promote:
                promote_region(folder, spec_of(slug))
    named = {"study": "shop", "run": str(run.path), "metric": "ndcg@20", "sha256": {}}
    run.manifest.write_text(json.dumps(named | {"regions": {slug: slug.title() for slug in SLUGS}}))
    (run.path / "data.bin").write_bytes(b"0" * 100_000)
    return run


@pytest.fixture
def study(tmp_path):
    """A study with a run a night, ten nights."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/study.yaml").write_text("study: shop\n")
    for night in DAYS:
        make_run(tmp_path / "shop/runs", night)
    return tmp_path / "shop"


def nights_of(study):
    return sorted(path.name.removeprefix("run-shop-") for path in (study / "runs").glob("run-*"))


def call(study, *words):
    return main(["clean", str(study), *words])


def registry_of(study):
    return open_registry(study / "runs", "shop")


def everything(folder):
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_without_yes_nothing_is_changed_and_all_of_it_is_said(study, capsys):
    before = everything(study)
    assert call(study) == 0
    shown = capsys.readouterr()
    assert everything(study) == before and nights_of(study) == DAYS
    assert "shop: would be removed" in shown.out and "nothing was changed; --yes removes them" in shown.err
    assert [night for night in DAYS if f"run-shop-{night}" in shown.out] == DAYS[:3]


def test_the_newest_stay(study, capsys):
    assert call(study, "--keep", "4", "--yes", "--json") == 0
    done = json.loads(capsys.readouterr().out)
    assert nights_of(study) == DAYS[6:] and done["removed"]
    gone = [item for item in done["items"] if item["goes"]]
    assert [Path(item["path"]).name for item in gone] == [f"run-shop-{night}" for night in DAYS[5::-1]]
    # models are in the registry, too, and stay there
    assert 6 * 100_000 <= done["frees"] < sum(item["bytes"] for item in gone)
    assert registry_of(study).current("berg").version == DAYS[-1]


def test_younger_ones_stay_whatever_their_number(study):
    for night in DAYS[:4]:
        os.utime(RunFolder(study / "runs" / f"run-shop-{night}").manifest, (0, 0))
    assert call(study, "--keep", "0", "--keep-days", "30", "--yes") == 0
    assert nights_of(study) == DAYS[4:]


def test_the_newest_finished_run_of_each_region_and_what_serves_stay(study, capsys):
    runs = study / "runs"
    make_run(runs, "20260201-033000", finished=("berg",), promote=False)
    make_run(runs, "20260202-033000", finished=())
    make_run(runs, "20260203-033000", finished=())
    roll_back(registry_of(study), {"berg": DAYS[2]})
    roll_back(registry_of(study), {"tal": DAYS[5]})
    pin(registry_of(study), "tal")
    assert call(study, "--keep", "1", "--yes") == 0
    assert nights_of(study) == [DAYS[2], DAYS[5], DAYS[-1], "20260201-033000", "20260203-033000"]
    said = capsys.readouterr().err
    assert "run-shop-20260201-033000 stays: the newest finished run of berg" in said
    assert f"run-shop-{DAYS[2]} stays: has made the champion of berg" in said


def test_what_serves_keeps_its_run_though_it_cannot_be_read(study):
    roll_back(registry_of(study), {"berg": DAYS[2]})
    (registry_of(study).path / "berg" / DAYS[2] / "champion.json").write_text("{")
    assert call(study, "--keep", "1", "--yes") == 0
    assert nights_of(study) == [DAYS[2], DAYS[-1]]


def test_a_run_in_progress_stays(study, capsys):
    run = RunFolder(study / "runs" / f"run-shop-{DAYS[0]}")
    dagman_log(run.study_dag).write_text("000 (007.000.000) 2026-01-01 03:30:00 Job submitted from host: <1>\n...\n")
    with patch("regiondag.pool.pool.find_pool", return_value=None):
        assert call(study, "--keep", "8", "--yes") == 0
    assert nights_of(study) == [DAYS[0], *DAYS[2:]]
    assert "is still in progress by its log: job 7 has not ended" in capsys.readouterr().err


def test_a_run_that_is_submitted_meanwhile_stays(study):
    meant = find_study(study)
    plan = plan_clean(meant, registry_of(study), Rule(runs=9), None)
    log = dagman_log(RunFolder(study / "runs" / f"run-shop-{DAYS[0]}").study_dag)
    log.write_text("000 (007.000.000) 2026-01-01 03:30:00 Job submitted from host: <1>\n...\n")
    [failed] = [item for item in clean(plan, registry_of(study), None, lambda *_: None).items if item.error]
    assert "in progress" in failed.error and nights_of(study) == DAYS


def test_links_are_not_followed(study, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(study / "runs" / f"run-shop-{DAYS[0]}", elsewhere)
    (study / "runs" / f"run-shop-{DAYS[0]}").symlink_to(elsewhere)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").touch()
    (study / "runs" / f"run-shop-{DAYS[1]}" / "away").symlink_to(tmp_path / "precious")
    assert call(study, "--keep", "1", "--yes") == 0
    assert nights_of(study) == [DAYS[0], DAYS[-1]] and (elsewhere / "manifest.json").exists()
    assert (tmp_path / "precious/file").exists() and "stays: is a link" in capsys.readouterr().err


def test_other_studies_and_folders_without_a_manifest_are_left_alone(study, capsys):
    runs = study / "runs"
    for name in ("run-other-20250101-000000", "run-shop-20250101-000000", "run-shop-2-20250101-000000", "notes"):
        (runs / name).mkdir()
    (runs / "run-shop-20250102-000000").mkdir()
    (runs / "run-shop-20250102-000000" / "manifest.json").write_text("{")
    assert call(study, "--keep", "1", "--yes") == 0
    assert sorted(path.name for path in runs.iterdir() if path.is_dir()) == [
        "champions", "notes", "run-other-20250101-000000", "run-shop-2-20250101-000000", "run-shop-20250101-000000",
        "run-shop-20250102-000000", f"run-shop-{DAYS[-1]}",
    ]  # fmt: skip
    assert "run-shop-20250102-000000 stays: its manifest.json cannot be read" in capsys.readouterr().err


def test_what_cannot_be_removed_is_named_and_the_rest_goes_on(study, capsys):
    if os.geteuid() == 0:
        os.chown(study / "runs" / f"run-shop-{DAYS[1]}", 12345, -1)
    real, runs = shutil.rmtree, study / "runs"

    def refuse(path, *more, **options):
        if f"run-shop-{DAYS[3]}" in str(path):
            raise PermissionError(13, "Permission denied", str(path / "data.bin"))
        real(path, *more, **options)

    with patch("shutil.rmtree", refuse), patch("os.geteuid", return_value=os.geteuid() or 777):
        for path in runs.glob("*"):
            if os.geteuid() == 777 and path.name != f"run-shop-{DAYS[1]}":
                os.chown(path, 777, -1)
        assert call(study, "--keep", "5", "--yes") == 1
    said = capsys.readouterr().err
    assert f"run-shop-{DAYS[3]}: stays: " in said and "Permission denied" in said
    left = [DAYS[1]] if os.geteuid() == 0 else []
    assert nights_of(study) == [*left, *DAYS[5:]]
    assert not left or f"run-shop-{DAYS[1]}: stays: belongs to user 12345" in said
    assert call(study, "--keep", "5", "--yes") == 0  # what was left of it, and the other user's, as root
    assert nights_of(study) == DAYS[5:] and not list(runs.glob(".run-*"))


def test_what_a_killed_generate_has_left_goes_after_a_day(study):
    old, new = study / "runs/.run-shop-20260101-000000.7.part", study / "runs/.run-shop-20260101-000000.8.part"
    for part in (old, new):
        part.mkdir()
        (part / "file").touch()
    os.utime(old, (0, 0))
    assert call(study, "--keep", "100", "--yes") == 0
    assert new.exists() and not old.exists()


def test_old_versions_go_but_for_what_serves_served_before_or_is_pinned(study):
    registry = registry_of(study)
    roll_back(registry, {"berg": DAYS[3]})
    roll_back(registry, {"tal": DAYS[1]})
    pin(registry, "tal")
    assert call(study, "--keep", "100", "--keep-champions", "2", "--yes") == 0
    assert registry.names("berg") == [DAYS[9], DAYS[8], DAYS[3], DAYS[2]]
    assert registry.names("tal") == [DAYS[9], DAYS[8], DAYS[1], DAYS[0]]
    assert registry.current("berg").version == DAYS[3] and registry.current("tal").pinned
    assert nights_of(study) == DAYS
    assert call(study, "--keep", "100", "--keep-champions", "2", "--yes") == 0


def test_killed_before_any_step_no_half_run_looks_whole_and_the_next_goes_on(tmp_path):
    program = [sys.executable, "-m", "tests.workflows.update.test_clean"]
    whole = None
    for step in range(0, 400, 9):
        study = tmp_path / str(step)
        study.mkdir()
        (study / "study.yaml").write_text("study: shop\n")
        for night in DAYS[:3]:
            run = make_run(study / "runs", night)
        whole = whole or {path.relative_to(run.path) for path in run.path.rglob("*")}
        ended = subprocess.run([*program, str(step), study], cwd=ROOT, check=False)
        for one in earlier_runs(study / "runs", "shop"):
            assert {path.relative_to(one.path) for path in one.path.rglob("*")} == whole
        for slug in SLUGS:
            assert not registry_of(study).damages(slug)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL
        assert call(study, "--keep", "1", "--keep-champions", "1", "--yes", "--quiet") == 0
        assert nights_of(study) == DAYS[2:3] and not list((study / "runs").rglob(".*"))
    assert step > 20


if __name__ == "__main__":  # number of the step, study: the process is killed there
    kill = at_step(int(sys.argv[1]), lambda: os.kill(os.getpid(), signal.SIGKILL), ((os, "unlink"), (os, "rmdir")))
    with kill:
        sys.exit(call(Path(sys.argv[2]), "--keep", "1", "--keep-champions", "1", "--yes", "--quiet"))
