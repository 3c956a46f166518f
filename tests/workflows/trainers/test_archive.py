from __future__ import annotations

import os

from nnlib.contract import sha256_of
from nnlib.util.packed import list_files, unpack
from regiondag.study.program import Program
from regiondag.trainers.archive import digest_of, write_program


def test_an_archive_has_command_files_and_the_helper(tmp_path):
    (tmp_path / "train.py").write_text("1")
    program = Program(("python", "train.py"), (("lib/train.py", tmp_path / "train.py"),), (9,))
    write_program(program, tmp_path / "program.zip")
    unpack(tmp_path / "program.zip", tmp_path / "out")
    names = ["files/lib/train.py", "helper/regiondag/__init__.py", "helper/regiondag/trial.py", "program.json"]
    assert list(list_files(tmp_path / "out")) == names


def test_its_digest_is_of_contents_alone(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("1")
    program = Program(("python", "train.py"), (("train.py", file),))
    write_program(program, tmp_path / "program.zip")
    os.utime(file, (0, 0))
    assert digest_of(program) == sha256_of(tmp_path / "program.zip")
    file.write_text("2")
    assert digest_of(program) != sha256_of(tmp_path / "program.zip")
