"""Who may import whom, read from the sources: a package imports those of lower lines only."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from regiondag.generate.bundle import list_manager_files

ROOT = Path(__file__).parents[1]
FOLDERS = {"regiondag": ROOT / "workflows", "nnlib": ROOT / "nnlib"}

# From the ground up; packages of one line do not know each other.
REGIONDAG = """
    errors trial
    util call
    study
    pool
    tuning champions
    run
    trainers
    config
    registry
    condor
    trials accounting audit
    report monitor
    notify
    update fleet
    generate node
    newstudy
    pipeline
    bake recommend
    api serve
    commands
    cli
    __main__
"""
NNLIB = """
    confusion plain_file
    contract
    errors epoch_log progress
    util
    spec
    data
    compiled
    ops
    model
    optim
    shards
    engines
    cpu gpu
    devices
    parallel
    importing evaluation
    families
    onnx_files
    inspection
    prediction
    training
    worker api
    commands
    cli
    __main__
"""
# What the manager's side takes of nnlib.
SHARED = (
    "confusion",
    "plain_file",
    "contract",
    "errors",
    "epoch_log",
    "progress",
    "util.columns",
    "util.files",
    "util.memory",
    "util.os_errors",
    "util.packed",
    "util.process",
    "util.terminal",
    "util.threads",
    "spec",
    "data.file",
    "data.merge",
    "families.family",
    "families.fit",
    "families.legal",
    "inspection.gpus_plan",
    "inspection.output_bound",
    "inspection.scaling",
    "families.model_file",
    "onnx_files.write",
    "importing",
    "prediction.recommended_file",
    "prediction.recommender",
    "util.parquet",
    "util.threads",
)
SHARED += (
    "training.checkpoint",
    "worker.container",
    "worker.downloads",
    "worker.program_archive",
    "worker.program_job",
)
SHARED += ("util.environment", "util.unpacking")

THIRD_PARTY = {
    "yaml": "regiondag.util.yaml_file",
    "jinja2": "regiondag.util.templates",
    "skopt": "regiondag.tuning.skopt_method",
    "platformdirs": "regiondag.util.user_dirs",
    "htcondor2": "regiondag.condor.client",
    "classad2": "regiondag.condor.classads",
    "rich": "nnlib.util.terminal",
    "netCDF4": "nnlib.util.netcdf",
    "duckdb": "nnlib.util.tables",
    "onnx": "nnlib.onnx_files.library",
    "PIL": "nnlib.importing.images.pictures",
    "numba": "nnlib.compiled.compiler",
    "llvmlite": "nnlib.compiled.compiler",
    "optuna": "regiondag.trials.optuna_space",
    "ConfigSpace": "regiondag.trials.config_space",
    "matplotlib": "regiondag.trials.plots",
    "sklearn": "regiondag.trials.importance",
    "argcomplete": "regiondag.util.completion",
    "pyarrow": "regiondag.util.frames",
    "polars": "regiondag.util.frames",
    "starlette": "regiondag.serve.app",
    "uvicorn": "regiondag.serve.http_server",
    "boto3": "regiondag.util.aws",
    "botocore": "regiondag.util.aws",
    "sqlalchemy": "regiondag.util.databases",
}
# Start-up paths and the manager's archive, which has the standard library alone until a model is fitted.
NO_NUMPY = (
    "nnlib.contract",
    "nnlib.epoch_log",
    "nnlib.progress",
    "nnlib.spec",
    "regiondag.study",
    "regiondag.run",
    "regiondag.registry.read",
    "regiondag.registry.promote",
    "regiondag.registry.incumbents",
    "regiondag.condor.events",
)
# No file, clock, process or global state.
PURE = (
    "regiondag.study",
    "regiondag.tuning",
    "regiondag.champions",
    "regiondag.condor.quoting",
    "nnlib.ops",
    "nnlib.optim",
    "nnlib.shards",
)
EFFECTS = {"os", "time", "subprocess", "shutil", "socket", "tempfile"}
HEAVY = {*THIRD_PARTY, "numpy", "scipy"} - {"numba", "llvmlite", "classad2", "botocore", "platformdirs"}


def sources(package: str) -> list[Path]:
    examples = FOLDERS[package] / "examples"  # scripts of users, which nothing imports
    return sorted(path for path in FOLDERS[package].rglob("*.py") if not path.is_relative_to(examples))


def name_of(path: Path) -> str:
    package = next(name for name, folder in FOLDERS.items() if path.is_relative_to(folder))
    inside = path.relative_to(FOLDERS[package]).with_suffix("").parts
    return ".".join((package, *inside)).removesuffix(".__init__")


MODULES = {name_of(path): path for package in FOLDERS for path in sources(package)}


@cache
def imports(path: Path) -> set[str]:
    """All modules imported anywhere in a file; those for type checkers alone do not count."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: relative import"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in inside}
    return found


def rank_of(module: str) -> int:
    """Return the line of a module's package; its top level, as in `from regiondag import __version__`, is below all."""
    package, *inside = module.split(".")
    if not inside:
        return -1
    lines = {"regiondag": REGIONDAG, "nnlib": NNLIB}[package].split("\n")
    found = [number for number, line in enumerate(lines) if inside[0] in line.split()]
    assert found, f"{module} has no line: add its package to {package.upper()}"
    return found[0]


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in packages)


@pytest.mark.source
@pytest.mark.parametrize("module", MODULES)
def test_packages_import_downwards(module):
    package, *inside = module.split(".")
    for other in imports(MODULES[module]):
        if other.split(".")[0] != package or not inside or other.split(".")[1:2] == inside[:1]:
            continue
        assert rank_of(other) < rank_of(module), f"{module} imports {other}, which is not below it"


@pytest.mark.parametrize("device", ["nnlib.cpu", "nnlib.gpu"])
def test_only_devices_knows_a_device(device):
    """So that nothing below it defaults to one, and what stands above it runs on both."""
    users = [name for name, path in MODULES.items() if any(is_in(one, (device,)) for one in imports(path))]
    assert {name for name in users if not is_in(name, (device,))} == {"nnlib.devices"}


@pytest.mark.source
@pytest.mark.parametrize("package", FOLDERS)
def test_a_folder_is_seen_at_a_glance(package):
    for folder in {path.parent for path in sources(package)}:
        modules = [path for path in folder.glob("*.py") if path.stem not in ("__init__", "__main__")]
        subpackages = [path for path in folder.iterdir() if (path / "__init__.py").exists()]
        most = 32 if folder.name == "commands" else 18  # one subcommand, one file
        assert len(modules) <= (12 if folder == FOLDERS[package] else most), folder
        assert len(subpackages) <= 28, folder


def test_the_manager_takes_little_of_nnlib_and_nnlib_nothing_of_the_manager():
    for module, path in MODULES.items():
        others = {name for name in imports(path) if name.split(".")[0] == "nnlib"}
        if module.split(".")[0] == "regiondag":
            left = {name for name in others if name != "nnlib" and not is_in(name.removeprefix("nnlib."), SHARED)}
            assert not left, f"{module} imports {left}"
        else:
            assert not {name.split(".")[0] for name in imports(path)} & {
                "regiondag",
                "htcondor2",
                "skopt",
                "yaml",
                "jinja2",
            }


@pytest.mark.source
@pytest.mark.parametrize(("library", "home"), THIRD_PARTY.items())
def test_each_library_is_imported_in_one_module(library, home):
    users = [name for name, path in MODULES.items() if library in {one.split(".")[0] for one in imports(path)}]
    assert users == [home]


@pytest.mark.source
@pytest.mark.parametrize("module", [name for name in MODULES if is_in(name, PURE)])
def test_the_core_is_pure(module):
    tree = ast.parse(MODULES[module].read_text())
    assert not {name.split(".")[0] for name in imports(MODULES[module])} & EFFECTS
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"open", "print", "input"}


def closure(module: str, seen: set[str]) -> Iterator[str]:
    """Yield a module and all of ours that it imports, at once or later."""
    if module in MODULES and module not in seen:
        seen.add(module)
        yield module
        for other in imports(MODULES[module]):
            yield from closure(other, seen)


def test_what_travels_in_the_managers_archive_imports_nothing_of_ours_that_stays():
    """An editable install would find it all the same, and hide that PRE and POST fail elsewhere."""
    packed = {name_of(path) for path in list_manager_files().values() if path.suffix == ".py"}
    assert set(closure("regiondag.node.main", set())) <= packed


def test_what_travels_with_dagmans_scripts_has_no_trainer_in_it():
    """Of nnlib they have the contract, and what reads and writes files: PRE and POST know no way of training."""
    ours = {"confusion", "contract", "epoch_log", "errors", "plain_file", "progress", "spec", "util"}
    found = {one.split(".")[1] for one in closure("regiondag.node.main", set()) if one.startswith("nnlib.")}
    assert found <= ours, found - ours


def test_who_trains_a_region_is_asked_and_not_told_apart():
    """Whatever differs between nnlib and programs of the user's stands in one package, behind one interface."""
    seam = ("regiondag.trainers", "regiondag.commands.trainer")  # which tries programs, and nothing else
    for module, path in MODULES.items():
        if module.split(".")[0] == "regiondag" and not is_in(module, seam):
            seen = [one.lineno for one in ast.walk(ast.parse(path.read_text())) if is_of_program(one)]
            assert not seen, f"{module}: lines {seen}: ask trainers.trainer_of(region), or jobs_of(spec)"


def is_of_program(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "program"


@pytest.mark.parametrize("package", NO_NUMPY)
def test_what_starts_often_starts_without_numpy(package):
    for module in (name for name in MODULES if is_in(name, (package,))):
        for one in closure(module, set()):
            assert not {name.split(".")[0] for name in imports(MODULES[one])} & HEAVY - {"yaml"}, f"{module} by {one}"


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from regiondag.cli import build_parser; build_parser().format_help();"
        f"print(sorted({HEAVY!r} & {{m.split('.')[0] for m in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
