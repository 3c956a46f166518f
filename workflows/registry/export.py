"""Hand a champion to others: its model, what is known of it, a card for people, and digests to check them by."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

from nnlib.contract import FLOOR_FILE, MODEL_FILE, sha256_of
from nnlib.util.files import appearing
from regiondag.errors import UsageError
from regiondag.registry.card import write_card
from regiondag.registry.read import CHAMPION_FILE, Champion

CARD_FILE, SUMS_FILE = "README.md", "SHA256SUMS"
USAGE = {
    "netcdf": f"`nnlib predict {MODEL_FILE} DATA` asks it, `nnlib inspect {MODEL_FILE}` says what it holds.",
    "card": "The model itself is not in this folder.",
}

Format = Literal["netcdf", "card"]


def export_champion(champion: Champion, folder: Path, kind: Format) -> Path:
    """Write a folder that appears whole; return the card's path. UsageError where something is there already."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder} is there already; legal for --to: a folder that is not, or an empty one")
    champion.check()
    with appearing(folder) as part:
        if kind == "netcdf":
            for path in (*champion.digests, champion.folder / CHAMPION_FILE):
                shutil.copyfile(path, part / path.name)
        digests = {path.name: sha256_of(path) for path in sorted(part.iterdir())}
        (part / CARD_FILE).write_text(
            write_card(champion, digests or _digests_of(champion), USAGE[kind]), encoding="utf-8"
        )
        if digests:
            sums = "".join(f"{digest}  {name}\n" for name, digest in digests.items())
            (part / SUMS_FILE).write_text(sums, encoding="ascii")
    return folder / CARD_FILE


def _digests_of(champion: Champion) -> dict[str, str]:
    known = {MODEL_FILE: champion.sha256, FLOOR_FILE: str(champion.facts.get("floor") or "")}
    return {name: digest for name, digest in known.items() if digest}
