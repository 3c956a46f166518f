"""Hand a champion to others: its model, what is known of it, a card for people, and digests to check them by."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Literal

from nnlib.contract import FLOOR_FILE, MODEL_FILE, sha256_of
from nnlib.util.files import appearing
from nnlib.util.packed import PackedError, list_files, unpack
from nnlib.util.process import install_line
from regiondag.errors import RegiondagError, UsageError
from regiondag.registry.card import write_card, write_program_card
from regiondag.registry.read import CHAMPION_FILE, Champion

CARD_FILE, SUMS_FILE = "README.md", "SHA256SUMS"
ARTIFACT = "artifact"
ONNX_FILE, ITEMS_FILE = "model.onnx", "items.json"
USAGE = {
    "netcdf": f"`nnlib predict {MODEL_FILE} DATA` asks it, `nnlib inspect {MODEL_FILE}` says what it holds.",
    "card": "The model itself is not in this folder.",
}

Format = Literal["netcdf", "onnx", "card"]


def export_champion(champion: Champion, folder: Path, kind: Format) -> Path:
    """Write a folder that appears whole; return the card's path. UsageError where something is there already."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder} is there already; legal for --to: a folder that is not, or an empty one")
    champion.check()
    usage = "" if kind == "onnx" else USAGE[kind]
    with appearing(folder) as part:
        if kind != "card" and champion.of_program:
            _write_artifact(champion, part, kind)
        elif kind == "netcdf":
            for path in (*champion.digests, champion.folder / CHAMPION_FILE):
                shutil.copyfile(path, part / path.name)
        elif kind == "onnx":
            usage = _write_graph(champion, part)
        digests = {name: sha256_of(path) for name, path in list_files(part).items()}
        known = digests or _digests_of(champion)
        card = write_program_card(champion, known) if champion.of_program else write_card(champion, known, usage)
        (part / CARD_FILE).write_text(card, encoding="utf-8")
        if digests:
            sums = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
            (part / SUMS_FILE).write_text(sums, encoding="utf-8")
    return folder / CARD_FILE


def _write_artifact(champion: Champion, part: Path, kind: Format) -> None:
    """Write what a program has left, file by file."""
    if kind == "onnx":
        raise RegiondagError(
            f"{champion.region}: a program has made what serves, and what it has left is no network of nnlib's; "
            "--format netcdf exports it as it is"
        )
    try:
        unpack(champion.model, part / ARTIFACT)
    except PackedError as error:
        raise RegiondagError(f"{champion.model}: {error}") from error
    shutil.copyfile(champion.folder / CHAMPION_FILE, part / CHAMPION_FILE)


def _write_graph(champion: Champion, part: Path) -> str:
    """Write the model as an ONNX graph, and the items in its order; return how it is asked."""
    from nnlib.errors import NnlibError
    from nnlib.onnx_files.write import write_onnx

    try:
        facts = write_onnx(champion.model, champion.region, part / ONNX_FILE)
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise RegiondagError(f"--format onnx needs onnx; to install it: {install_line('onnx')}") from None
    except NnlibError as error:
        raise RegiondagError(f"{champion.region}: {error}; --format netcdf exports any model") from error
    (part / ITEMS_FILE).write_text(json.dumps(facts.items, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    shutil.copyfile(champion.folder / CHAMPION_FILE, part / CHAMPION_FILE)
    if not facts.half_lives:
        ends = "; ".join(f"`{name}` ({', '.join(map(str, shape))})" for name, shape in facts.inputs.items())
        return f"`{ONNX_FILE}` takes {ends} of float32, and gives `{ITEMS_FILE}` in that order."
    weights = {
        name: "1 for what he has"
        if half_life is None
        else f"2^(-age / {half_life:g}) for what he has, the age in days from his last purchase"
        for name, half_life in facts.half_lives.items()
    }
    inputs = "; ".join(f"`{name}`: {words}, else 0" for name, words in weights.items())
    return (
        f"`{ONNX_FILE}` gives a score of every item of `{ITEMS_FILE}`, in that order, for each customer, a row of "
        f"float32 an input. {inputs}. Leave out of the list what he has, unless it may be recommended again."
    )


def _digests_of(champion: Champion) -> dict[str, str]:
    known = {champion.model.name: champion.sha256, FLOOR_FILE: str(champion.facts.get("floor") or "")}
    return {name: digest for name, digest in known.items() if digest}
