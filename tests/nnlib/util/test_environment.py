"""Environments that go with a program's job: real `nnlib train`, as HTCondor calls it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from nnlib.contract import ENVIRONMENT_FILE, PROGRAM_FILE, TRIAL_FILE, Exit, Result, Status, sha256_of, trial_to_json
from nnlib.errors import MachineError, NnlibError
from nnlib.util.environment import MARK, PLACE, SETTINGS, Environment, set_up_environment, version_of
from nnlib.util.packed import pack
from tests.nnlib.worker.test_program_job import TRIAL, result_of, start, write_job

VERSION = "{}.{}".format(*sys.version_info)
SITE = f"lib/python{VERSION}/site-packages"
IMPORTS = "import greeting, sys\nprint('auc=' + greeting.VALUE)\n"


def make_tree(folder: Path, **files: str) -> Path:
    """Make an environment by hand: its Python is a shell script around this one."""
    (folder / "bin").mkdir(parents=True)
    (folder / "mine").mkdir()
    (folder / "mine/greeting.py").write_text("VALUE = '0.75'\n")
    path = 'PYTHONPATH=$(dirname "$0")/../mine:$PYTHONPATH'
    script = f'#!/bin/sh\n{path} exec {shlex.quote(sys.executable)} "$@"\n'
    for name, text in {"python3": script, **files}.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    (folder / "bin/python").symlink_to("python3")
    return folder


def pack_tree(folder: Path, archive: Path, inside: str = ".") -> Path:
    with tarfile.open(archive, "w:gz") as tape:
        tape.add(folder, inside)
    return archive


def pack_packages(archive: Path, version: str = VERSION) -> Path:
    settings = f"include-system-site-packages = false\nversion = {version}\n"
    script = (
        b"#!/bin/sh\n'''exec' \"$(dirname \"$0\")/python\" \"$0\" \"$@\"\n' '''\nimport greeting\nprint('auc=0.5')\n"
    )
    (archive.parent / "script").write_bytes(script)
    (archive.parent / "script").chmod(0o755)
    files: dict[str, Path | bytes] = {
        SETTINGS: settings.encode(),
        f"{SITE}/greeting.py": b"VALUE = '0.25'\n",
        "bin/greet": archive.parent / "script",
    }
    pack(files, archive)
    return archive


def run(folder: Path, code: str, archive: Path, *words: str, command: tuple[str, ...] = ()) -> Result:
    write_job(folder, code, command=command)
    if not (folder / ENVIRONMENT_FILE).exists():
        archive.rename(folder / ENVIRONMENT_FILE)
    digests = {name: sha256_of(folder / name) for name in (PROGRAM_FILE, ENVIRONMENT_FILE)}
    (folder / TRIAL_FILE).write_text(trial_to_json(replace(TRIAL, sha256=digests)))
    out, err = (process := start(folder, *words)).communicate(timeout=60)
    result = result_of(folder)
    assert process.returncode in (*Exit,), (out, err)
    return result


@pytest.mark.parametrize("inside", [".", "env"])
def test_python_is_that_of_the_environment(tmp_path, inside):
    archive = pack_tree(make_tree(tmp_path / "tree"), tmp_path / "env.tar.gz", inside)
    result = run(tmp_path / "job", IMPORTS, archive)
    assert (result.status, result.value, result.reason) == (Status.OK, 0.75, "")


def test_packages_are_used_by_the_python_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", str(Path(__file__).parents[3])
    )  # where nnlib is; of the machine, not of the program
    code = IMPORTS + "import os\nassert sys.prefix == os.environ['VIRTUAL_ENV'], sys.prefix\n"
    code += (
        "try:\n    import numpy\nexcept ImportError:\n    sys.exit(0)\nsys.exit('what the machine has is not seen')\n"
    )
    result = run(tmp_path / "job", code, pack_packages(tmp_path / "env.zip"))
    assert (result.status, result.value, result.reason) == (Status.OK, 0.25, "")


def test_its_scripts_are_found_first(tmp_path):
    result = run(tmp_path / "job", "", pack_packages(tmp_path / "env.zip"), command=("greet",))
    assert (result.status, result.value) == (Status.OK, 0.5)


def test_a_virtual_environment_that_was_packed_takes_the_python_of_this_machine(tmp_path):
    words = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")]
    subprocess.run(words, check=True)
    (tmp_path / "venv" / SITE / "greeting.py").write_text("VALUE = '0.5'")
    settings = tmp_path / "venv" / SETTINGS
    settings.write_text(settings.read_text().replace("home = ", "home = /nowhere"))
    result = run(tmp_path / "job", IMPORTS, pack_tree(tmp_path / "venv", tmp_path / "env.tar.gz"))
    assert (result.status, result.value, result.reason) == (Status.OK, 0.5, "")


def test_one_of_another_version_is_for_other_machines(tmp_path):
    result = run(tmp_path / "job", IMPORTS, pack_packages(tmp_path / "env.zip", "3.7"))
    assert result.status is Status.MACHINE
    assert f"is for Python 3.7, this machine's is {VERSION} (/" in result.reason


def test_conda_unpack_runs_with_its_python_before_the_program(tmp_path):
    unpack = "#!/usr/bin/env nothing\nimport greeting, pathlib\npathlib.Path('unpacked').write_text(greeting.VALUE)\n"
    archive = pack_tree(make_tree(tmp_path / "tree", **{"conda-unpack": unpack}), tmp_path / "env.tar.gz")
    code = "import os\nprint('auc=' + open(os.environ['CONDA_PREFIX'] + '/unpacked').read())\n"
    assert run(tmp_path / "job", code, archive).value == 0.75


def test_what_cannot_be_put_in_place_says_why(tmp_path):
    archive = pack_tree(make_tree(tmp_path / "tree", **{"conda-unpack": "raise SystemExit('no room')"}), tmp_path / "a")
    with pytest.raises(MachineError, match="ended with 1: no room"):
        set_up_environment(archive, "1", tmp_path)


def test_a_link_that_does_not_go_with_it_is_named(tmp_path):
    tree = make_tree(tmp_path / "tree")
    (tree / "bin/tool").symlink_to("/usr/bin/env")
    with pytest.raises(NnlibError, match="bin/tool is a link to /usr/bin/env"):
        set_up_environment(pack_tree(tree, tmp_path / "a"), "1", tmp_path)


def test_what_is_no_archive_stops_the_region(tmp_path):
    (tmp_path / "a").write_text("no archive at all")
    with pytest.raises(NnlibError, match=r"trainer\.environment: a: "):
        set_up_environment(tmp_path / "a", "1", tmp_path)
    assert not (tmp_path / f"{PLACE}.whole").exists()


def test_it_is_unpacked_once_for_a_job_that_is_started_again_here(tmp_path):
    code = "import sys\nfrom pathlib import Path\nPath('checkpoint/x').write_text('1')\nsys.exit(85)\n"
    job = tmp_path / "job"
    result = run(job, code, pack_packages(tmp_path / "env.zip"))
    assert result.status is Status.EVICTED
    assert (job / PLACE / MARK).read_text() == sha256_of(job / ENVIRONMENT_FILE)
    (job / PLACE / SITE / "greeting.py").write_text("VALUE = '0.125'")
    place = set_up_environment(job / ENVIRONMENT_FILE, sha256_of(job / ENVIRONMENT_FILE), job)
    assert (place.folder / SITE / "greeting.py").read_text() == "VALUE = '0.125'"
    assert run(job, IMPORTS, job / ENVIRONMENT_FILE).value == 0.125
    (job / PLACE / MARK).write_text("of another one")
    assert run(job, IMPORTS, job / ENVIRONMENT_FILE).value == 0.25


def test_who_is_told_to_leave_does_not_unpack_to_the_end(tmp_path):
    def leave() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        set_up_environment(pack_packages(tmp_path / "env.zip"), "1", tmp_path, leave)
    assert not (tmp_path / f"{PLACE}.whole").exists() and not (tmp_path / PLACE).exists()


def test_variables_are_those_of_the_machine_without_its_python(tmp_path):
    made = Environment(tmp_path)
    told = made.variables({"PATH": "/bin", "HOME": "/x", "PYTHONHOME": "/y", "PYTHONPATH": "/z"})
    path = os.pathsep.join([str(tmp_path / "bin"), "/bin"])
    assert told == {"PATH": path, "HOME": "/x", "CONDA_PREFIX": str(tmp_path), "PYTHONNOUSERSITE": "1"}
    assert made.python == tmp_path / "bin/python"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text("")
    assert made.python == tmp_path / "bin/python3"


def test_the_version_of_a_virtual_environment():
    assert version_of("home = /usr/bin\nversion = 3.11.2\n") == "3.11"
    assert version_of("version_info = 3.13.5.final.0") == "3.13"
    assert version_of("home = /usr/bin") == ""


def test_an_environment_is_part_of_what_a_program_is():
    from nnlib.worker.program_archive import Program, program_to_json

    assert "environment" not in json.loads(program_to_json(Program(("a",))))
    assert json.loads(program_to_json(Program(("a",), environment="list 1")))["environment"] == "list 1"
