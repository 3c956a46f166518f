"""How PRE and POST start: without `site` until a package is asked for, and with all that was compiled already."""

from __future__ import annotations

import hashlib
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


def parts_of(codes: bytes) -> tuple[dict[str, tuple[str, bytes]], dict[str, bytes]]:
    modules, texts = marshal.loads(codes[len(MAGIC) :])  # noqa: S302
    return modules, texts


def texts_of(codes: bytes) -> dict[str, bytes]:
    return parts_of(codes)[1]


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
    codes = compiled.compile_start(archive, ("program",))
    assert any("__init__" in text for text in texts_of(codes))
    plain = call(pack(tmp_path, f"{POINT}; return 0"), "-u")
    assert plain.stdout.startswith("Point(x=1) True Untold(")
    for given in (None, codes, MAGIC + marshal.dumps(({}, {})), b"1234" + codes[len(MAGIC) :]):
        done = call(pack(tmp_path, f"{POINT}; return 0", given))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == plain.stdout


def test_code_of_the_archive_is_what_runs(tmp_path):
    texts = texts_of(compiled.compile_start(pack(tmp_path, POINT).read_bytes(), ("program",)))
    other = {text: marshal.dumps(compile("raise SystemExit(9)", "<string>", "exec")) for text in texts}
    assert call(pack(tmp_path, "return 0", MAGIC + marshal.dumps(({}, other)))).returncode == 9


def test_without_what_dataclasses_compile_a_run_is_packed_all_the_same(tmp_path):
    codes = compiled.compile_start(pack(tmp_path, POINT).read_bytes(), ("no_such_module",))
    assert parts_of(codes) == ({}, {})


def test_modules_are_those_of_the_archive_with_its_code_and_without(tmp_path):
    """Their files, their texts in tracebacks, and what lies beside them."""
    body = "from importlib.resources import files; import regiondag.node, regiondag.errors as one; "
    body += (
        "print(one.__file__.removesuffix('c'), len(one.__loader__.get_source(one.__name__)), regiondag.node.__path__, "
    )
    body += "(files('regiondag') / 'beside.txt').read_text(), type(one.__loader__).__name__); return 0"
    path = pack(tmp_path, body)
    own = {"regiondag/__init__.py": "", "regiondag/node/__init__.py": "", "regiondag/errors.py": "x = 1  # so many\n"}
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("regiondag/beside.txt", "beside")
        for name, text in own.items():
            archive.writestr(name, text)
            archive.writestr(f"{name}c", compiled.compile_module(name, text.encode()))
    plain = call(path)
    assert (plain.returncode, plain.stderr) == (0, "")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(CODES_FILE, compiled.compile_start(path.read_bytes(), ("regiondag.node", "regiondag.errors")))
    quick = call(path)
    assert (quick.returncode, quick.stderr) == (0, "")
    assert plain.stdout.endswith(" beside zipimporter\n") and quick.stdout.endswith(" beside _Packed\n")
    assert quick.stdout.split()[:-1] == plain.stdout.split()[:-1]


def test_code_of_modules_in_the_archive_is_what_runs(tmp_path):
    other = marshal.dumps(compile("def main():\n    return 9\n", "program.py", "exec"))
    codes = MAGIC + marshal.dumps(({"program": ("program.py", other)}, {}))
    assert call(pack(tmp_path, "return 0", codes)).returncode == 9


@pytest.mark.parametrize("size", [0, 5, 1 << 20])
def test_digests_are_the_same_with_openssl_and_without(tmp_path, size):
    (tmp_path / "bytes").write_bytes(b"x" * size)
    body = (
        f"import hashlib, io, sys; from hashlib import sha256; text = open({str(tmp_path / 'bytes')!r}, 'rb').read(); "
    )
    body += f"file = open({str(tmp_path / 'bytes')!r}, 'rb'); "
    body += (
        "print(sha256(text).hexdigest(), hashlib.file_digest(file, 'sha256').hexdigest(), '_hashlib' in sys.modules, "
    )
    body += "hashlib.file_digest(io.BytesIO(text), 'sha256').hexdigest(), hashlib.sha256().hexdigest(), "
    body += "hashlib.md5(text, usedforsecurity=False).hexdigest()); return 0"
    done = call(pack(tmp_path, body))
    text = b"x" * size
    own, md5 = hashlib.sha256(text).hexdigest(), hashlib.md5(text, usedforsecurity=False).hexdigest()
    assert done.stderr == ""
    assert done.stdout.split() == [own, own, str(size > 1 << 19), own, hashlib.sha256().hexdigest(), md5]


def test_modules_that_wait_are_the_real_ones_when_they_are_asked(tmp_path):
    """Also for who takes names of them one by one, and classes with typing's own kinds of fields."""
    body = (
        "from typing import Any, Protocol, runtime_checkable, ClassVar, get_type_hints; import typing, ast, secrets; "
    )
    body += "import inspect, urllib.parse; from urllib.parse import quote_from_bytes; from random import Random; "
    body += "class_ = dataclasses.make_dataclass('C', [('x', int), ('y', 'ClassVar[int]', 0)], namespace={}); "
    body += "print(Any is typing.Any, isinstance(runtime_checkable(type('P', (Protocol,), {})), type), "
    body += "ast.literal_eval('[1]'), len([secrets.randbits(8)]), quote_from_bytes(b'a b'), "
    body += (
        "inspect.signature(main), repr(inspect.cleandoc('  a')), type(Random(1)).__name__, urllib.parse.quote('x y')); "
    )
    body += "return 0"
    done = call(pack(tmp_path, body))
    assert (done.stderr, done.stdout) == ("", "True True [1] 1 a%20b () 'a' Random x%20y\n")


def test_numpy_is_the_same_behind_what_waits(tmp_path):
    body = "import numpy as np, inspect, typing; "
    body += "print(np.random.default_rng(1).integers(9), "
    body += "np.sort([2, 1]).tolist(), 'axis' in str(inspect.signature(np.sort)), type(typing).__name__, "
    body += "len(np.random.SeedSequence().entropy.to_bytes(32)), np.array.__doc__ is not None); return 0"
    done = call(pack(tmp_path, body))
    assert (done.stderr, done.stdout) == ("", "4 [1, 2] True module 32 True\n")


def test_the_environment_is_that_of_python_as_ever(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "beside.py").write_text("x = 1\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "more")}
    done = call(pack(tmp_path, "import beside; print('site' in sys.modules); return 0"), env=environment)
    assert (done.stdout, done.returncode) == ("False\n", 0)
