"""How PRE and POST start: without `site` until a package is asked for, with dataclasses that are compiled already."""

from __future__ import annotations

import importlib.util
import marshal
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from regiondag.generate import compiled
from regiondag.generate.compiled import CODES_FILE

START = Path(compiled.__file__).parents[1] / "node/start.py"
MAGIC = importlib.util.MAGIC_NUMBER
PROGRAM = """
import dataclasses, sys
@dataclasses.dataclass(frozen=True)
class Point:
    "A point."
    x: int
@dataclasses.dataclass
class Untold:
    x: int
def main():
    {body}
"""
POINT = "print(Point(1), Point(1) == Point(1), Untold.__doc__)"


def pack(folder: Path, body: str, codes: bytes | None = None) -> Path:
    path = folder / "code.pyz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("__main__.py", f"from start import start\nstart('program', '{CODES_FILE}')\n")
        archive.writestr("start.py", START.read_text())
        archive.writestr("program.py", PROGRAM.format(body=body))
        if codes is not None:
            archive.writestr(CODES_FILE, codes)
    return path


def texts_of(codes: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = marshal.loads(codes[len(MAGIC) :])  # noqa: S302
    return found


def call(path: Path, *flags: str, **more: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *(flags or ("-S",)), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("code", [0, 4, 75, 77])
def test_its_exit_code_is_the_programs_with_site_and_without(tmp_path, code):
    for flag in ("-S", "-u"):
        path = pack(tmp_path, f"print('said'); print('aside', file=sys.stderr); return {code}")
        done = call(path, flag)
        assert (done.returncode, done.stdout, done.stderr) == (code, "said\n", "aside\n")


def test_site_is_looked_for_when_a_package_is_and_once(tmp_path):
    body = "before = 'site' in sys.modules; import numpy, yaml; print(before, 'site' in sys.modules); return 3"
    done = call(pack(tmp_path, body))
    assert (done.returncode, done.stdout, done.stderr) == (3, "False True\n", "")


def test_what_is_nowhere_is_an_import_error_as_ever(tmp_path):
    body = "import copy, pickle, shutil, pathlib; print('site' in sys.modules); import no_such_package"
    done = call(pack(tmp_path, body))
    assert done.returncode == 1
    assert done.stdout == "False\n"
    assert "ModuleNotFoundError: No module named 'no_such_package'" in done.stderr


def test_a_full_disk_is_no_success(tmp_path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-S", pack(tmp_path, "print('x'); return 0")], stdout=full,
                              stderr=subprocess.DEVNULL, check=False)  # fmt: skip
    assert done.returncode == 120


def test_classes_are_the_same_with_the_archives_code_without_it_and_with_that_of_another_python(tmp_path):
    archive = pack(tmp_path, POINT).read_bytes()
    codes = compiled.compile_dataclasses(archive, ("program",))
    assert any("__init__" in text for text in texts_of(codes))
    plain = call(pack(tmp_path, f"{POINT}; return 0"), "-u")
    assert plain.stdout.startswith("Point(x=1) True Untold(")
    for given in (None, codes, MAGIC + marshal.dumps({}), b"1234" + codes[len(MAGIC) :]):
        done = call(pack(tmp_path, f"{POINT}; return 0", given))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == plain.stdout


def test_code_of_the_archive_is_what_runs(tmp_path):
    texts = texts_of(compiled.compile_dataclasses(pack(tmp_path, POINT).read_bytes(), ("program",)))
    other = {text: marshal.dumps(compile("raise SystemExit(9)", "<string>", "exec")) for text in texts}
    assert call(pack(tmp_path, "return 0", MAGIC + marshal.dumps(other))).returncode == 9


def test_without_what_dataclasses_compile_a_run_is_packed_all_the_same(tmp_path):
    codes = compiled.compile_dataclasses(pack(tmp_path, POINT).read_bytes(), ("no_such_module",))
    assert texts_of(codes) == {}


def test_the_environment_is_that_of_python_as_ever(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "beside.py").write_text("x = 1\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "more")}
    done = call(pack(tmp_path, "import beside; print('site' in sys.modules); return 0"), env=environment)
    assert (done.stdout, done.returncode) == ("False\n", 0)
