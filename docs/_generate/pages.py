"""What `<!-- generated: NAME -->` stands for in a page, and which files of the repository are pages of the site."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nnlib.cli
import regiondag.cli
from docs._generate.commands import render_commands
from docs._generate.contract import render_contract
from docs._generate.errors import render_errors, render_exit_codes
from docs._generate.families import render_families, render_recipe_models
from docs._generate.files import render_files, render_registry_files
from docs._generate.http import render_http
from docs._generate.json_output import render_json_output
from docs._generate.markdown import relink
from docs._generate.network import render_network
from docs._generate.onnx import render_onnx_operators
from docs._generate.performance import benchmarks, read_results, render_performance
from docs._generate.study import render_study_reference
from docs._generate.survival import render_faults, render_slowest, render_survival
from regiondag.config.keys import describe_study

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent

# Files that are read where they lie, and are pages of the site as well.
REPOSITORY_PAGES = {
    ROOT / "README.md": "index",
    ROOT / "CHANGELOG.md": "changelog",
    ROOT / "ami/README.md": "reference/machines",
    ROOT / "ami/aws.md": "reference/aws",
    ROOT / "ami/money.md": "reference/aws-money",
    ROOT / "ami/gpu.md": "reference/gpu-driver",
    ROOT / "ami/hardening.md": "reference/image-security",
    ROOT / "kernels/README.md": "contributing/kernels",
    ROOT / "scripts/bench/README.md": "contributing/benchmarks",
    ROOT / "workflows/examples/retail/DATA.md": "reference/example-data",
}


def render_toctree(section: str, *first: str) -> str:
    """Return the table of contents of a folder of pages: those named first, then all others by name."""
    pages = (path for kind in ("*.md", "*.ipynb") for path in (DOCS / section).glob(kind))
    names = {path.stem for path in pages} - {"index"}
    ordered = [*(name for name in first if name in names), *sorted(names - set(first))]
    return "\n".join(("```{toctree}", ":maxdepth: 1", "", *ordered, "```"))


def render_file(path: str) -> str:
    """Return a file of the repository as a page."""
    origin = ROOT / path
    return relink(origin.read_text(encoding="utf-8"), origin, REPOSITORY_PAGES, DOCS)


GENERATED: dict[str, Callable[..., str]] = {
    "regiondag-commands": lambda: render_commands(regiondag.cli.build_parser()),
    "nnlib-commands": lambda: render_commands(nnlib.cli.build_parser()),
    "exit-codes": render_exit_codes,
    "json-output": render_json_output,
    "errors": render_errors,
    "families": render_families,
    "recipe-models": render_recipe_models,
    "files": render_files,
    "registry-files": render_registry_files,
    "http": render_http,
    "contract": render_contract,
    "network": render_network,
    "onnx-operators": render_onnx_operators,
    "study": lambda: render_study_reference(describe_study()),
    "performance": lambda: render_performance(benchmarks(), read_results()),
    "survival": lambda: render_survival(read_results()),
    "slowest-recoveries": lambda: render_slowest(read_results()),
    "faults": lambda: render_faults(read_results()),
    "file": render_file,
    "toctree": render_toctree,
}
