"""Find the data folders that stand beside the packages in a checkout and inside them in a wheel."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

ResourceName = Literal["templates", "ami", "scripts", "examples", "kernels"]


def resource_dir(name: ResourceName) -> Path:
    """Return the folder `name`, in a checkout, an editable install or an installed wheel."""
    installed = files("nnlib" if name == "kernels" else "regiondag") / name
    if installed.is_dir():
        return Path(str(installed))
    beside = Path(__file__).resolve().parents[2] / name
    if beside.is_dir():
        return beside
    raise FileNotFoundError(f"regiondag's folder {name!r} is neither at {installed} nor at {beside}: reinstall it")
