"""Wheels of one module, made by hand: no network and no build is needed to install them."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def make_wheel(folder: Path, name: str = "greeting", version: str = "1.0", text: str = "VALUE = '0.25'\n") -> Path:
    """Write a wheel of a module `name`, with a script of the same name that prints its VALUE as auc."""
    info = f"{name}-{version}.dist-info"
    text += "def main():\n    print('auc=' + VALUE)\n"
    files = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = [f"{path},sha256={_digest(one)},{len(one)}" for path, one in files.items()]
    files[f"{info}/RECORD"] = "".join(f"{line}\n" for line in [*record, f"{info}/RECORD,,"])
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path, one in files.items():
            packed.writestr(path, one)
    return wheel


def write_requirements(folder: Path, *lines: str, wheels: str = "wheels") -> Path:
    """Write a requirements.txt that takes packages of a folder of wheels alone."""
    path = folder / "requirements.txt"
    path.write_text("".join(f"{line}\n" for line in ["--no-index", f"--find-links {wheels}", *(lines or ["greeting"])]))
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
