"""Pieces of files in the documentation: study.yaml loads, YAML and JSON parse, Python compiles."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from nnlib.spec.network import placeholders, read_json, read_network
from regiondag.config.load import load_config
from regiondag.study.model import PARTS
from tests.docs.blocks import ROOT, Block, blocks_of, pages

EXAMPLE = ROOT / "workflows" / "examples" / "retail"
BLOCKS = [block for page in [*pages(), ROOT / "README.md"] for block in blocks_of(page)]


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def is_study(block: Block) -> bool:
    return "of" not in block.options and block.options.get("file", "study.yaml") == "study.yaml"


@pytest.mark.parametrize("block", [block for block in of("yaml") if is_study(block)], ids=str)
def test_a_piece_of_study_yaml_loads(block, tmp_path):
    """Its sections are laid over an example's; a space of its own is that of a network with just these names."""
    given = yaml.safe_load(block.text)
    study = yaml.safe_load((EXAMPLE / ("study.yaml" if "data" in given else "networks.yaml")).read_text())
    for key, value in given.items():
        study[key] = {**study[key], **value} if isinstance(value, dict) and isinstance(study.get(key), dict) else value
    if "database" in given.get("data", {}):
        del study["data"]["purchases"]
    if "data" in given or "space" in given.get("search", {}):
        study["regions"] = [{"name": "Germany", "data": "data/germany.nc"}]
    write_network(tmp_path, study["search"].get("space", {}), block)
    for region in study["regions"] if isinstance(study["regions"], list) else [{"data": "data/a.nc"}]:
        for part in PARTS:
            path = (tmp_path / region["data"]).with_suffix(f".{part}.nc")
            path.parent.mkdir(exist_ok=True)
            path.touch()
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    load_config(tmp_path / "study.yaml")


def write_network(folder: Path, space: dict[str, Any], block: Block) -> None:
    """Write the page's own network, or the example's with a placeholder for each name that is no setting."""
    own = [other for other in blocks_of(block.page) if other.options.get("file") == "network.json"]
    if own:
        (folder / "network.json").write_text(own[0].text)
        return
    shutil.copy(EXAMPLE / "network.json", folder)
    text = (folder / "network.json").read_text()
    for name in placeholders(read_json(folder / "network.json")):
        if name not in space:
            text = text.replace(f'"${name}"', "0.5" if name != "hidden" else "64")
    (folder / "network.json").write_text(text)


def test_other_yaml_parses():
    for block in of("yaml"):
        yaml.safe_load(block.text)


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_a_network_reads(block, tmp_path):
    path = tmp_path / "network.json"
    path.write_text(block.text)
    read_network(path, {name: VALUES.get(name, 8) for name in placeholders(read_json(path))})


VALUES = {"activation": "Tanh", "denoising": 0.5, "dropout": 0.5}


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_compiles(block):
    ast.parse(block.text)
