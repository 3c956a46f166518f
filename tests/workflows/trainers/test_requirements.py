"""Lists of packages become environments, by the pip of this Python and wheels that lie here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnlib.contract import sha256_of
from nnlib.util.environment import set_up_environment
from nnlib.util.packed import list_files, unpack
from regiondag.errors import RegiondagError
from regiondag.study.program import Environment
from regiondag.trainers import requirements
from regiondag.trainers.requirements import build, key_of
from tests.workflows.trainers.wheels import make_wheel, write_requirements

VERSION = "{}.{}".format(*sys.version_info)
SITE = f"lib/python{VERSION}/site-packages"
OTHER = "3.11" if VERSION != "3.11" else "3.12"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    return tmp_path / "home/cache/environments"


def listed(folder: Path, *lines: str, **said: str) -> Environment:
    make_wheel(folder / "wheels")
    return Environment(write_requirements(folder, *lines), **said)


def test_what_is_built_works_wherever_it_is_unpacked(tmp_path):
    told: list[str] = []
    archive = build(listed(tmp_path), told.append)
    unpack(archive, tmp_path / "out")
    names = list(list_files(tmp_path / "out"))
    assert {"packages.txt", "pyvenv.cfg", "bin/greeting", f"{SITE}/greeting.py"} <= set(names)
    assert any(name.startswith(f"{SITE}/__pycache__/greeting.") for name in names), "no job has to compile it"
    assert (tmp_path / "out/packages.txt").read_text() == "greeting==1.0\n"
    place = set_up_environment(archive, "1", tmp_path)
    done = subprocess.run([place.folder / "bin/greeting"], capture_output=True, text=True, check=True)
    assert done.stdout == "auc=0.25\n"
    assert told[0] == f"environment: requirements.txt is built for Python {VERSION}"
    assert "environment: Installing collected packages: greeting" in told


def test_the_same_packages_give_the_same_bits_and_are_built_once(tmp_path, home):
    environment, told = listed(tmp_path), list[str]()
    archive = build(environment, told.append)
    before, seen = sha256_of(archive), len(told)
    assert build(environment, told.append) == archive and len(told) == seen, "it is there already"
    archive.unlink()
    time.sleep(1.1)  # files have other times now
    assert sha256_of(build(environment, told.append)) == before
    assert sorted(path.suffix for path in home.iterdir()) == [".lock", ".zip"]


def test_another_list_package_version_or_platform_is_another_environment(tmp_path):
    first = key_of(listed(tmp_path))
    assert first == key_of(listed(tmp_path))
    found = {first, key_of(listed(tmp_path, "greeting==1.0")), key_of(listed(tmp_path, python=OTHER))}
    found.add(key_of(listed(tmp_path, platform="manylinux_2_28_aarch64")))
    make_wheel(tmp_path / "wheels", text="VALUE = '0.5'\n")
    found.add(key_of(Environment(write_requirements(tmp_path))))
    assert len(found) == 5


@pytest.mark.parametrize("line", ["./pkg", "pkg/", "greeting @ file:pkg", "-r more.txt", "-c more.txt"])
def test_what_a_list_names_here_counts(tmp_path, line):
    (tmp_path / "pkg/src").mkdir(parents=True)
    (tmp_path / "more.txt").write_text("./pkg\n")
    module = tmp_path / "pkg/src/greeting.py"
    module.write_text("VALUE = 1")
    environment = listed(tmp_path, line)
    first = key_of(environment)
    for made in ("build/lib/greeting.py", "greeting.egg-info/PKG-INFO", "src/__pycache__/greeting.pyc", ".git/index"):
        (tmp_path / "pkg" / made).parent.mkdir(parents=True)
        (tmp_path / "pkg" / made).write_text("by a build")
    assert key_of(environment) == first
    module.write_text("VALUE = 2")
    assert key_of(environment) != first


def test_a_list_may_name_a_wheel_itself(tmp_path):
    make_wheel(tmp_path / "mine", text="VALUE = '0.75'\n")
    place = set_up_environment(build(listed(tmp_path, "./mine/greeting-1.0-py3-none-any.whl"), print), "1", tmp_path)
    assert "0.75" in (place.folder / SITE / "greeting.py").read_text()


def test_wheels_for_another_python_are_not_compiled(tmp_path):
    unpack(build(listed(tmp_path, python=OTHER), print), tmp_path / "out")
    assert f"version = {OTHER}" in (tmp_path / "out/pyvenv.cfg").read_text()
    names = list(list_files(tmp_path / "out"))
    assert f"lib/python{OTHER}/site-packages/greeting.py" in names
    assert not any("__pycache__" in name for name in names)


def test_where_pip_fails_its_last_lines_say_why_and_nothing_is_left(tmp_path, home):
    with pytest.raises(RegiondagError) as caught:
        build(listed(tmp_path, "nothing-of-that-name"), lambda _: None)
    said = str(caught.value)
    assert "requirements.txt: pip could not install it (exit code 1): " in said
    assert "No matching distribution found for nothing-of-that-name" in said and "\n" not in said
    assert [path.suffix for path in home.iterdir()] == [".lock"]


def test_what_is_editable_stays_here(tmp_path):
    with pytest.raises(RegiondagError, match="name its folder without -e"):
        key_of(listed(tmp_path, "-e ./pkg"))


def test_a_full_disk_leaves_nothing_half_made(tmp_path, home, monkeypatch):
    def fill(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28), "x")

    monkeypatch.setattr(requirements, "pack", fill)
    with pytest.raises(RegiondagError, match=r"could not be built: .*No space left on device; make room"):
        build(listed(tmp_path), lambda _: None)
    assert [path.suffix for path in home.iterdir()] == [".lock"]


def test_what_a_killed_build_has_left_is_in_nobodys_way(tmp_path, home):
    environment = listed(tmp_path)
    left = home / f"{key_of(environment)}.build"
    left.mkdir(parents=True)
    (left / "half").write_text("x")
    unpack(build(environment, print), tmp_path / "out")
    assert not left.exists() and "half" not in "".join(list_files(tmp_path / "out"))


def test_ctrl_c_leaves_nothing(tmp_path, home):
    """A package whose build would never end."""
    make_wheel(tmp_path / "wheels", "slow")
    code = (
        "import sys, time; from pathlib import Path; from regiondag.study.program import Environment; "
        "from regiondag.trainers import requirements as r; "
        "slow = 'import time; print(\"Collecting x\", flush=True); time.sleep(600)'; "
        "r._command = lambda *_: [sys.executable, '-c', slow]; "
        f"r.build(Environment(Path({str(write_requirements(tmp_path))!r})), lambda text: print(text, flush=True))"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        while "Collecting" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
    assert [path.suffix for path in home.iterdir()] == [".lock"]


def test_without_pip_uv_is_called_and_without_both_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(requirements.shutil, "which", lambda name: f"/opt/{name}")
    words = requirements._command(listed(tmp_path, python=OTHER), tmp_path / "work")
    assert words[:3] == ["/opt/uv", "pip", "install"] and words[words.index("--python-version") + 1] == OTHER
    monkeypatch.setattr(requirements.shutil, "which", lambda _: None)
    with pytest.raises(RegiondagError, match="neither pip nor uv is here"):
        requirements._command(listed(tmp_path), tmp_path / "work")


def test_what_nobody_has_asked_for_in_a_long_time_goes(tmp_path, home):
    first = build(listed(tmp_path), print)
    os.utime(first, (0, 0))
    second = build(listed(tmp_path, "greeting==1.0"), print)
    assert [path for path in home.iterdir() if path.suffix == ".zip"] == [second]


def test_what_uv_notes_of_the_time_is_not_packed(tmp_path):
    info = tmp_path / "greeting-1.0.dist-info"
    info.mkdir()
    (tmp_path / ".lock").touch()
    (info / "uv_cache.json").write_text('{"timestamp": 1}')
    (info / "RECORD").write_text("greeting.py,,\ngreeting-1.0.dist-info/uv_cache.json,sha256=x,1\n")
    requirements._forget_times(tmp_path)
    assert list(list_files(tmp_path)) == ["greeting-1.0.dist-info/RECORD"]
    assert (info / "RECORD").read_text() == "greeting.py,,\n"
