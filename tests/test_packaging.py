"""What an installed wheel holds: a user has neither the checkout nor its folders."""

from __future__ import annotations

import configparser
import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_layers import imports, sources

ROOT = Path(__file__).parents[1]


def _files_of_the_recipe() -> list[Path]:
    ami = ROOT / "ami"
    mine = (ami / "wheels", ami / "fleet.yaml")
    files = [path for path in ami.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return [path for path in files if not any(path.is_relative_to(one) for one in mine)]


@pytest.mark.slow
def test_the_wheel_holds_templates_scripts_examples_and_recipe(tmp_path):
    # Of a copy: setuptools writes into the folder, which other tests and installations use meanwhile.
    source = shutil.copytree(
        ROOT, tmp_path / "source", ignore=shutil.ignore_patterns(".*", "*.egg-info", "wheels", "runs", "build")
    )
    (source / "ami/wheels").mkdir()
    (source / "ami/wheels/some.whl").touch()
    (source / "ami/fleet.yaml").write_text("mine: true\n")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, source]
    subprocess.run(command, check=True, capture_output=True)
    [wheel] = tmp_path.glob("regiondag-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        *(f"regiondag/templates/{path.relative_to(ROOT / 'templates')}" for path in (ROOT / "templates").rglob("*.*")),
        *(f"regiondag/scripts/dag/{path.name}" for path in (ROOT / "scripts" / "dag").iterdir()),
        *(f"regiondag/{path.relative_to(ROOT)}" for path in _files_of_the_recipe()),
        *(
            f"regiondag/{path.relative_to(ROOT / 'workflows')}"
            for path in (ROOT / "workflows/examples").glob("*/**/*.*")
            if path.suffix != ".pyc"
        ),
        *(f"nnlib/kernels/{path.name}" for path in (ROOT / "kernels").iterdir()),
        *(f"nnlib/{path.relative_to(ROOT / 'nnlib')}" for path in (ROOT / "nnlib" / "gpu").rglob("*.py")),
        "regiondag/cli.py",
        "regiondag/accounting/prices.yaml",
        "nnlib/contract.py",
    }
    assert wanted <= names, wanted - names
    own = [name for name in names if name.startswith(("regiondag/ami/wheels/", "regiondag/ami/fleet.yaml"))]
    assert own == []  # what users have fetched or written there is a gigabyte of wheels, or nobody's business

    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from regiondag.util.resources import resource_dir;"
        "print(*[resource_dir(n) for n in ('templates', 'ami', 'scripts', 'examples')])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, installed], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{installed}/regiondag/{n}" for n in ("templates", "ami", "scripts", "examples")]


def test_every_package_is_installed():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    listed = set(parser["options"]["packages"].split())
    for name, folder in (("regiondag", ROOT / "workflows"), ("nnlib", ROOT / "nnlib")):
        inside = (path.parent.relative_to(folder).parts for path in folder.rglob("__init__.py"))
        assert {".".join((name, *parts)) for parts in inside} <= listed


def test_a_plain_install_brings_all_that_the_commands_import():
    """What an extra brings is imported where it is used, with a message that names the extra."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    promised = {requirement_name(line) for line in config["options"]["install_requires"].split()}
    extras = {requirement_name(line) for lines in config["options.extras_require"].values() for line in lines.split()}
    distributions = importlib.metadata.packages_distributions()
    for path in [*sources("regiondag"), *sources("nnlib")]:
        for root in {module.split(".")[0] for module in imports(path)} - {
            "regiondag",
            "nnlib",
            *sys.stdlib_module_names,
        }:
            names = {name.lower() for name in distributions.get(root, [root])} | OTHER_NAMES.get(root, set())
            assert names & (promised if root not in OPTIONAL else extras), f"{path} imports {root}"


def test_every_lower_bound_is_one_that_the_leg_on_lowest_versions_installs():
    """A line that the script does not understand would be tested on the newest version, and nobody told."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    sections = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    lines = {line for section in sections for line in section.split() if not line.startswith("regiondag[")}
    bounded = {re.sub(r"\[.*\]", "", line).replace(">=", "==") for line in lines if ">=" in line}
    function = "sed -n '/^list_lower_bounds/,/^}/p' scripts/environment.sh"
    done = subprocess.run(
        ["sh", "-c", f'eval "$({function})"; list_lower_bounds'], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert set(done.stdout.split()) == bounded
    pinned = {"cuda-toolkit[cublas,cudart,nvrtc]==12.*", "cuda-toolkit[cublas,cudart,nvrtc]==13.*"}
    assert {line for line in lines if ">=" not in line} == pinned


OPTIONAL = {"boto3", "botocore", "cupy", "matplotlib", "numba", "onnx", "optuna", "polars", "pyarrow", "sklearn"}
OPTIONAL |= {"ConfigSpace", "PIL", "llvmlite", "sqlalchemy", "starlette", "uvicorn"}
# What comes with another, or is not installed here.
OTHER_NAMES = {"botocore": {"boto3"}, "cupy": {"cupy-cuda13x"}, "llvmlite": {"numba"}}


def requirement_name(line: str) -> str:
    return re.split(r"[\[><=]", line)[0].lower()
