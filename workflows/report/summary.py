"""Summarise a run: `report/summary.json` and `report/summary.md`, one row per region."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nnlib.confusion import Confusion, confusion_of
from nnlib.contract import Status
from regiondag.errors import RegiondagError
from regiondag.registry.read import Registry, open_registry
from regiondag.report.bill import Bill
from regiondag.report.headline import Headline, make_headline
from regiondag.run.history import ExpectedGain, History
from regiondag.run.journal import Journal
from regiondag.run.layout import RegionFolder, RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import RegionSpec, read_spec
from regiondag.run.region_state import FINISHED, RegionOutcome, RegionState, state_of
from regiondag.run.sick_machines import SICK_AFTER, read_failures, select_sick
from regiondag.study.families import describe_recipe, name_floor
from regiondag.study.model import POOLED
from regiondag.study.space import Value
from regiondag.study.trainer import PROGRAMS
from regiondag.util.text import make_printable, show_value

TEST_METRIC = "p@10"
NO_TRIALS = {"planned": 0, "run": 0, "ok": 0, "failed": 0, "pruned": 0}
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class RegionSummary:
    """One region's row."""

    region: str
    slug: str
    status: RegionOutcome
    reason: str
    hyperparameters: Mapping[str, Value]
    test: Mapping[str, float]  # of the champion's recipe, fitted on the days before the test window
    popularity: Mapping[str, float]
    validation: float | None  # winning trial's metric on the validation part
    trials: Mapping[str, int]  # planned, run, ok, failed, pruned
    hours: float
    model: str
    customers: int = 0  # of whom `test` is the mean
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of `test`, 95 %
    compared: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # what was tested beside it
    floor_name: str = name_floor()  # what the floor of `compared` is, in words
    recipe: str = ""  # what serves, in words; nothing where it is a network
    incumbent: str = ""  # the recipe that served before, in words; nothing where none did
    gains: Mapping[str, Sequence[float | None]] = field(default_factory=dict)  # of the study's metric over `compared`
    stands_for_all: bool = False  # it is no region of its own
    metric: str = ""  # that judged its trials
    of_program: bool = False  # a program of the user's trains in nnlib's place
    pinned: bool = False  # no run takes its champion's place
    left: ExpectedGain | None = None  # what another trial would be expected to gain; None: no model says so
    pictures: tuple[str, ...] = ()  # paths from the report's folder, of those that `regiondag study plot` drew
    confusion: Confusion | None = None  # what its champion took pictures for; there is no key where it has none

    @property
    def finished(self) -> bool:
        """Whether the region has its champion."""
        return self.status in FINISHED

    @property
    def serves(self) -> str:
        """What serves, in words; a network by its hyperparameters, and nothing without a champion."""
        values = (f"{name} {show_value(value)}" for name, value in self.hyperparameters.items())
        return self.recipe or ", ".join(values)


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run."""

    study: str
    run: str
    metric: str
    regions: tuple[RegionSummary, ...] = field(default_factory=tuple)
    machines: tuple[str, ...] = ()  # those that failed too many jobs in a row, and how
    cautions: tuple[str, ...] = ()  # what to doubt about what was chosen for all regions
    bill: Bill = field(default_factory=Bill)

    @property
    def finished(self) -> bool:
        """Whether every region has its champion."""
        return all(region.finished for region in self.regions)

    @property
    def asked(self) -> str:
        """What metrics are means over, as far as a champion says."""
        return "pictures" if any(region.confusion for region in self.regions) else "customers"

    @property
    def headline(self) -> Headline:
        """What it came to."""
        return make_headline(self, self.bill)


def summarise(run: RunFolder, bill: Bill | None = None) -> Summary:
    """Fold the journals of all regions into one summary; `bill` is what their jobs took."""
    manifest = read_manifest(run)
    rows = [_summary_of(run, slug, name) for slug, name in manifest.regions.items()]
    registry = open_registry(run.path.parent, manifest.study)
    rows = [replace(row, pinned=_is_pinned(registry, row.slug)) for row in rows]
    cautions = _cautions(run, manifest.regions)
    machines = _sick_machines(run)
    summary = Summary(manifest.study, str(run.path), manifest.metric, tuple(rows), machines, cautions, bill or Bill())
    return _say_pictures(summary) if summary.asked == "pictures" else summary


def _say_pictures(summary: Summary) -> Summary:
    """Return the summary in words of pictures: what chose the champions did not know of them."""
    reasons = [row.reason.replace("customers", "pictures") if row.finished else row.reason for row in summary.regions]
    rows = tuple(replace(row, reason=reason) for row, reason in zip(summary.regions, reasons, strict=True))
    cautions = tuple(text.replace("customers", "pictures") for text in summary.cautions)
    return replace(summary, regions=rows, cautions=cautions)


def _summary_of(run: RunFolder, slug: str, name: str) -> RegionSummary:
    """Summarise one region; one whose files are damaged has failed, and hides no other."""
    pictures = _pictures(run, slug)
    try:
        return _summarise_region(run.region(slug), pictures)
    except RegiondagError as error:
        return RegionSummary(
            name, slug, RegionOutcome.FAILED, str(error), {}, {}, {}, None, NO_TRIALS, 0.0, "", pictures=pictures
        )


def _is_pinned(registry: Registry, slug: str) -> bool:
    try:
        return registry.is_pinned(slug)
    except RegiondagError:  # whoever promotes says what is wrong
        return False


def _sick_machines(run: RunFolder) -> tuple[str, ...]:
    return tuple(
        f"{host} failed {SICK_AFTER} jobs in a row, the last of them: {last.reason}"
        for host, last in select_sick(read_failures(run)).items()
    )


def _cautions(run: RunFolder, slugs: Iterable[str]) -> tuple[str, ...]:
    """Return what was doubted when something was chosen; a damaged file is told of by the scripts that decide."""
    found: list[str] = []
    for slug in slugs:
        try:
            found += map(str, json.loads(run.region(slug).decisions.read_text(encoding="utf-8"))["cautions"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return tuple(found)


def _pictures(run: RunFolder, slug: str) -> tuple[str, ...]:
    return tuple(path.relative_to(run.report).as_posix() for path in sorted(run.pictures(slug).glob("*.svg")))


def _summarise_region(folder: RegionFolder, pictures: tuple[str, ...]) -> RegionSummary:
    spec = read_spec(folder.spec)
    history = Journal(folder.journal).read()
    final = history.final
    champion = _champion(folder) if final and final.ok else None
    winner = history.winner(spec.metric.minimize)
    state = state_of(spec, history)
    return RegionSummary(
        region=spec.name,
        slug=spec.slug,
        status=state.outcome,
        reason="; ".join(filter(None, (state.reason, _what_was_saved(spec, history, state)))),
        hyperparameters=champion or {},
        test=final.metrics if final else {},
        popularity=final.baseline if final else {},
        validation=winner.value if winner else None,
        trials=_count(spec, history),
        hours=round(_seconds(history) / HOUR, 4),
        model="" if champion is None else str(folder.champion_model),
        pictures=pictures,
        customers=final.customers if final else 0,
        intervals=final.intervals if final else {},
        compared=final.compared if final else {},
        floor_name=name_floor(spec.floor),
        recipe=describe_recipe(final.recipe) if final and final.recipe else "",
        incumbent=describe_recipe(spec.incumbent) if spec.incumbent else "",
        gains=final.gains if final else {},
        left=history.left,
        stands_for_all=bool(spec.regions) or spec.slug == POOLED,
        confusion=None if champion is None else _read_confusion(folder),
        metric=spec.metric.name,
        of_program=spec.kind is PROGRAMS,
    )


def _read_confusion(folder: RegionFolder) -> Confusion | None:
    """Return what the champion took pictures for; None of other champions, and where the file is damaged."""
    try:
        found = confusion_of(json.loads(folder.champion_confusion.read_bytes()))
    except (OSError, ValueError):
        return None
    return replace(found, classes=tuple(map(make_printable, found.classes)))  # as the job wrote them


def _what_was_saved(spec: RegionSpec, history: History, state: RegionState) -> str:
    """Return why a search ended before it had all its trials; nothing where it had them, or goes on."""
    return state.complete if len(history.proposals) < spec.search.trials and history.final else ""


def _champion(folder: RegionFolder) -> dict[str, Value] | None:
    """Return the hyperparameters of the region's champion; None where there is none."""
    if not folder.champion_metrics.exists():
        return None
    try:
        return dict(json.loads(folder.champion_metrics.read_bytes())["hyperparameters"])
    except (KeyError, TypeError, ValueError) as error:
        raise RegiondagError(
            f"{folder.champion_metrics} is damaged: no JSON with `hyperparameters`; restore it, or make it again: "
            f"regiondag trial rerun {folder.run.path} {folder.path.name} final --force, and submit the DAG"
        ) from error


def _count(spec: RegionSpec, history: History) -> dict[str, int]:
    done = history.settled.values()
    pruned = sum(s.status == Status.PRUNED for s in done)
    ok = sum(s.ok for s in done)
    return {
        "planned": spec.search.planned,
        "run": len(done),
        "ok": ok,
        "failed": len(done) - ok - pruned,
        "pruned": pruned,
    }


def _seconds(history: History) -> float:
    final = history.final.seconds if history.final else 0.0
    return sum(s.seconds for s in history.settled.values()) + final + history.attempt_seconds
