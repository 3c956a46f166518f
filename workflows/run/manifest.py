"""manifest.json, which says what a run was made from."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nnlib.util.os_errors import describe
from regiondag.errors import RegiondagError
from regiondag.run.layout import RunFolder


@dataclass(frozen=True, slots=True)
class RunManifest:
    """What is read again of a run's manifest."""

    study: str
    run: str  # the path that it was made as
    metric: str
    regions: Mapping[str, str]  # names by slug
    sha256: Mapping[str, str]  # digests by path in the run directory
    sources: Mapping[str, str] = field(default_factory=dict)  # by path in the run directory: what was copied
    created: str = ""  # when, with the difference to UTC; empty: not known
    versions: Mapping[str, str] = field(default_factory=dict)  # of the manager's libraries and of HTCondor


_OPTIONAL = ("sources", "created", "versions")
_NEEDED = tuple(one.name for one in fields(RunManifest) if one.name not in _OPTIONAL)


def read_manifest(run: RunFolder) -> RunManifest:
    """Read manifest.json; RegiondagError for a folder that is no run directory."""
    try:
        raw: dict[str, Any] = json.loads(run.manifest.read_text(encoding="utf-8"))
    except PermissionError as error:
        raise RegiondagError(
            f"{error.filename} may not be read by you: a run directory is its owner's alone, who can share it with: "
            f"chmod -R go+rX {run.path}"
        ) from error
    except (FileNotFoundError, NotADirectoryError):
        raise RegiondagError(_no_run(run.path)) from None
    except OSError as error:
        raise RegiondagError(describe(error)) from error
    except ValueError as error:
        raise RegiondagError(
            f"{run.manifest}: damaged, not JSON ({error}); restore it from a backup, or make the run anew: "
            "`regiondag generate study.yaml`"
        ) from error
    missing = [key for key in _NEEDED if not isinstance(raw, dict) or key not in raw]
    if missing:
        raise RegiondagError(
            f"{run.path} is not a run directory (its manifest.json says nothing of {', '.join(missing)}); "
            "`regiondag generate study.yaml` makes one"
        )
    return RunManifest(**{key: raw[key] for key in (*_NEEDED, *_OPTIONAL) if key in raw})


def _no_run(path: Path) -> str:
    """Say what a path is in place of a run directory, and name the runs that lie near it."""
    if not path.exists():
        return describe(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)))
    if not path.is_dir():
        seen = f"{path} is a file, not a run directory"
        path = path.parent
    else:
        seen = f"{path} is not a run directory, it has no {RunFolder(path).manifest.name}"
    runs = sorted([*path.glob("run-*/manifest.json"), *path.glob("runs/run-*/manifest.json")], key=os.path.getmtime)
    if runs:
        return f"{seen}; the newest one near it: {runs[-1].parent}"
    return f"{seen}; `regiondag generate study.yaml` makes one and prints its path"
