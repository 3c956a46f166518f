"""Which modules are mutated, and which tests are asked about each: read from the sources, nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

PACKAGES = ("workflows", "nnlib")

# Of nnlib: what computes, checks or decides, from values to values. Left out are files, devices and threads, whose
# faults other tests play; the passes of training, which the gradient check covers, no fast test; and the loops that
# Numba compiles, each of which must agree with its twin.
NNLIB = (
    "activations",
    "batches",
    "checker",
    "contract",
    "exclusion",
    "histories",
    "layers",
    "losses",
    "metrics",
    "optimizers",
    "purchases",
    "ranking",
    "rules",
    "settings",
    "spec",
    "targets",
    "texts",
    "topology",
    "updates",
)
NOT_OURS = {"workflows.tuning.skopt_method"}  # hands everything to scikit-optimize


def core(root: Path) -> list[str]:
    """Return the modules mutated by default.

    Those of `workflows` come from the layers that tests/test_layers.py holds them to: above the contract, below render.
    """
    layers = _layers(root)
    end = next(number for number, names in enumerate(layers) if "render" in names)
    names = [f"workflows.{name}" for layer in layers[1:end] for name in sorted(layer)]
    inside = {name: _below(root, name) for name in names}
    found = [module for name in names for module in inside[name] or [name] if module not in NOT_OURS]
    return [*found, *(f"nnlib.{name}" for name in NNLIB)]


def _layers(root: Path) -> list[set[str]]:
    tree = ast.parse((root / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "LAYERS":
            return list(ast.literal_eval(node.value))
    raise LookupError("tests/test_layers.py has no LAYERS")


def _below(root: Path, package: str) -> list[str]:
    folder = root.joinpath(*package.split("."))
    return sorted(f"{package}.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__")


def path_of(root: Path, module: str) -> Path:
    """Return the source of a module."""
    path = root.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports(path: Path) -> set[str]:
    """Return all that a file imports, also what is imported from modules; not what is for type checkers alone."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        waiting.extend(ast.iter_child_nodes(node))
    return found


def imports_of_packages(root: Path, packages: Iterable[str] = PACKAGES) -> dict[str, set[str]]:
    """Return what each module of the packages imports."""
    found = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = imports(path)
    return found


def nearest_tests(
    module: str, modules: Mapping[str, set[str]], tests: Mapping[Path, set[str]], stem: str | None = None
) -> list[Path]:
    """Return the tests that import a module; if there are none, those of the modules that import it, and so on.

    The one that is called like the module comes first, then the short ones: most mutants end there.
    """
    asked, names = {module}, {module}
    while names:
        found = [path for path, imported in tests.items() if imported & names]
        if found:
            own = f"test_{stem or module.rpartition('.')[2]}.py"
            return sorted(found, key=lambda path: (path.name != own, path.stat().st_size))
        names = {name for name, imported in modules.items() if imported & names} - asked
        asked |= names
    return []
