"""What `trainer.environment` costs: to build it once, to send it, and at the start of every job.

The full run asks the user's package index for the newest NumPy and scikit-learn.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nnlib.contract import ENVIRONMENT_FILE, PROGRAM_FILE, Metric, Role, Status, TrainSettings, sha256_of
from nnlib.util.terminal import tell
from regiondag.generate.bundle import pack_worker
from regiondag.study.program import Environment, Program, program_trial
from regiondag.trainers.archive import write_program
from regiondag.trainers.environments import look_into
from regiondag.trainers.requirements import build
from regiondag.trainers.trying import Bench as Jobs
from regiondag.util.user_dirs import HOME_VARIABLE
from scripts.bench.common.harness import MB, Bench, Row, disk_mb, main
from scripts.bench.common.processes import NotMeasuredError

BENCH = "environment"
PROGRAM = "import {}\nprint('auc=1')\n"
TIMEOUT = 600.0  # seconds for a job


@dataclass(frozen=True)
class Sizes:
    """What is measured."""

    packages: tuple[str, ...]
    imports: tuple[str, ...]
    repeats: int = 5
    made: bool = False  # the package is made here, and no index is asked


FULL = Sizes(("numpy", "scikit-learn"), ("numpy", "sklearn.linear_model"))
QUICK = Sizes(("bench_package",), ("bench_package",), repeats=1, made=True)


class EnvironmentBench(Bench[Sizes]):
    """The rows; the peer is what there would be without it."""

    @cached_property
    def built(self) -> tuple[Path, float]:
        """The archive, and the seconds that it took with an empty cache of ours."""
        os.environ[HOME_VARIABLE] = str(self.area / "home")
        started = time.perf_counter()
        archive = build(Environment(self._list()), tell)
        return archive, time.perf_counter() - started

    def making(self) -> Iterator[Row]:
        """Once for a list, version and platform; later runs compute a digest."""
        archive, seconds = self.built
        target = self.area / "plain"
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), "-r", str(self._list())]
        started = time.perf_counter()
        subprocess.run(words, check=True, cwd=self.area)
        plain = time.perf_counter() - started
        what = " and ".join(self.sizes.packages)
        yield Row(f"build of {what} (peer: pip install --target alone, after it)", seconds, plain, "s")
        started = time.perf_counter()
        build(Environment(self._list()), tell)
        yield Row("the next run, of the same list", time.perf_counter() - started, None, "s")
        size = archive.stat().st_size / MB
        yield Row("archive (peer: what pip has installed)", size, disk_mb(target), "MB")
        yield Row("unpacked in a job's folder", look_into(archive).unpacked / MB, None, "MB")

    def starting(self) -> Iterator[Row]:
        """Each job is a process of the worker's archive, as HTCondor starts it; transfer is not in it."""
        with tempfile.TemporaryDirectory(dir=self.area) as name:
            folder = Path(name)
            code = pack_worker()
            (folder / code.name).write_bytes(code.content)
            jobs = Jobs(folder, sys.executable, folder / code.name, TIMEOUT, TIMEOUT)
            for what, imports in (("imports them", self.sizes.imports), ("imports nothing of it", ("sys",))):
                ours: list[tuple[float, float]] = []
                alone: list[tuple[float, float]] = []
                for number in range(self.sizes.repeats):
                    ours.append(self._job(jobs, f"{what}-{number}", imports, self.built[0]))
                    usual = ("sys",) if self.sizes.made else imports
                    alone.append(self._job(jobs, f"{what}-{number}-alone", usual, None))
                text = f"a job whose program {what} (peer: a job without environment, on a worker that has them)"
                for position, clock in enumerate(("", "; processor time")):
                    mine, peers = (statistics.median(one[position] for one in side) for side in (ours, alone))
                    yield Row(text + clock, mine, peers, "s")

    def _job(self, jobs: Jobs, name: str, imports: Sequence[str], environment: Path | None) -> tuple[float, float]:
        """Return the seconds of a job from the start of its process to the end, and those of processors."""
        script = jobs.folder / f"{name}.py"
        script.write_text(PROGRAM.format(", ".join(imports)), encoding="utf-8")
        archive = jobs.folder / f"{name}.zip"
        write_program(Program(("python", "train.py"), (("train.py", script),)), archive)
        inputs = {PROGRAM_FILE: archive} | ({ENVIRONMENT_FILE: environment} if environment else {})
        digests = {file: sha256_of(path) for file, path in inputs.items()}
        facts = {"space": (), "point": {}, "train": TrainSettings(epochs=1), "metric": Metric("auc")}
        trial = program_trial("bench", "bench", 0, Role.TUNE, sha256=digests, **facts)  # type: ignore[arg-type]
        before = _processor_seconds()
        tried = jobs.try_job(name, trial, inputs)
        if tried.status is not Status.OK:
            raise NotMeasuredError(tried.reason)
        return tried.seconds, _processor_seconds() - before

    def _list(self) -> Path:
        path = self.area / "requirements.txt"
        lines = self.sizes.packages
        if self.sizes.made and not path.exists():
            lines = (str(_make_wheel(self.area, *lines)),)
        if not path.exists():
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    def details(self, rows: Sequence[Row]) -> dict[str, object]:  # noqa: ARG002
        """Return what was installed."""
        with zipfile.ZipFile(self.built[0]) as packed:
            return {"packages": packed.read("packages.txt").decode().split(), "files": len(packed.infolist())}


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _make_wheel(folder: Path, name: str) -> Path:
    info, files = f"{name}-1.0.dist-info", {f"{name}.py": "VALUE = 1\n"}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: bench\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        for path, text in files.items():
            packed.writestr(path, text)
    return wheel


if __name__ == "__main__":
    sys.exit(main(BENCH, EnvironmentBench, FULL, QUICK))
