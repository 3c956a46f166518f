"""Who may import whom, read from the sources: contract < pure core < render < effects < commands < CLI."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

from workflows.bundle import MANAGER_MODULES

ROOT = Path(__file__).parents[1]

LAYERS = (
    {"errors", "resources", "dirs", "features", "plaintext"},
    {
        "attempts",
        "eventtext",
        "endings",
        "yamlfile",
        "schema",
        "space",
        "study",
        "names",
        "clauses",
        "holds",
        "constraints",
        "pruning",
        "crontab",
        "promotion",
    },
    {
        "spacesection",
        "sections",
        "starts",
        "config",
        "plan",
        "tuning",
        "shape",
        "journal",
        "regionspec",
        "trialtable",
        "trialquery",
        "replaycheck",
        "firstpoint",
        "observations",
        "pricetable",
    },
    {"usage", "rightsize"},
    {"submit_syntax", "render", "pageshell", "bundle"},
    {
        "standing",
        "earlier",
        "neighbours",
        "datacheck",
        "pooling",
        "terminal",
        "pool",
        "provenance",
        "rundir",
        "eventleg",
        "eventfold",
        "eventlog",
        "joblog",
        "daglog",
        "machines",
        "initial",
        "runstart",
        "propose",
        "settle",
        "verify",
        "replay",
        "report",
        "reportdata",
        "reportfailures",
        "reportfigures",
        "reporttimeline",
        "page",
        "changes",
        "nightly",
        "aws",
        "bake",
        "fleet",
    },
    {"importance", "optunaexport"},
    {"plots"},
    {"condor", "preflight", "status", "submission", "trialverbs", "node", "stats", "explain", "whyqueue", "whytrial"},
    {"commands"},
    {"cli"},
    {"__main__"},
)
THIRD_PARTY = {
    "yaml": "workflows/yamlfile.py",
    "jinja2": "workflows/render.py",
    "skopt": "workflows/tuning/skopt_method.py",
    "platformdirs": "workflows/dirs.py",
    "htcondor2": "workflows/condor.py",
    "classad2": "workflows/condor.py",
    "netCDF4": "nnlib/netcdf.py",
    "optuna": "workflows/optunaexport.py",
    "matplotlib": "workflows/plots.py",
    "sklearn": "workflows/importance.py",
    "boto3": "workflows/aws.py",
    "botocore": "workflows/aws.py",
}
FROM_NNLIB = {
    "nnlib",
    "nnlib.contract",
    "nnlib.spec",
    "nnlib.datafile",
    "nnlib.epochlog",
    "nnlib.merge",
    "nnlib.errors",
    "nnlib.checkpoint",
    "nnlib.oserror",
    "nnlib.process",
}
HEAVY = {
    "numpy",
    "scipy",
    "skopt",
    "sklearn",
    "jinja2",
    "htcondor2",
    "netCDF4",
    "rich",
    "yaml",
    "optuna",
    "matplotlib",
    "boto3",
}


@cache
def imports(path: Path) -> set[str]:
    """All modules imported anywhere in a file; those for type checkers alone do not count."""
    found = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            found |= {f"{module}.{alias.name}" if module in ("workflows", "nnlib") else module for alias in node.names}
    return found


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def layer_of(module: str) -> int:
    for number, names in enumerate(LAYERS):
        if module in names:
            return number
    raise AssertionError(f"workflows.{module} has no layer: add it to LAYERS")


@pytest.mark.parametrize("path", sources("workflows"), ids=lambda p: p.stem)
def test_workflows_import_downwards(path):
    inside = path.relative_to(ROOT / "workflows").with_suffix("").parts
    if inside == ("__init__",):
        return
    own = layer_of(inside[0])
    for module in imports(path):
        parts = module.split(".")
        if parts[0] == "nnlib":
            assert module in FROM_NNLIB or ".".join(parts[:2]) in FROM_NNLIB, f"{path.name} imports {module}"
        if parts[0] == "workflows" and len(parts) > 1 and not parts[1].startswith("__"):
            assert layer_of(parts[1]) <= own, f"{path.name} imports {module}, which lies above it"


@pytest.mark.parametrize("path", sources("nnlib"), ids=lambda p: p.stem)
def test_nnlib_knows_nothing_of_the_manager(path):
    roots = {module.split(".")[0] for module in imports(path)}
    assert not roots & {"workflows", "htcondor2", "classad2", "skopt", "jinja2", "yaml"}
    if path.stem == "contract":
        assert roots <= set(sys.stdlib_module_names)
    if path.stem in ("spec", "checker"):
        assert roots <= {*sys.stdlib_module_names, "nnlib"}


@pytest.mark.parametrize(("library", "home"), THIRD_PARTY.items())
def test_each_library_is_imported_in_one_module(library, home):
    users = [
        str(path.relative_to(ROOT))
        for path in [*sources("workflows"), *sources("nnlib")]
        if library in {module.split(".")[0] for module in imports(path)}
    ]
    assert users == [home]


def test_help_imports_nothing_heavy():
    import subprocess

    code = (
        "import sys; from workflows.cli import build_parser; build_parser().format_help();"
        f"print(sorted({HEAVY!r} & {{m.split('.')[0] for m in sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_what_travels_in_the_managers_archive_imports_nothing_of_ours_that_stays():
    """An editable install would find it all the same, and hide that PRE and POST fail elsewhere."""
    inside = {name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for name in MANAGER_MODULES}
    packages = {"workflows", "nnlib"}
    for name in MANAGER_MODULES:
        if name.endswith(".py"):
            ours = {module for module in imports(ROOT / name) if module.split(".")[0] in packages}
            left = {one for one in ours - inside if one.rpartition(".")[0] not in inside - packages}
            assert not left, f"{name} imports {left}, which workflows/bundle.py does not pack"
