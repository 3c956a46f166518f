"""What tests take from the project's modules is there: a renamed function is seen at once, not when slow tests run."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

ROOT = Path(__file__).parents[1]
FOLDERS = {"regiondag": "workflows", "nnlib": "nnlib", "scripts": "scripts", "tests": "tests"}
FILES = subprocess.run(["git", "ls-files", "tests/*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_names_are_there():
    files = FILES.split()
    assert len(files) > 500
    assert [line for file in files for line in list_missing(file, (ROOT / file).read_text())] == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("from nnlib.worker import job\njob.run", []),
        ("from nnlib.worker import job\njob._network_spec(1)", ["nnlib.worker.job has no _network_spec"]),
        ("from nnlib.worker import job\ndef f(job):\n    job.anything", []),
        ("import nnlib.worker.job\nnnlib.worker.job.run", []),
        ("from nnlib.worker.job import gone", ["nnlib.worker.job has no gone"]),
        ("from nnlib.gone import x", ["there is no nnlib.gone"]),
        ("from nnlib.worker import job\nm.setattr(job, 'gone', 1)", ["nnlib.worker.job has no gone"]),
        ("from nnlib.worker import job\nm.setattr(job, 'gone', 1, raising=False)", []),
    ],
)
def test_what_is_missing_is_said(text, missing):
    assert [line.split(": ", 1)[1] for line in list_missing("t.py", text)] == missing


def list_missing(file: str, text: str) -> Iterator[str]:
    tree = ast.parse(text)
    modules: dict[str, str] = {}  # by the name it has in the file
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module or ""):
            module = node.module or ""
            for alias in node.names:
                if not _find(module):
                    yield f"{file}:{node.lineno}: there is no {module}"
                elif not _has(module, alias.name):
                    yield f"{file}:{node.lineno}: {module} has no {alias.name}"
                elif _find(f"{module}.{alias.name}"):
                    modules[alias.asname or alias.name] = f"{module}.{alias.name}"
    for name in _bound(tree):
        modules.pop(name, None)  # somewhere in the file it is something else
    for node in ast.walk(tree):
        module, name = _use(node)
        if module in modules and not _has(modules[module], name):
            yield f"{file}:{node.lineno}: {modules[module]} has no {name}"  # type: ignore[attr-defined]


def _use(node: ast.AST) -> tuple[str, str]:
    """Return module and name of `module.name` and of `monkeypatch.setattr(module, "name", ...)`."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and isinstance(node.value, ast.Name):
        return node.value.id, node.attr
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
        match node.args[:2], node.keywords:
            case [ast.Name(id=module), ast.Constant(value=str(name))], []:
                return module, name
    return "", ""


def _bound(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _is_ours(module: str) -> bool:
    return module.split(".")[0] in FOLDERS


def _find(module: str) -> Path | None:
    first, *rest = module.split(".")
    place = ROOT.joinpath(FOLDERS[first], *rest)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py", place) if path.exists()), None)


def _has(module: str, name: str) -> bool:
    names = _names(module)
    return name in names or "__getattr__" in names or "*" in names or _find(f"{module}.{name}") is not None


@cache
def _names(module: str) -> frozenset[str]:
    """Return what the top level of a module binds, in branches too."""
    path = _find(module)
    names = {"__name__", "__file__", "__doc__", "__path__", "__dict__"}
    waiting: list[ast.AST] = [ast.parse(path.read_text())] if path and path.is_file() else []
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
                continue
            if isinstance(node, ast.alias):
                names.add(node.asname or node.name.split(".")[0])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            waiting.append(node)
    return frozenset(names)
