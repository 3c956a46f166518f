"""What nnlib may import, read from its source."""

import ast
import subprocess
import sys
from pathlib import Path

import nnlib

MODULES = sorted(Path(nnlib.__file__).parent.rglob("*.py"))
ONE_MODULE = {
    "netCDF4": "netcdf",
    "rich": "terminal",
    "numba": "compiler",
    "llvmlite": "compiler",
    "threadpoolctl": "threads",
    "cupy": "runtime",
    "duckdb": "tables",
    "onnx": "library",
    "PIL": "pictures",
}
STANDARD_ONLY = (
    *("cli", "contract", "errors", "spec.json_section", "spec.layers", "spec.network", "spec.topology", "spec.types"),
    *("training.settings", "training.stop", "util.threads", "worker.main"),
)
NOTHING_HEAVY = 'assert not {"numpy", "scipy", "netCDF4", "rich", "numba", "cupy", "duckdb", "onnx"} & set(sys.modules)'


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def test_only_these_libraries_each_in_its_place():
    for path in MODULES:
        foreign = set(imported(path)) - set(sys.stdlib_module_names) - {"nnlib", "__future__"}
        assert foreign <= {"numpy", "scipy", *ONE_MODULE}, path.name
        for library, module in ONE_MODULE.items():
            assert library not in foreign or path.stem == module, path.name


def test_the_managers_modules_need_the_standard_library_only():
    names = [f"nnlib.{name}" for name in STANDARD_ONLY]
    subprocess.run([sys.executable, "-c", f"import sys, {', '.join(names)}\n{NOTHING_HEAVY}"], check=True)


def test_no_library_is_needed_to_find_that_an_input_did_not_arrive(make_trial):
    trial = make_trial()
    (trial.parent / "held.nc").unlink()
    lines = [
        "import sys, pathlib, nnlib.worker.main",
        "assert nnlib.worker.main.train(pathlib.Path(sys.argv[1])) == 75",
    ]
    subprocess.run([sys.executable, "-c", "\n".join([*lines, NOTHING_HEAVY]), trial], check=True)


def test_the_examples_network_is_legal():
    from nnlib.spec.network import parse_network, placeholders, read_json, substitute

    path = Path(nnlib.__file__).parent.parent / "workflows" / "examples" / "retail" / "network.json"
    raw = read_json(path)
    assert set(placeholders(raw)) == {"denoising", "hidden", "dropout"}
    spec = parse_network(substitute(raw, {"denoising": 0.5, "hidden": 64, "dropout": 0.1}), path.name)
    assert [layer.units for layer in spec.layers] == [None, 64, None]
