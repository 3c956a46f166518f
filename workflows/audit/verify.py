"""Check a run directory against every digest and figure that it has of itself."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from nnlib.contract import (
    CHECKPOINT_FILE,
    FLOOR_FILE,
    LONGEST_RESULT,
    RESULT_FILE,
    SCORES_FILE,
    TRIAL_FILE,
    ContractError,
    Result,
    Status,
    Trial,
    result_from_json,
    sha256_of,
    trial_from_json,
)
from nnlib.plain_file import read_plain
from regiondag.audit.forgotten_jobs import ADVICE as FORGOTTEN
from regiondag.audit.forgotten_jobs import KnownJob, describe_forgotten, find_forgotten, read_known
from regiondag.audit.lost_records import ADVICE, list_unproposed, name_lines, name_trials
from regiondag.audit.older_copies import Marks, list_older, read_marks
from regiondag.condor.events.log import read_settled
from regiondag.errors import PoolError, RegiondagError
from regiondag.run import region_spec
from regiondag.run.history import OPEN, History, TrialOutcome
from regiondag.run.journal import Journal, find_breaks
from regiondag.run.layout import START_FOLDER, NodeName, RegionFolder, RunFolder
from regiondag.run.manifest import RunManifest, read_manifest
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.trial_recipes import recipe_in_office
from regiondag.study.families import FAMILY, INCUMBENT, NETWORK, point_of

Progress = Callable[[int, int], None]  # regions read, then files; and how many there are
CheckpointReader = Callable[[Path], None]  # raises ValueError for one that is damaged
AskForJobs = Callable[[RunFolder, RunManifest], Sequence[KnownJob]]  # raises PoolError where nobody can be asked

RESTORE = "restore it from a copy"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that is not as it was: which file, what is wrong, what to do."""

    path: str
    seen: str
    advice: str


@dataclass(frozen=True, slots=True)
class Expected:
    """A file and the SHA-256 that it must have, by whom."""

    path: Path
    sha256: str
    source: str
    advice: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, and what was found wrong."""

    files: int
    outcomes: int
    findings: tuple[Mismatch, ...]
    unchecked: tuple[str, ...] = ()  # checks that were not made, and why


def verify(
    run: RunFolder, progress: Progress, check_checkpoint: CheckpointReader, ask: AskForJobs = lambda *_: ()
) -> Verified:
    """Check all of a run; RegiondagError for a folder that is none. `ask` says what HTCondor knows of it."""
    manifest = read_manifest(run)
    jobs, unchecked = _ask(ask, run, manifest)  # first: what ends meanwhile is in the logs when they are read
    recorded: set[str] = set()
    found: list[Mismatch | Expected] = list(_manifest(run, manifest))
    outcomes, settled, marks = 0, read_settled(run), read_marks(run)
    for done, slug in enumerate(manifest.regions):
        progress(done, len(manifest.regions))
        posted = settled.get(slug, {}).keys() | marks.settled.get(slug, {}).keys()
        checks = _RegionCheck(run, run.region(slug), slug, manifest.sha256, posted, marks)
        found += checks.run()
        outcomes += checks.outcomes
        recorded |= checks.jobs
    expected = [check for check in found if isinstance(check, Expected)]
    findings = [check for check in found if isinstance(check, Mismatch)]
    findings += _digests(run, expected, progress)
    findings += _checkpoints(run, manifest.regions, check_checkpoint)
    forgotten = find_forgotten(jobs, read_known(run, recorded), time.time()) if jobs else []
    if forgotten:
        findings.append(Mismatch(run.path.name, describe_forgotten(forgotten), FORGOTTEN.format(run=run.path)))
    return Verified(len({check.path for check in expected}), outcomes, tuple(findings), unchecked)


def _ask(ask: AskForJobs, run: RunFolder, manifest: RunManifest) -> tuple[Sequence[KnownJob], tuple[str, ...]]:
    """Return what HTCondor knows of a run's jobs; where it cannot be asked also that this was not checked, and why."""
    try:
        return ask(run, manifest), ()
    except PoolError as error:
        return (), (f"whether HTCondor knows more of the run than it does itself: {error}",)


def _manifest(run: RunFolder, manifest: RunManifest) -> Iterator[Mismatch | Expected]:
    sources = manifest.sources
    for name, digest in manifest.sha256.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            yield Mismatch("manifest.json", f"names the file {name!r} outside of the run", f"{RESTORE} of the manifest")
            continue
        source = f"{RESTORE}, such as {sources[name]}," if name in sources else f"{RESTORE},"
        advice = f"{source} or generate a new run; what was trained since it changed is in doubt"
        yield Expected(run.path / path, digest, "manifest.json", advice)


class _RegionCheck:
    """Checks one region."""

    def __init__(
        self,
        run: RunFolder,
        folder: RegionFolder,
        slug: str,
        digests: Mapping[str, str],
        settled: Set[int | None],
        marks: Marks,
    ) -> None:
        self.run_folder, self.folder, self.slug, self.digests = run, folder, slug, digests
        self.settled, self.marks = settled, marks  # what is by DAGMan's log, or by manager.log
        self.outcomes = 0
        self.jobs: set[str] = set()  # that the journal says have ended

    def run(self) -> list[Mismatch | Expected]:
        """Return what is wrong, and the digests that are still to be compared."""
        try:
            spec = read_spec(self.folder.spec)
            history = Journal(self.folder.journal).read()
        except RegiondagError as error:
            path, _, seen = str(error).removesuffix(region_spec.RESTORE).partition(": ")
            advice = f"{RESTORE}; nothing else of the region can be checked without it"
            return [Mismatch(self._inside(Path(path)), seen, advice)]
        checks = [*self._spec(spec), *self._journal(history), *self._start(), *self._champion(history)]
        older = list_older(self.folder, spec, history, self.marks)
        checks += [Mismatch(self._inside(path), seen, advice) for path, seen, advice in older]
        ends = [*sorted(history.settled.items()), *([(None, history.final)] if history.final else [])]
        self.jobs = {fault.job for fault in history.faults}
        for number, settled in ends:
            self.outcomes += 1
            self.jobs.add(settled.job)
            checks += self._outcome(NodeName(self.slug, number), settled, spec, history)
        return checks

    def _spec(self, spec: RegionSpec) -> Iterator[Mismatch]:
        for name, digest in spec.sha256.items():
            inside = self._inside(self.folder.path / name)
            if self.digests.get(inside, digest) != digest:
                seen = f"says sha256 {digest[:12]} of {name}, manifest.json says {self.digests[inside][:12]}"
                yield Mismatch(self._inside(self.folder.spec), seen, f"{RESTORE}; jobs would refuse their inputs")

    def _journal(self, history: History) -> Iterator[Mismatch]:
        """Yield what the journal has lost, by itself and by what others have noted."""
        name = self._inside(self.folder.journal)
        breaks = find_breaks(Journal(self.folder.journal).lines())
        if breaks:
            numbers = f"line{'s' if len(breaks) > 1 else ''} {', '.join(map(str, breaks[:4]))}"
            seen = f"{numbers}: not what followed the line before; a line was removed, changed, doubled or moved"
            yield Mismatch(name, seen, ADVICE)
        if history.strangers:
            seen = f"{name_lines(history.strangers)} of another run or region; it was copied, or put back, from there"
            yield Mismatch(name, seen, ADVICE)
        lost = list_unproposed(self.folder, history)
        if lost:
            yield Mismatch(name, f"knows nothing of {name_trials(lost)}, which were given to jobs", ADVICE)
        ended = sorted(number for number in self.settled if number is not None and _is_unknown(number, history))
        if ended:
            yield Mismatch(
                name, f"does not say how {name_trials(ended)} ended, which by DAGMan's log is settled", ADVICE
            )
        if None in self.settled and _is_unknown(None, history):
            seen = "does not say how the final training ended, which by DAGMan's log is settled"
            yield Mismatch(name, seen, ADVICE)

    def _start(self) -> Iterator[Mismatch | Expected]:
        if self.folder.init_facts.exists():
            yield from self._check_model(
                self.folder.init_facts, self.folder.init_model, "of the model it was copied from"
            )

    def _champion(self, history: History) -> Iterator[Mismatch | Expected]:
        if (history.final and history.final.ok) or self.folder.champion_metrics.exists():
            again = f"or make it again: regiondag trial rerun {self.run_folder.path} {self.slug} final --force"
            yield from self._check_model(self.folder.champion_metrics, self.folder.champion_model, again)

    def _check_model(self, facts: Path, model: Path, advice: str) -> Iterator[Mismatch | Expected]:
        """Yield the check of a model whose digest stands in a file beside it."""
        try:
            digest = str(json.loads(facts.read_text(encoding="utf-8"))["sha256"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            said = error.strerror if isinstance(error, OSError) else f"damaged, or without sha256 ({error})"
            yield Mismatch(self._inside(facts), f"cannot be read: {said}", f"{RESTORE}, {advice}")
            return
        yield Expected(model, digest, self._inside(facts), f"{RESTORE}, {advice}")

    def _outcome(
        self, node: NodeName, settled: TrialOutcome, spec: RegionSpec, history: History
    ) -> Iterator[Mismatch | Expected]:
        if settled.status in OPEN or (spec.served_by and not settled.job):
            return  # the files may be those of a later try; what serves many was made by one region's job
        place = self.folder.trial(node)
        again = f"{RESTORE}, or train it again: regiondag trial rerun {self.run_folder.path} {self.slug} "
        again += f"{'final' if node.number is None else node.number} --force"
        trial = self._read(place / TRIAL_FILE, trial_from_json)
        result = self._read(place / RESULT_FILE, result_from_json)
        for name, read in ((TRIAL_FILE, trial), (RESULT_FILE, result)):
            if isinstance(read, str):
                yield Mismatch(self._inside(place / name), read, again)
        if isinstance(trial, Trial):
            yield from (
                Mismatch(self._inside(place / TRIAL_FILE), seen, again) for seen in _other(trial, spec, history)
            )
        if isinstance(result, Result):
            for seen in _contradictions(result, settled, node):
                yield Mismatch(self._inside(place / RESULT_FILE), seen, again)
            brought = {spec.outputs.model: result.model, SCORES_FILE: result.scores, FLOOR_FILE: result.floor}
            for name, digest in brought.items():
                if digest:
                    yield Expected(place / name, digest, self._inside(place / RESULT_FILE), again)
            if settled.result:
                yield Expected(place / RESULT_FILE, settled.result, self._inside(self.folder.journal), again)

    def _read(self, path: Path, parse: Callable[[str], Trial] | Callable[[str], Result]) -> Trial | Result | str:
        try:
            return parse(read_plain(path, LONGEST_RESULT).decode())
        except FileNotFoundError:
            return "is missing, though the journal says how the trial ended"
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        except (UnicodeDecodeError, ContractError) as error:
            return f"cannot be read: {error}"

    def _inside(self, path: Path) -> str:
        return _name(self.run_folder, path)


def _is_unknown(number: int | None, history: History) -> bool:
    return history.last_outcome(number) is None and number not in history.reopened


def _contradictions(result: Result, settled: TrialOutcome, node: NodeName) -> Iterator[str]:
    """Yield in what a result is not what was settled; a diverged trial has no figures."""
    if result.node != str(node):
        yield f"is of the node {result.node!r}"
    # What serves a region, and so the figures that its last job settled, may be popularity or an earlier champion.
    others = [*result.compared.values(), result.baseline] if node.number is None else []
    for name in ("status", "value", "metrics", "curve", "best_epoch"):
        said, seen = getattr(settled, name), getattr(result, name)
        if name == "metrics" and said in others:
            continue
        if seen != said and (name in ("status", "value") or said):
            yield f"says {name} {_brief(seen)}, the journal says {_brief(said)}"


def _other(trial: Trial, spec: RegionSpec, history: History) -> Iterator[str]:
    """Yield in what a trial is not what was proposed, or what the region's files are."""
    for name, digest in trial.sha256.items():
        if spec.sha256.get(name, digest) != digest:
            yield f"wants sha256 {digest[:12]} of {name}, region.json says {spec.sha256[name][:12]}"
    proposal = history.proposals.get(trial.number)
    point = proposal.point if proposal else {}
    if point.get(FAMILY) == INCUMBENT:
        if trial.recipe != recipe_in_office(spec, point):
            yield "is not of the recipe in office, which the journal proposed"
        return
    said = {FAMILY: NETWORK, **asdict(trial.train), **trial.hyperparameters}
    if trial.recipe is not None:
        said = point_of(trial.recipe)
    for name, value in point.items():
        if said.get(name) != value:
            yield f"says {name} {_brief(said.get(name))}, the journal proposed {_brief(value)}"


def _brief(value: object) -> str:
    text = repr(str(value) if isinstance(value, Status) else value)
    return text if len(text) <= 100 else text[:99] + "…"


def _digests(run: RunFolder, expected: Sequence[Expected], progress: Progress) -> Iterator[Mismatch]:
    """Yield the files whose SHA-256 is another one; each is read once, several at a time."""
    paths = list(dict.fromkeys(check.path for check in expected))
    seen: dict[Path, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for done, (path, digest) in enumerate(zip(paths, pool.map(_digest, paths), strict=True), start=1):
                seen[path] = digest
                progress(done, len(paths))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for check in expected:
        found = seen[check.path]
        if found != check.sha256:
            text = f"has the sha256 {found[:12]}" if len(found) == 64 else found
            yield Mismatch(_name(run, check.path), f"{text}, {check.source} says {check.sha256[:12]}", check.advice)


def _digest(path: Path) -> str:
    """Return a file's SHA-256, or in words why there is none."""
    try:
        return sha256_of(path)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _checkpoints(run: RunFolder, slugs: Mapping[str, str], check: CheckpointReader) -> Iterator[Mismatch]:
    patterns = CHECKPOINT_FILE, f"{START_FOLDER}/{CHECKPOINT_FILE}"  # one that came back, or waits for its next job
    found = (run.region(slug).path.glob(f"trials/*/{pattern}") for slug in slugs for pattern in patterns)
    for path in (path for some in found for path in sorted(some)):
        try:
            if path.stat().st_size:  # an empty one is that of a training that has ended
                check(path)
        except FileNotFoundError:
            continue  # PRE and POST of a study in progress have moved it
        except OSError as error:
            yield Mismatch(_name(run, path), f"cannot be read: {error.strerror}", "see to the disk, and look again")
        except ValueError as error:
            yield Mismatch(
                _name(run, path), str(error), "remove it; the training begins anew, or goes on from the last"
            )


def _name(run: RunFolder, path: Path) -> str:
    """Return a file's name in the run, or all of it for one that lies elsewhere."""
    return str(path.relative_to(run.path)) if path.is_relative_to(run.path) else str(path)
