"""A study or a run by what people call it: a study's folder, its study.yaml, or a run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from regiondag.errors import RegiondagError, UsageError
from regiondag.run.champions import earlier_runs
from regiondag.run.layout import STUDY_FILE, RunFolder
from regiondag.util.yaml_file import load_yaml

RUNS = "runs"  # beside study.yaml, unless --out says another place


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """Where a study is written down, and where its runs lie."""

    study: Path
    runs: Path

    @property
    def name(self) -> str:
        """What study.yaml calls the study; ConfigError where that cannot be read."""
        raw = load_yaml(self.study).value
        said = raw.get("study") if isinstance(raw, dict) else None
        return said if isinstance(said, str) else self.study.stem

    def list_runs(self) -> list[RunFolder]:
        """Return its runs, the newest first."""
        return earlier_runs(self.runs, self.name)

    def newest_run(self) -> RunFolder:
        """Return the run that was made last; RegiondagError where there is none."""
        found = self.list_runs()
        if not found:
            raise RegiondagError(f"the study {self.name!r} has no run in {self.runs} yet; first: regiondag generate")
        return found[0]


def check_free(folder: Path) -> None:
    """Raise UsageError for a folder in which no new study can be written: one that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder; name another one")


def find_study(text: Path, runs: Path | None = None) -> StudyFolder:
    """Return the study that is meant by a folder or by the path of its file; UsageError where there is none."""
    path = text / STUDY_FILE if text.is_dir() else text
    if path.is_file():
        return StudyFolder(path, runs or path.parent / RUNS)
    near = sorted(found.parent.name for found in Path().glob(f"*/{STUDY_FILE}"))
    here = f"; studies here: {', '.join(near)}" if near else ""
    raise UsageError(f"{text}: no study there; legal: a folder with a {STUDY_FILE}, or such a file{here}")


def find_run(text: Path) -> RunFolder:
    """Return the run that is meant by its directory, or the newest one of a study; RegiondagError where there is none.

    What is neither is returned as it is: whoever reads its manifest says what is wrong with it.
    """
    run = RunFolder(text.resolve())
    try:
        if run.manifest.exists():
            return run
    except PermissionError:  # which whoever reads it says better
        return run
    if text.is_file() or (text / STUDY_FILE).is_file():
        return find_study(text.resolve()).newest_run()
    return run
