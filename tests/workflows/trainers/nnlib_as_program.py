"""One study, written twice: nnlib built in, and nnlib as any program, by the script that the guide shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import nnlib
from tests.docs.blocks import DOCS, blocks_of
from tests.workflows.conftest import STUDY

EPOCHS = 6
BUILT_IN = (
    STUDY.replace("  - {name: United Kingdom, data: data/uk.nc}\n", "")
    .replace("epochs: 2, batch: 4", f"epochs: {EPOCHS}, stop_after: 0, batch: 4")
    .replace("method: bayes", "method: random")
    .replace("name: Germany", "name: germany")
    .replace("job: {", "job: {gpus: 0, requirements: 'true', ")
)
PARTS = ("train", "valid", "final", "test")
TRAINER = f"""\
trainer:
  command: [python3, with_nnlib.py]
  files: [with_nnlib.py, network.json, nnlib, {", ".join(f'"data/{{region}}.{part}.nc"' for part in PARTS)}]
  metric: {{name: ndcg@5, value: best}}
"""
AS_PROGRAM = (
    BUILT_IN.replace(", data: data/germany.nc", "")
    .replace("network: network.json\nmetric: ndcg@5\n", TRAINER)
    .replace("stop_after: 0, batch: 4, ", "")
)


def add_program(folder: Path) -> None:
    """Put the guide's script and a copy of nnlib, which is to be the job's, beside a study."""
    [script] = [
        block.text
        for block in blocks_of(DOCS / "guides" / "own-trainer.md")
        if block.options.get("file") == "with_nnlib.py"
    ]
    assert len(script.splitlines()) <= 40
    (folder / "with_nnlib.py").write_text(script)
    shutil.copytree(Path(nnlib.__file__).parent, folder / "nnlib", ignore=shutil.ignore_patterns("__pycache__"))


def make_slow(folder: Path, seconds: float = 0.2) -> None:
    """Let every batch of that copy take a while, so that there is a training to disturb."""
    with (folder / "nnlib" / "cpu" / "engine.py").open("a") as file:
        file.write(
            "\n\nimport time\n_run = CpuEngine.run\n"
            f"CpuEngine.run = lambda *words: (time.sleep({seconds}), _run(*words))[1]\n"
        )
