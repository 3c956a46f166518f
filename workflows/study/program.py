"""A program of the user's that trains in nnlib's place. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.contract import PROGRAM_FILE, Metric, Role, Terms, TrainSettings, Trial
from regiondag.study.space import Point, Space, with_defaults

if TYPE_CHECKING:  # DAGMan's scripts have no worker in their archive
    from nnlib.worker.downloads import Download

# What stands in braces in a command, besides hyperparameters: keys of the program's trial.json.
TOLD = ("region", "trial", "role", "seed", "epochs", "seconds", "metric", "checkpoint", "artifact")
# A URL that can stand in a list of a submit file: no blank, no comma, no $ and no quotes.
URL = r"[a-z][a-z0-9+.-]{1,15}://[A-Za-z0-9._~:/?@!&=+%-]+"
TRAINER = "trainer"  # the key of study.yaml
CALL = "regiondag.call"  # what calls a function in the place of a command of the user's
LISTS = (".txt", ".in")  # how files end that list packages
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar", ".zip")  # and environments
# Names in the program's folder that are its job's.
RESERVED = ("trial.json", "result.json", "reports.jsonl", "checkpoint", "artifact", ".helper")


@dataclass(frozen=True, slots=True)
class Container:
    """The image in which a program runs."""

    image: str  # as the study names it
    file: Path | None = None  # where it lies here, if it goes with the job


@dataclass(frozen=True, slots=True)
class Environment:
    """What a program needs to run: a list of packages, or an environment that is packed already."""

    file: Path
    python: str = ""  # version of the workers' Python, such as 3.13, of a list; empty: this machine's
    platform: str = ""  # what pip calls the workers' platform; empty: this machine's

    @property
    def is_list(self) -> bool:
        """Whether it has to be built."""
        return self.file.suffix in LISTS


@dataclass(frozen=True, slots=True)
class Program:
    """What one region's trials run."""

    command: tuple[str, ...]  # with placeholders
    files: tuple[tuple[str, Path], ...] = ()  # name in its folder -> where it lies here
    retry: tuple[int | str, ...] = ()  # exit codes, and texts among its last lines, that are the machine's fault
    downloads: tuple[Download, ...] = ()  # files that its jobs get from URLs
    container: Container | None = None
    terms: Terms = field(default_factory=Terms)
    environment: Environment | None = None

    @property
    def image(self) -> Path | None:
        """The image that goes with the job."""
        return self.container.file if self.container else None


def program_trial(
    node: str,
    region: str,
    number: int,
    role: Role,
    *,
    space: Space,
    point: Point,
    train: TrainSettings,
    metric: Metric,
    sha256: Mapping[str, str],
) -> Trial:
    """Return a job of a program, which is told all hyperparameters, and of nnlib's settings its budget of epochs.

    `sha256` has those of the program's archive, and of what goes with it.
    """
    settings = {name: point[name] for name in ("epochs",) if name in point}
    return Trial(
        node=node,
        region=region,
        number=number,
        role=role,
        network="",
        hyperparameters=with_defaults(space, point),
        train=replace(train, **settings),  # type: ignore[arg-type]  # checked when study.yaml was read
        metric=metric,
        train_files=(),
        program=PROGRAM_FILE,
        sha256=sha256,
    )
