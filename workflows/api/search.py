"""The tuner alone, for who runs trials by other means: asked for the next trial, and told how each ended."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsFloat

from nnlib.contract import Status
from regiondag.api.plain import to_number, to_plain, to_reason
from regiondag.config.keys import ALONE
from regiondag.config.sections import read_search_alone
from regiondag.errors import ConfigError, RegiondagError, UsageError
from regiondag.run.history import History, TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.proposal import batch_of, make_request
from regiondag.run.region_spec import RegionSpec, spec_of
from regiondag.study.space import Point, Value, with_defaults
from regiondag.trials.config_space import config_space_of
from regiondag.trials.optuna_space import distributions_of
from regiondag.tuning.propose import propose
from regiondag.util.schema import Layer, Problems, Section
from regiondag.util.yaml_file import Document

if TYPE_CHECKING:
    from ConfigSpace import ConfigurationSpace
    from optuna.distributions import BaseDistribution

NAME = "search"  # a region of this name, alone in its study, is searched by the same points
BEGIN = b'{"event": "search"'


class ExhaustedError(RegiondagError):
    """Every point of the space was tried, or asked for."""


@dataclass(frozen=True, slots=True, repr=False)
class Trial:
    """One set of hyperparameters, and how it ended: with a `value`, or `failed` for a reason; else it is `pending`."""

    number: int
    _point: Mapping[str, Value]
    value: float | None = None
    stderr: float | None = None
    failed: str = ""

    def __repr__(self) -> str:
        """Say which one it is, and how it ended."""
        end = f"failed={self.failed!r}" if self.failed else f"value={self.value}"
        return f"<Trial {self.number}: {self.hyperparameters}, {'pending' if self.pending else end}>"

    @property
    def hyperparameters(self) -> dict[str, Value]:
        """Its values by name, a new dictionary each time.

        A hyperparameter whose `when` does not hold has its `default`, or is absent where it has none.
        """
        return dict(self._point)

    @property
    def pending(self) -> bool:
        """Whether nothing was told of it yet."""
        return self.value is None and not self.failed


class Search:
    """A search whose trials are run by whoever asks for them. All that is known of it is in the file `path`.

    `space`, `method`, `constraints` and `acquisition` are what they are in `search` of study.yaml; a hyperparameter may
    also be one of Optuna's distributions or of ConfigSpace's hyperparameters, and all of them a ConfigurationSpace.
    `mode` is max or min. `first` are points that are tried before all others. Of about `trials` trials a quarter, from
    2 to 8, are spread over the space before the model is asked; more may be asked for. The same `seed` and the same
    file give the same proposals.

    A file that is there is gone on with, by any number of processes at once, each under the lock of a second file
    beside it. It is refused where it holds a search of another space or metric. ConfigError has every mistake in what
    is given.
    """

    def __init__(
        self,
        space: Mapping[str, object],
        path: str | Path,
        *,
        metric: str = "value",
        mode: str = "max",
        method: str = "auto",
        constraints: Sequence[str] = (),
        acquisition: str = "improvement",
        first: Sequence[Point] = (),
        trials: int = 32,
        seed: int = 1,
    ) -> None:
        """Begin a search, or go on with the one in `path`."""
        written: dict[str, object] = {
            "space": space,
            "metric": metric,
            "mode": mode,
            "method": method,
            "constraints": constraints,
        }
        written |= {"acquisition": acquisition, "first": first, "trials": trials, "seed": seed}
        self._written = {name: to_plain(value) for name, value in written.items()}
        self._spec = _read("Search", self._written)
        self._journal = Journal(Path(path))
        _check_file(self.path)
        with self._journal.locked():
            history = _begun(self.path)
            if history.search:
                self._refuse_another(history.search)
            if {name: history.search.get(name) for name in ALONE} != self._written:
                self._journal.append("search", **self._written)

    @classmethod
    def load(cls, path: str | Path) -> Search:
        """Return the search in a file, with all that it was given; RegiondagError where there is none."""
        _check_file(Path(path))
        begun: Mapping[str, Any] = _begun(Path(path)).search
        if not begun:
            raise RegiondagError(f"{path}: no search there; regiondag.Search(space, {str(path)!r}) begins one")
        _read(str(path), begun)
        return cls(path=path, **{name: begun[name] for name in ALONE if name in begun})

    def __repr__(self) -> str:
        """Say which one it is."""
        return f"<Search by {self._spec.metric.name} ({self._written['mode']}) in {self.path}>"

    @property
    def path(self) -> Path:
        """The file."""
        return self._journal.path

    @property
    def trials(self) -> list[Trial]:
        """All trials, as they were asked for."""
        history = self._known()
        return [self._trial(history, number) for number in sorted(history.proposals)]

    @property
    def pending(self) -> list[Trial]:
        """Those of which nothing was told yet: they run, or what ran them was killed, and may be run again."""
        return [trial for trial in self.trials if trial.pending]

    @property
    def best(self) -> Trial | None:
        """The trial with the best value, the earliest of equals; None before there is one."""
        history = self._known()
        found = history.best(self._spec.metric.minimize)
        return None if found is None or found.trial is None else self._trial(history, found.trial)

    def ask(self) -> Trial:
        """Return the next trial, which is pending until its end is told; it is in the file then.

        Those that are pending are taken into account. ExhaustedError when the space has no other point.
        """
        with self._journal.locked():
            history = self._known()
            number = max(history.proposals, default=-1) + 1
            numbers, before = batch_of(self._spec, history, number)
            request = make_request(self._spec, history, numbers, before, None)
            told = list(request.told.values())
            asked = propose(self._spec.search, told, request.pending, request.asked, request.seed)
            points = [*request.given, *asked]
            if not points:
                raise ExhaustedError(f"{self.path}: all {len(before)} points of the space were asked for already")
            self._journal.append("proposed", trial=number, point=points[0])
        return Trial(number, with_defaults(self._spec.search.space, points[0]))

    def tell(
        self,
        trial: Trial | int,
        value: SupportsFloat | None = None,
        *,
        stderr: SupportsFloat | None = None,
        seconds: SupportsFloat = 0.0,
        failed: str | BaseException | None = None,
    ) -> None:
        """Say how a trial ended: its value, or why it `failed`; a value that is no finite number is a failure, too.

        `stderr` is the value's standard error, which is kept beside it, and `seconds` what the trial took, which
        counts with `acquisition="improvement_per_second"`. To tell the same twice changes nothing; a trial that failed
        may be told again, as when it was run once more. UsageError for a trial that was not asked for here, for
        another value than was told before, and for what is no number.
        """
        number = trial.number if isinstance(trial, Trial) else trial
        if (value is None) == (failed is None):
            raise UsageError(f"trial {number}: tell either its value, or failed=REASON")
        outcome = self._outcome(number, value, stderr, seconds, failed)
        with self._journal.locked():
            history = self._known()
            if type(number) is not int or number not in history.proposals:
                raise UsageError(f"trial {number!r} was not asked for; {self.path} has {len(history.proposals)} trials")
            if isinstance(trial, Trial) and trial.hyperparameters != self._trial(history, number).hyperparameters:
                raise UsageError(f"trial {number} of {self.path} has other hyperparameters: it is of another search")
            known = history.settled.get(number)
            if known is not None and known.ok:
                if (known.value, known.stderr) != (outcome.value, outcome.stderr):
                    raise UsageError(f"trial {number} was told already: {self._spec.metric.name} was {known.value}")
            elif known != outcome:
                self._journal.append("settled", **asdict(outcome))

    def to_optuna(self) -> dict[str, BaseDistribution]:
        """Return the space as Optuna's distributions, without conditions, constraints and order of options.

        RegiondagError where Optuna is not installed.
        """
        return distributions_of(self._spec.search.space)

    def to_config_space(self) -> ConfigurationSpace:
        """Return the space as ConfigSpace has it, with conditions and order of options; steps are ordinal there.

        UsageError for what it cannot say, such as constraints; RegiondagError where ConfigSpace is not installed.
        """
        return config_space_of(self._spec.search.space, self._spec.search.constraints)

    def _outcome(
        self,
        number: int,
        value: SupportsFloat | None,
        stderr: SupportsFloat | None,
        seconds: SupportsFloat,
        failed: str | BaseException | None,
    ) -> TrialOutcome:
        name = self._spec.metric.name
        error = None if stderr is None else to_number("stderr", stderr, least=0.0)
        spent = to_number("seconds", seconds, least=0.0)
        if value is not None:
            came = to_number(name, value)
            if math.isfinite(came):
                return TrialOutcome(number, Status.OK, "", came, {name: came}, stderr=error, seconds=spent)
            failed = f"{name} was {came}"
        return TrialOutcome(number, Status.REMOVED, to_reason(failed), seconds=spent)

    def _known(self) -> History:
        """Return all that is in the file; RegiondagError where it is not what it was."""
        history = self._journal.read(whole=False)
        if not history.search:
            raise RegiondagError(f"{self.path}: the search is gone; was the file removed or replaced?")
        return history

    def _trial(self, history: History, number: int) -> Trial:
        point = with_defaults(self._spec.search.space, history.proposals[number].point)
        ended = history.settled.get(number)
        if ended is None:
            return Trial(number, point)
        return Trial(number, point, ended.value, ended.stderr, ended.reason)

    def _refuse_another(self, begun: Mapping[str, Any]) -> None:
        """Raise UsageError where what was begun in the file is judged, or can be, by other values than these."""
        there, own = _read(str(self.path), begun), self._spec
        if (there.metric, there.search.space) == (own.metric, own.search.space):
            return
        pairs = [(name, self._written[name], begun.get(name)) for name in ("metric", "mode")]
        space, other = self._written["space"], begun["space"]
        pairs += [(f"space.{name}", space.get(name), other.get(name)) for name in {**space, **other}]
        pairs += [("space", list(space), list(other))]
        name, seen, known = next((name, seen, known) for name, seen, known in pairs if seen != known)
        raise UsageError(
            f"{self.path}: holds another search: {name}: seen {seen!r:.200}, there {known!r:.200}; name another file, "
            f"or go on with regiondag.Search.load({str(self.path)!r})"
        )


def _read(file: str, written: Mapping[str, object]) -> RegionSpec:
    """Return the search as a region that is searched in lanes; ConfigError with every mistake."""
    problems = Problems(Document(file, written, {}))
    known = {name: value for name, value in written.items() if name in ALONE}  # a later version may have written more
    region = read_search_alone(Section(problems, [Layer(known, ())]), NAME)
    if problems.found:
        raise ConfigError(problems.texts())
    return spec_of(NAME, region, {}, 0, first=region.first)


def _begun(path: Path) -> History:
    """Return what a file holds; RegiondagError where it holds something else than a search."""
    try:
        with path.open("rb") as file:
            start = file.read(len(BEGIN))
    except FileNotFoundError:
        return History()
    if not BEGIN.startswith(start):  # a torn first line is begun again
        raise RegiondagError(f"{path}: exists and is no search; name a new file")
    return Journal(path).read(whole=False)


def _check_file(path: Path) -> None:
    if path.is_dir() or not path.parent.is_dir():
        seen = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UsageError(f"{path}: {seen}; name a file that is to hold the search")
