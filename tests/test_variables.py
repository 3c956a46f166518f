"""The check that every environment variable which is read is documented."""

from __future__ import annotations

import pytest

from tests.variables import constants_of, documented, read_in_python, read_in_shell


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import os\nx = os.environ['A_B']", ["A_B"]),
        ("os.environ.get('A', '')\nos.getenv('B')\nenviron.pop('C', None)", ["A", "B", "C"]),
        ("if 'A' in os.environ and 'B' not in environ: pass", ["A", "B"]),
        ("os.environ.get(NAME)", ["REGIONDAG_X"]),
        ("os.environ.get(names.NAME)", ["REGIONDAG_X"]),
        ("os.environ.get(UNKNOWN)", ["?UNKNOWN"]),
        ("os.environ.get('A' + x)\nos.environ[name]", ["?'A' + x", "?name"]),
        ("from os import environ as e, getenv, path", ["?from os import environ", "?from os import getenv"]),
        ("os.environ['A'] = 'x'\nother.get('B')\n{**os.environ}", []),
    ],
)
def test_reads_in_python(code, names):
    assert [name for _, name in read_in_python(code, {"NAME": "REGIONDAG_X"})] == names


def test_constants_are_the_module_s_texts():
    assert constants_of("A = 'x'\nB = 3\nC = D = 'y'\ndef f():\n    E = 'z'") == {"A": "x", "C": "y", "D": "y"}
    assert constants_of("A, B, C = 'x', 3, 'y'\n(D, E) = f()") == {"A": "x", "C": "y"}


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("echo $HOME ${X_Y:-1} $lower $1", ["HOME", "X_Y"]),
        ("A=1\necho $A\nB=2 true; echo $B", []),
        ("# $COMMENT\nfor N in 1 2; do echo $N; done; read -r L; echo $L", []),
        ("export E=1; echo $E ${#OTHER}", []),
        ("A_B=${A_B:-1}; : ${CD:=2}; CD=3", ["A_B", "CD"]),
    ],
)
def test_reads_in_shell_scripts(script, names):
    assert [name for _, name in read_in_shell(script)] == names


def test_tables_name_one_or_more_variables_a_line():
    page = "| `A_B` | what |\n| `C`, `D` | x |\n| `lower` | y |\nno `E` | z\n| F | g |\n"
    assert documented(page) == {"A_B", "C", "D", "lower"}
