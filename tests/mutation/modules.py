"""Which modules are mutated, and which tests are asked about each: read from the sources, nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

FOLDERS = {"regiondag": "workflows", "nnlib": "nnlib"}  # of the packages

# What computes, checks or decides, from values to values: packages, and modules of others. Left out are files, devices
# and threads, whose faults other tests play; the passes of training, which the gradient check covers, no fast test; and
# the loops that Numba compiles, each of which must agree with its twin.
CORE = (
    "regiondag.study",
    "regiondag.tuning",
    "regiondag.config",
    "regiondag.accounting.prices",
    "regiondag.accounting.right_size",
    "regiondag.accounting.usage",
    "regiondag.audit.compare",
    "regiondag.condor.events.attempts",
    "regiondag.condor.events.text",
    "regiondag.condor.holds",
    "regiondag.condor.matching",
    "regiondag.generate.plan",
    "regiondag.run.history",
    "regiondag.run.journal",
    "regiondag.run.layout",
    "regiondag.run.observations",
    "regiondag.run.region_spec",
    "regiondag.run.region_state",
    "regiondag.trials.query",
    "regiondag.trials.rows",
    "regiondag.update.crontab",
    "regiondag.util.schema",
    "regiondag.util.yaml_file",
    "nnlib.contract",
    "nnlib.cpu.optimizer",
    "nnlib.cpu.updates",
    "nnlib.evaluation.metrics",
    "nnlib.importing.histories",
    "nnlib.importing.purchases",
    "nnlib.importing.sorting",
    "nnlib.importing.splits",
    "nnlib.importing.string_ids",
    "nnlib.model.batches",
    "nnlib.ops",
    "nnlib.optim",
    "nnlib.prediction.exclusion",
    "nnlib.spec",
    "nnlib.training.settings",
)
NOT_OURS = {"regiondag.tuning.skopt_method"}  # hands everything to scikit-optimize


def core(root: Path) -> list[str]:
    """Return the modules mutated by default."""
    found = (module for name in CORE for module in _inside(root, name) or [name])
    return [module for module in found if module not in NOT_OURS]


def _inside(root: Path, package: str) -> list[str]:
    folder = _place(root, package)
    names = (path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.py") if path.stem != "__init__")
    return sorted(".".join((package, *parts)) for parts in names)


def _place(root: Path, module: str) -> Path:
    package, *inside = module.split(".")
    return root.joinpath(FOLDERS.get(package, package), *inside)


def path_of(root: Path, module: str) -> Path:
    """Return the source of a module."""
    path = _place(root, module)
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


def imports_of_packages(root: Path, packages: Iterable[str] = tuple(FOLDERS)) -> dict[str, set[str]]:
    """Return what each module of the packages imports."""
    found = {}
    for package in packages:
        folder = _place(root, package)
        for path in sorted(folder.rglob("*.py")):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
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
