"""`nnlib import-onnx` and `nnlib export-onnx`: a body from elsewhere is fine-tuned, and leaves again."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from nnlib.contract import Recipe
from nnlib.data.file import write_data
from nnlib.data.rows import Dense, from_rows
from nnlib.data.sets import Data, DataSet
from nnlib.families.fit import fit_recipe
from nnlib.families.model_file import write_recipe_model
from nnlib.model.file import read_model
from tests.nnlib.families.made_up import drawn
from tests.nnlib.test_cli import nnlib  # noqa: F401

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

from tests.nnlib.onnx_files.graphs import Small, ask  # noqa: E402

CLASSES = ("cat", "dog", "owl")
MEAN, DEVIATION = "0.485,0.456,0.406", "0.229,0.224,0.225"


def write_pictures(path, count=60, seed=1):
    """Write pictures whose class is the channel that is the brightest."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 3, count)
    pixels = random.integers(0, 120, (count, 3, 8, 8))
    pixels[np.arange(count), kinds] += 100
    images = DataSet("input", Dense(pixels.reshape(count, -1).astype(np.uint8)), dimensions=(8, 8, 3))
    targets = DataSet("output", from_rows([[kind] for kind in kinds], 3), CLASSES)
    write_data(Path(path), Data((images, targets)))
    return pixels, kinds


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = Small((3, 8, 8))
    x = small.add("Relu", small.norm(small.conv("x", 3, 6, 3, 3, bias=False, pads=[1] * 4), 6))
    x = small.add("Relu", small.add("Add", small.norm(small.conv(x, 6, 6, 3, 3, bias=False, pads=[1] * 4), 6), x))
    small.save(Path("body.onnx"), small.head(small.add("GlobalAveragePool", x), 6, 10))


def test_a_body_is_fine_tuned_and_leaves_again(nnlib):  # noqa: F811
    write_pictures("train.nc")
    pixels, kinds = write_pictures("valid.nc", 30, 2)
    code, _, said = nnlib(f"import-onnx body.onnx --out body.nc --replace-head --mean {MEAN} --std {DEVIATION}")
    assert code == 0 and "body.nc: 7 layers" in said and "nnlib train body.json DATA.nc --init body.nc" in said
    raw = json.loads(Path("body.json").read_text())
    assert raw["FineTuning"] == {"Freeze": ["Normalize", "n0", "n3"], "Replace": ["n9"]}
    train = "train body.json train.nc --init body.nc --out model.nc --epochs 60 --batch 20 --learning-rate 0.1"
    code, _, said = nnlib(train)
    assert code == 0, said
    before, after = (dict(read_model(Path(name)).network.arrays()) for name in ("body.nc", "model.nc"))
    kept = [name for name in before if before[name].shape == after[name].shape]
    assert all(np.array_equal(before[name], after[name]) for name in kept) and len(kept) == len(before) - 2
    assert nnlib("export-onnx model.nc --out model.onnx")[2] == "model.onnx: x (batch, 3, 8, 8) -> n9 (batch, 3)\n"
    [scores] = ask("model.onnx", [(pixels / 256 - 0.5).astype(np.float32)])
    assert (scores.argmax(axis=1) == kinds).mean() > 0.9
    code, out, _ = nnlib("predict model.nc valid.nc -k 1")
    assert code == 0 and "dog" in out


def test_the_network_file_alone_says_what_the_model_is(nnlib):  # noqa: F811
    assert nnlib("import-onnx body.onnx --out body.nc")[0] == 0
    from nnlib.spec.network import parse_network, read_json
    from nnlib.spec.sizes import resolve_sizes

    parsed = resolve_sizes(parse_network(read_json(Path("body.json")), "body.json"), "body.json")
    assert parsed.layers == read_model(Path("body.nc")).network.spec.layers


def test_a_network_file_that_was_changed_is_kept(nnlib):  # noqa: F811
    words = "import-onnx body.onnx --out body.nc"
    assert nnlib(words)[0] == nnlib(words)[0] == 0  # the same again
    Path("body.json").write_text("mine")
    code, _, said = nnlib(words)
    assert code == 4 and "body.json: is there and says other things" in said
    assert Path("body.json").read_text() == "mine"
    assert nnlib(f"{words} --force")[0] == 0 and Path("body.json").read_text() != "mine"


def test_a_model_of_a_family(nnlib):  # noqa: F811
    write_recipe_model(Path("ease.nc"), fit_recipe(Recipe("ease"), drawn()))
    said = nnlib("export-onnx ease.nc --region North --out ease.onnx")[2]
    assert said.startswith("ease.onnx: history (customers, ") and "2^(-age / " in said
    write_recipe_model(Path("ials.nc"), fit_recipe(Recipe("ials", {"dims": 4, "sweeps": 1}), drawn()))
    code, _, said = nnlib("export-onnx ials.nc --out ials.onnx")
    assert code == 4 and "no product of a history with weights" in said and not Path("ials.onnx").exists()


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("import-onnx none.onnx --out body.nc", 4, "none.onnx"),
        ("import-onnx body.onnx --out body.json", 4, "would be the network file, too"),
        ("import-onnx body.onnx --out none/body.nc", 4, "there is no folder none"),
        ("import-onnx body.onnx --out body.nc --mean a,b", 2, "legal: numbers such as 0.485,0.456,0.406"),
        ("import-onnx body.onnx --out body.nc --std 0,1,1", 2, "legal: numbers above 0"),
        ("import-onnx body.onnx --out body.nc --std 1,2", 4, "--std: 2 numbers, legal: one, or 3"),
        ("import-onnx body.onnx --out body.nc --size 8", 4, "--size 8: no input has maps of 1 sizes"),
        ("import-onnx body.onnx --out body.nc --size 8by8", 2, "legal: one to three sizes, such as 224x224"),
        ("import-onnx body.onnx --out body.nc --size 9x9", 4, 'input "x" has sizes [8, 8], legal for --size: these'),
        ("export-onnx body.onnx --out body2.onnx", 4, "body.onnx"),
        ("export-onnx body.onnx --out body.onnx", 4, "is an input of this command"),
    ],
)
def test_what_is_refused(nnlib, words, code, text):  # noqa: F811
    found, _, said = nnlib(words)
    assert found == code and text in said and "Traceback" not in said
    assert not Path("body.nc").exists()


def test_without_onnx_it_is_said_what_to_install(nnlib, monkeypatch):  # noqa: F811
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "onnx" else find(name, *more))
    for words in ("import-onnx body.onnx --out body.nc", "export-onnx body.nc --out model.onnx"):
        Path("body.nc").touch()
        code, _, said = nnlib(words)
        assert code == 75 and "ONNX files need onnx; to install it: " in said and "[onnx]" in said
