"""Refuse code that reads an environment variable which no table documents: `python tests/variables.py`.

Tables are those of the READMEs, of docs/contributing/tests.md, and of docs/reference/variables.md, which has what users
set. Their lines begin with the names: | `NAME` | meaning |
Python is read as a syntax tree, the name of a constant as what it stands for, there or else anywhere in the project.
Of a shell script every capital name counts that it does not set itself.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLES = ("docs/reference/variables.md", "docs/contributing/tests.md", "ami/README.md", "scripts/bench/README.md")
FOLDERS = ("workflows", "nnlib", "scripts", "ami", "tests", "templates", ".ci")
READERS = ("get", "pop", "setdefault")
ROW = re.compile(r"^\| (`[A-Za-z0-9_*]+`(?:, `[A-Za-z0-9_*]+`)*) \|", re.MULTILINE)
IN_SHELL = re.compile(r"\$\{?([A-Z_][A-Z0-9_]+)")
WITH_DEFAULT = re.compile(r"\$\{([A-Z_][A-Z0-9_]+):?[-=?+]")  # who gives one reckons with the environment's
SET_IN_SHELL = re.compile(
    r"(?:^|[\s;(])(?:for |read (?:-r )?|export )?([A-Z_][A-Z0-9_]+)(?==|\s+in\s|\s*$|\+=)", re.MULTILINE
)


def read_in_python(text: str, constants: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Return the lines that read variables and which; `?` and the code where that cannot be told."""
    for node in ast.walk(ast.parse(text)):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environ(node.value):
            key = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            of_environ = node.func.attr in READERS and _is_environ(node.func.value)
            if of_environ or (node.func.attr == "getenv" and _is_os(node.func.value)):
                key = node.args[0]
        elif (
            isinstance(node, ast.Compare)
            and isinstance(node.ops[0], ast.In | ast.NotIn)
            and _is_environ(node.comparators[0])
        ):
            key = node.left
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            hidden = {alias.name for alias in node.names} & {"environ", "getenv"}
            yield from ((node.lineno, f"?from os import {name}") for name in sorted(hidden))
        if isinstance(key, ast.Constant):
            yield key.lineno, str(key.value)
        elif isinstance(key, ast.Name | ast.Attribute):
            name = key.id if isinstance(key, ast.Name) else key.attr
            yield key.lineno, constants.get(name, f"?{name}")
        elif key is not None:
            yield key.lineno, f"?{ast.unparse(key)}"


def read_in_shell(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines of a script that read variables which it does not set, and which."""
    own = set(SET_IN_SHELL.findall(text))
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.lstrip().startswith("#"):
            yield from ((number, name) for name in IN_SHELL.findall(line) if name not in own)
            yield from ((number, name) for name in WITH_DEFAULT.findall(line) if name in own)


def documented(text: str) -> set[str]:
    """Return the variables of a page's tables."""
    return {name.strip("`") for row in ROW.findall(text) for name in row.split(", ")}


def constants_of(text: str) -> dict[str, str]:
    """Return the text that each name of a constant stands for in a module."""
    found: dict[str, str] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = list(zip(target.elts, node.value.elts, strict=False))
                for name, value in pairs:
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                        found[name.id] = value.value
    return found


def main() -> int:
    """Print what is read and not documented; return 1 if there is any."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    python = {path: path.read_text(encoding="utf-8") for path in paths if path.suffix == ".py"}
    known = set().union(*(documented((ROOT / page).read_text(encoding="utf-8")) for page in TABLES))
    everywhere: dict[str, str] = {}
    for text in python.values():
        everywhere |= constants_of(text)
    troubles = []
    for path in paths:
        if path in python:
            found = read_in_python(python[path], everywhere | constants_of(python[path]))
        elif path.suffix == ".sh" or _is_script(path):
            found = read_in_shell(path.read_text(encoding="utf-8"))
        else:
            continue
        troubles += [f"{path.relative_to(ROOT)}:{line}: {name}" for line, name in found if name not in known]
    for trouble in troubles:
        print(f"{trouble}: is read and in no table of {', '.join(TABLES)}", file=sys.stderr)
    return int(bool(troubles))


def _is_environ(node: ast.expr) -> bool:
    """Whether something is os.environ or a mapping that stands for it."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in ("environ", "environment")


def _is_os(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "os"


def _is_script(path: Path) -> bool:
    if path.suffix:
        return False
    with path.open("rb") as file:
        return file.readline().startswith((b"#!/bin/sh", b"#!/bin/bash"))


if __name__ == "__main__":
    sys.exit(main())
