"""The study and the program of the page about sequences: what the one sends is what the other reads."""

from __future__ import annotations

from regiondag.config.load import load_config
from regiondag.study.space import Integer
from tests.docs.blocks import DOCS, blocks_of


def test_a_sequence_model_as_a_trial_has_a_study_that_loads(tmp_path):
    files = {
        block.options["file"]: block.text
        for block in blocks_of(DOCS / "concepts/sequences.md")
        if "file" in block.options
    }
    (tmp_path / "data").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for region in ("germany", "france"):
        for part in ("train", "valid", "final", "test"):
            (tmp_path / f"data/{region}.{part}.nc").touch()
    study = load_config(tmp_path / "study.yaml")
    assert [region.name for region in study.regions] == ["germany", "france"]
    space = {parameter.name: parameter for parameter in study.regions[0].search.space}
    assert set(space) == {"width", "dropout", "learning_rate"} and isinstance(space["width"], Integer)
    assert all(f'values["{name}"]' in files["gru.py"] for name in space)
