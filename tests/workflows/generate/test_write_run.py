from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnlib.gpu import kernels
from regiondag.condor.quoting import is_path
from regiondag.config.load import load_config
from regiondag.errors import ConfigError, RegiondagError
from regiondag.generate import bundle, compiled
from regiondag.generate.provenance import Commit, commit_of, read_commits
from regiondag.generate.write_run import create_run
from regiondag.study.init import choose_init
from tests.workflows.config.test_load import HOSTILE
from tests.workflows.conftest import STUDY, write_study


def create(study: Path, runs: Path, standing=None):
    config = choose_init(load_config(study), {}, standing or {})
    return create_run(config, runs, htcondor=(23, 9, 6), incumbents=standing or {}, progress=print)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_everything_the_run_needs_is_in_it(study_file, tmp_path):
    run = create(study_file, tmp_path / "runs")
    manifest = json.loads(run.manifest.read_text())
    assert manifest["regions"] == {"united-kingdom": "United Kingdom", "germany": "Germany"}
    # Archives, scripts, study.yaml; of both regions region.json, network, data; graphs and submit files; perhaps what
    # starts Python.
    assert len(manifest["sha256"]) == 2 + 3 + 1 + 2 * 6 + 3 + 2 * 3 + (not is_path(sys.executable))
    for name, digest in manifest["sha256"].items():
        assert hashlib.sha256((run.path / name).read_bytes()).hexdigest() == digest
    assert all(os.access(run.path / script, os.X_OK) for script in ("pre.sh", "post.sh", "train.sh"))
    assert [path.name for path in run.path.parent.iterdir()] == [run.path.name]


def test_only_its_owner_may_enter_a_run(study_file, tmp_path):
    """Whatever the umask: it holds a region's data, its models, and the programs that run as its owner."""
    before = os.umask(0o002)
    try:
        run = create(study_file, tmp_path / "runs")
    finally:
        os.umask(before)
    assert run.path.stat().st_mode & 0o777 == 0o700


def test_two_runs_in_one_second_have_two_names(study_file, tmp_path):
    assert len({create(study_file, tmp_path / "runs").path for _ in range(3)}) == 3


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_run_that_cannot_be_finished_leaves_nothing(study_file, tmp_path, monkeypatch, fault):
    def fail(*_):
        raise fault

    monkeypatch.setattr("regiondag.generate.write_run._write_json", fail)
    with pytest.raises((RegiondagError, KeyboardInterrupt)) as caught:
        create(study_file, tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []
    if isinstance(fault, OSError):
        assert "No space left" in str(caught.value)


def test_a_path_that_dagman_cannot_read_is_refused_before_anything_is_written(study_file, tmp_path):
    with pytest.raises(RegiondagError, match="--out"):
        create(study_file, tmp_path / "my runs")
    assert not (tmp_path / "my runs").exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_region_name_writes_outside_of_the_run(tmp_path, name):
    text = STUDY.replace("name: Germany", f"name: {json.dumps(name)}")
    study = write_study(tmp_path / "study", text)
    before = snapshot(tmp_path)
    try:
        run = create(study, tmp_path / "runs")
    except ConfigError:
        assert snapshot(tmp_path) == before
        return
    written = {path for path in snapshot(tmp_path) if path not in before}
    assert all(path.startswith(f"runs/{run.path.name}/") for path in written)
    assert len(list((run.path / "regions").iterdir())) == 2


def test_the_archives_are_named_by_their_sources_and_start(tmp_path):
    manager, worker = bundle.pack_manager(), bundle.pack_worker()
    (tmp_path / worker.name).write_bytes(worker.content)
    assert hashlib.sha256(worker.content).hexdigest()[:12] in worker.name
    code = "from regiondag.generate import bundle; print(bundle.pack_manager().name, bundle.pack_worker().name)"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "TZ": "Asia/Tokyo"}
    )
    assert other.stdout.split() == [manager.name, worker.name]
    helped = subprocess.run(
        [sys.executable, tmp_path / worker.name, "train", "--help"], capture_output=True, check=False
    )
    assert helped.returncode == 0


@pytest.mark.parametrize("own", [True, False])
def test_scripts_compile_nothing_unless_their_python_is_another_one(tmp_path, monkeypatch, own):
    compiled.compile_module.cache_clear()
    if not own:
        monkeypatch.setattr(importlib.util, "MAGIC_NUMBER", b"\x00\x00\r\n")
    archive = bundle.pack_manager()
    compiled.compile_module.cache_clear()
    (tmp_path / archive.name).write_bytes(archive.content)
    code = """
import builtins, contextlib, runpy, sys
real, compiled = builtins.compile, []
def watched(source, name, *others, **more):
    compiled.append(str(name))
    return real(source, name, *others, **more)
builtins.compile = watched
archive = sys.argv[1]
sys.argv = [archive, "pre"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
    runpy.run_path(archive, run_name="__main__")
sys.path.insert(0, archive)
import regiondag.node.main, regiondag.node.post, regiondag.node.pre, regiondag.node.pre_final
print(sum(name.endswith("node/main.py") for name in compiled), regiondag.node.main.__file__)
"""
    done = subprocess.run([sys.executable, "-I", "-c", code, tmp_path / archive.name], capture_output=True, text=True,
                          check=True)  # fmt: skip
    count, file = done.stdout.split()
    assert (int(count) == 0) == own
    assert file.startswith(f"{tmp_path / archive.name}/regiondag/node/main.py")


def test_jobs_find_the_kernels_in_their_archive(tmp_path):
    archive = tmp_path / bundle.pack_worker().name
    archive.write_bytes(bundle.pack_worker().content)
    program = "from nnlib.gpu import kernels; print(*kernels.read_signatures())"
    code = f"import sys; sys.path.insert(0, sys.argv[1]); {program}"
    done = subprocess.run([sys.executable, "-I", "-c", code, archive], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(kernels.read_signatures())
    assert {"gather", "output_sparse", "touched_update"} <= kernels.read_signatures().keys()


def test_the_manager_archive_holds_all_it_imports(study_file, tmp_path):
    """PRE runs without this checkout on its path."""
    run = create(study_file, tmp_path / "runs")
    archive = run.path / bundle.pack_manager().name
    command = [sys.executable, "-I", archive, "pre", run.path, "germany_t0000", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    done = subprocess.run([sys.executable, "-I", archive, "post", run.path, "report", "2", "1", "0"],
                          capture_output=True, text=True, check=False, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 1 and (run.report / "summary.md").exists(), done.stdout


def test_the_manifest_says_what_the_run_was_made_with(study_file, tmp_path):
    run = create_run(
        load_config(study_file),
        tmp_path / "runs",
        htcondor=(23, 9, 6),
        incumbents={},
        progress=print,
        image="SUITE=trixie",
    )
    manifest = json.loads(run.manifest.read_text())
    assert manifest["versions"]["htcondor"] == "23.9.6"
    assert {"regiondag", "python", "numpy", "scipy", "netCDF4", "jinja2", "PyYAML"} <= set(manifest["versions"])
    assert manifest["image"] == "SUITE=trixie"
    assert manifest["sources"]["regions/germany/data.test.nc"] == str(tmp_path / "data" / "germany.test.nc")
    assert "study" not in manifest["git"]


def git(folder, *words):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="no Git")
def test_a_study_in_a_checkout_names_its_commit_and_what_was_changed(study_file, tmp_path, monkeypatch):
    git(tmp_path, "init")
    git(tmp_path, "add", "study.yaml")
    git(tmp_path, "commit", "-m", "first")
    marker = tmp_path / "run-by-git"
    git(tmp_path, "config", "core.fsmonitor", f"touch {marker}")  # of a checkout that somebody else made
    clean = read_commits(study_file)["study"]
    assert len(clean.commit) == 40 and clean.dirty is False
    study_file.write_text(STUDY + "\n")
    assert read_commits(study_file)["study"] == Commit(clean.commit, dirty=True)
    assert commit_of(tmp_path / "data", top=True) is None  # a folder in a checkout is not the checkout
    assert not marker.exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_commits(study_file) == {}
