"""What a run was made with, for its manifest: versions of libraries, Git commits, and the pool's image."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from regiondag import __version__
from regiondag.pool.pool import Pool, read_state
from regiondag.pool.rootfs import IMAGE_FILE

# All that the manager's side computes or renders with, by the names of their packages.
LIBRARIES = ("numpy", "scipy", "netCDF4", "scikit-optimize", "jinja2", "PyYAML", "platformdirs", "rich", "htcondor")
BINDINGS = "htcondor bindings"  # whose version need not be the pool's
GIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Commit:
    """What a checkout has; `dirty`: tracked files differ from it."""

    commit: str
    dirty: bool


def read_library_versions() -> dict[str, str]:
    """Return the versions of this program, of Python, and of those libraries that are installed."""
    found = {"regiondag": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[BINDINGS if name == "htcondor" else name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def read_commits(study: Path) -> dict[str, Commit]:
    """Return the commits of the checkouts that this program and the study lie in, as far as they lie in any."""
    ours = Path(__file__).resolve().parents[2]
    found = {"regiondag": commit_of(ours, top=True), "study": commit_of(study.resolve().parent)}
    return {what: commit for what, commit in found.items() if commit}


def commit_of(folder: Path, *, top: bool = False) -> Commit | None:
    """Return a checkout's commit; None where there is none, or no Git.

    With `top` the folder itself must be the checkout, not one that it lies in, such as that of a virtual environment.
    """
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None or (top and Path(root) != folder):
        return None
    commit, changes = _git(folder, "rev-parse", "HEAD"), _git(folder, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changes is None else Commit(commit, bool(changes))


def describe_pool_image(pool: Pool | None) -> str:
    """Return what the recipe wrote down about the pool's image; empty where that is not known."""
    if pool is None:
        return ""
    state = read_state(pool.name) if pool.kind == "embedded" else None
    root = Path(state.image) if state else Path("/")
    try:
        lines = (root / IMAGE_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return " ".join(line for line in lines if "=" in line)


def _git(folder: Path, *words: str) -> str | None:
    """Return what Git prints, None where it fails; nothing that the checkout's own settings name is run."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    argv = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=GIT_SECONDS, env=environment)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
