"""Python environments of peers that the product never needs; each is made among the caches when it is missing."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from scripts.bench.common.processes import NotMeasuredError

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regiondag"
TORCH_FOLDER, OPTUNA_FOLDER = CACHE / "bench-torch", CACHE / "bench-optuna"
IMPLICIT_FOLDER, TORCHVISION_FOLDER = CACHE / "bench-implicit", CACHE / "bench-torchvision"
IMAGES_FOLDER = CACHE / "bench-images"
SMAC_FOLDER, AX_FOLDER = CACHE / "bench-smac", CACHE / "bench-ax"
TORCH, OPTUNA, IMPLICIT, ONNXSCRIPT = "2.14.1", "5.0.0", "0.7.3", "0.7.2"
CMAES, SMAC, CONFIGSPACE, AX, BOTORCH = "0.13.1", "2.4.1", "1.2.2", "1.3.1", "0.18.1"


@cache
def torch_python() -> Path:
    """Return a Python that has PyTorch."""
    return _made(TORCH_FOLDER, {"torch": TORCH, "scipy": metadata.version("scipy")}, ("numpy",))


@cache
def torchvision_python() -> Path:
    """Return a Python that has torchvision and both of PyTorch's exporters to ONNX."""
    pins = {"torch": "2.14.1", "torchvision": "0.29.1", "onnx": metadata.version("onnx"), "onnxscript": ONNXSCRIPT}
    return _made(TORCHVISION_FOLDER, pins, ("numpy",))


@cache
def implicit_python() -> Path:
    """Return a Python that has implicit."""
    return _made(IMPLICIT_FOLDER, {"implicit": IMPLICIT}, ("numpy", "scipy"))


@cache
def optuna_python() -> Path:
    """Return a Python that has Optuna and what its samplers need."""
    return _made_with_torch(OPTUNA_FOLDER, {"optuna": OPTUNA, "cmaes": CMAES, "scipy": metadata.version("scipy")})


@cache
def images_python() -> Path:
    """Return a Python that has PyTorch and Pillow."""
    return _made_with_torch(IMAGES_FOLDER, {"pillow": metadata.version("pillow")})


@cache
def smac_python() -> Path:
    """Return a Python that has SMAC3."""
    return _made(SMAC_FOLDER, {"smac": SMAC, "ConfigSpace": CONFIGSPACE}, ())


@cache
def ax_python() -> Path:
    """Return a Python that has Ax and BoTorch."""
    return _made_with_torch(AX_FOLDER, {"ax-platform": AX, "botorch": BOTORCH})


def _made_with_torch(folder: Path, pins: Mapping[str, str]) -> Path:
    """Return a Python that borrows PyTorch from its environment."""
    torch_python()
    theirs = sysconfig.get_path("purelib", "venv", {"base": str(TORCH_FOLDER)})
    return _made(folder, {**pins, "torch": TORCH}, ("numpy",), theirs)


def _made(folder: Path, pins: Mapping[str, str], others: tuple[str, ...], more: str = "") -> Path:
    python = folder / "bin" / "python"
    check = "from importlib.metadata import version as v; "
    check += f"assert all(v(n).split('+')[0] == w for n, w in {dict(pins)!r}.items())"
    if python.exists() and subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0:
        return python
    wanted = [f"{name}=={version}" for name, version in pins.items()]
    print(f"installing {', '.join(wanted)} in {folder} ...", file=sys.stderr, flush=True)
    venv.create(folder, with_pip=True)
    if more:
        packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
        (packages / "torch.pth").write_text(f"{more}\n", encoding="utf-8")
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", *wanted, *others]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotMeasuredError(f"{', '.join(wanted)}: cannot be installed: {done.stderr[-300:].strip()}")
    return python
