"""Write the job with which HTCondor updates a study every night."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlib.util.files import write_atomically
from regiondag.condor.quoting import check_path
from regiondag.condor.quoting import path as submit_path
from regiondag.condor.templates import template_environment
from regiondag.pool.pool import NAME_VARIABLE
from regiondag.pool.sandbox import SEARCH_PATH
from regiondag.util.resources import resource_dir

KEPT = ("PYTHONPATH", "CONDOR_CONFIG", "LANG", "LC_ALL")  # variables that the job takes from who writes it


@dataclass(frozen=True, slots=True)
class NightlyFolder:
    """The files of a study's nightly job, in a folder beside study.yaml."""

    path: Path

    @property
    def submit_file(self) -> Path:
        """What condor_submit takes."""
        return self.path / "nightly.sub"

    @property
    def log(self) -> Path:
        """What every update said, with its time and exit code."""
        return self.path / "update.log"

    @property
    def nights(self) -> Path:
        """Since when all nights are told of."""
        return self.path / "nights.json"

    @property
    def event_log(self) -> Path:
        """HTCondor's log of the job."""
        return self.path / "job.log"


def nightly_folder(study_file: Path, study: str) -> NightlyFolder:
    """Return where the nightly job of a study is kept."""
    return NightlyFolder(study_file.resolve().parent / f"nightly-{study}")


def write_nightly(
    folder: NightlyFolder, study: str, schedule: Mapping[str, str], arguments: Sequence[str], environment: Sequence[str]
) -> None:
    """Write the submit file of a job that runs `regiondag update ARGUMENTS` at the times of `schedule`."""
    check_path(folder.path, "it lies beside study.yaml: move the study into a folder with such a path")
    script = resource_dir("scripts") / "dag" / "nightly.sh"
    code = Path(__file__).resolve().parents[1]
    text = render_nightly(
        study=study,
        command=[str(script), sys.executable, str(code), str(folder.log), *arguments],
        environment=list(environment),
        folder=submit_path(folder.path),
        event_log=folder.event_log,
        schedule=schedule,
        batch_name=f"{study} nightly",
    )
    folder.path.mkdir(exist_ok=True)
    write_atomically(folder.submit_file, text)


def job_environment(environ: Mapping[str, str] = os.environ, *, embedded: bool) -> list[str]:
    """Return the environment of the job: it must find HTCondor's programs, and take the pool whose job it is."""
    kept = {name: value for name, value in sorted(environ.items()) if name in KEPT}
    if embedded:
        kept.pop("CONDOR_CONFIG", None)  # of another pool: the embedded one has its own where everybody looks for it
    values = {"PATH": f"{environ.get('PATH', '')}:{SEARCH_PATH}".lstrip(":"), NAME_VARIABLE: "installed", **kept}
    return [f"{name}={value}" for name, value in values.items()]


def render_nightly(**values: Any) -> str:
    """Return the submit file of the job that updates a study at the times of a crontab line."""
    return template_environment().get_template("nightly.sub.j2").render(**values)
