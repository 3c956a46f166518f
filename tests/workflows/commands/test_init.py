"""The examples that `regiondag init` writes."""

from __future__ import annotations

import pytest

from regiondag.cli import main
from tests.support.example_data import files


@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_data_of_examples_are_as_they_were_made(path):
    assert path.read_text() == files()[path]


@pytest.mark.parametrize("name", ["command", "sklearn", "r", "lightgbm", "pytorch"])
def test_an_example_of_a_program_is_whole_and_short(tmp_path, capsys, name):
    folder = tmp_path / name
    assert main(["init", name, str(folder)]) == 0
    said = capsys.readouterr().err
    assert "regiondag run" in said and ("cd " in said) == (name in ("lightgbm", "pytorch"))
    if name == "lightgbm":
        (folder / "lib").mkdir()
    assert main(["validate", str(folder / "study.yaml")]) == 0
    assert "3 regions, 27 trials" in capsys.readouterr().out
    assert len((folder / "study.yaml").read_text().splitlines()) <= 20
    [program] = {*folder.glob("*.py"), *folder.glob("*.awk"), *folder.glob("*.R")}
    assert len(program.read_text().splitlines()) <= 40
