"""A run of a study, from its directory: where it stands, its trials, its report, its champions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regiondag.api.champion import Champion
from regiondag.errors import RegiondagError, UsageError
from regiondag.run.layout import RunFolder
from regiondag.run.lookup import find_region
from regiondag.run.manifest import read_manifest
from regiondag.run.study_folder import find_run

if TYPE_CHECKING:
    from regiondag.monitor.status import RunStatus
    from regiondag.report.summary import Summary

LOOK_EVERY = 5.0  # seconds
TRIAL_COLUMNS = (
    *("region", "trial", "status", "metric", "value", "stderr", "customers", "floor", "epochs", "best_epoch"),
    *("seconds", "settled", "won", "reason"),
)


class StillRunningError(RegiondagError, TimeoutError):
    """The run had not ended when the time to wait for it was over; it goes on by itself."""


@dataclass(frozen=True)
class Run:
    """A run directory. `pool` is the name of the embedded pool that works on it (None: as the commands find one)."""

    folder: RunFolder
    pool: str | None = None

    @classmethod
    def load(cls, path: str | Path, pool: str | None = None) -> Run:
        """Return the run in a directory, or a study's newest; RegiondagError where there is none."""
        folder = find_run(Path(path))
        read_manifest(folder)
        return cls(folder, pool)

    def __repr__(self) -> str:
        """Say which one it is."""
        return f"<Run {self.name}>"

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.folder.path

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.folder.path.name

    @property
    def regions(self) -> list[str]:
        """Names of the regions that are served."""
        from regiondag.run.region_spec import read_spec

        manifest = read_manifest(self.folder)
        return [name for slug, name in manifest.regions.items() if not read_spec(self.folder.region(slug).spec).regions]

    def status(self) -> RunStatus:
        """Return where every region stands, as `regiondag status` shows it."""
        from regiondag.monitor.status import read_status
        from regiondag.pool.pool import find_pool

        return read_status(self.folder, find_pool(self.pool), self.pool)

    def wait(self, timeout: float | None = None, every: float = LOOK_EVERY) -> Run:
        """Return this run when its DAG has ended; StillRunningError when that takes longer than `timeout` seconds.

        RegiondagError where it was never submitted, or where nothing works on it.
        """
        from regiondag.condor.submit import suggest_submit

        until = None if timeout is None else time.monotonic() + timeout
        while not (status := self.status()).over:
            if status.dag == "not submitted":
                raise RegiondagError(f"{self.path} is not submitted; {suggest_submit(self.path)}")
            if status.note:
                raise RegiondagError(status.note)
            if until is not None and time.monotonic() >= until:
                raise StillRunningError(f"{self.name} has not ended in {timeout:g} seconds; it goes on by itself")
            time.sleep(every)
        return self

    def trials(self, region: str | None = None, library: str = "pandas") -> Any:
        """Return all trials, or those of a region, as a DataFrame: a row a trial, a column a hyperparameter.

        `library` is pandas, polars or arrow. `settled` is in Unix time.
        """
        from regiondag.trials.read import read_trials
        from regiondag.trials.rows import hyperparameter_names
        from regiondag.util.frames import make_frame

        rows = read_trials(self.folder, region).rows
        names = [name for name in hyperparameter_names(rows) if name not in TRIAL_COLUMNS]
        flat = [{**asdict(row), "status": str(row.status), **_only(row.hyperparameters, names)} for row in rows]
        return make_frame(flat, [*TRIAL_COLUMNS, *names], library)

    def report(self) -> Summary:
        """Write the report's texts anew, and return what they say."""
        from regiondag.report.write import write_report

        return write_report(self.folder)

    def champion(self, region: str) -> Champion:
        """Return the champion that this run gave a region; RegiondagError where it gave none."""
        from regiondag.recommend.region import Served

        manifest = read_manifest(self.folder)
        slug = find_region(manifest.regions, region)
        served = Served(self.path.parent, manifest.study)
        made: Sequence[Any] = [one for one in served.registry.versions(slug) if one.run == self.name]
        if not made:
            raise RegiondagError(f"{self.name} has no champion of {region!r} yet; its status says how far it is")
        return Champion(made[0], served)


def _only(values: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: values.get(name) for name in names}


__all__ = ["Run", "StillRunningError", "UsageError"]
