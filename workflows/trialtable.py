"""All trials of a run as rows: sorted, filtered, as text, JSON or CSV. Nothing here touches the disk."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any

from workflows.errors import UsageError
from workflows.journal import History, Settled
from workflows.plaintext import holds_control_character
from workflows.regionspec import RegionSpec
from workflows.space import Value

RUNNING = "running"  # proposed, not settled: its job waits or runs, or its DAG was stopped
PRUNED = "pruned"
CSV_COLUMNS = (
    *("study", "run", "region", "slug", "trial", "status", "metric", "minimize", "value"),
    *("epochs", "best_epoch", "seconds", "settled", "reason", "won"),
)


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial. `status` is ok, pruned, running, or the kind of its failure; `reason` says more."""

    region: str
    slug: str
    trial: int
    status: str
    metric: str
    minimize: bool
    value: float | None
    hyperparameters: Mapping[str, Value]  # without those whose condition does not hold
    epochs: int | None
    best_epoch: int | None
    seconds: float | None
    reason: str
    metrics: Mapping[str, float]
    curve: tuple[float, ...]  # the metric after each epoch
    settled: float | None  # Unix time
    won: bool  # its hyperparameters are those of the final training

    @property
    def ok(self) -> bool:
        """Whether there is a value to compare."""
        return self.status == "ok" and self.value is not None

    @property
    def failed(self) -> bool:
        """Whether it ended without a value, and not because it was pruned."""
        return not self.ok and self.status not in (RUNNING, PRUNED)

    @property
    def cost(self) -> float:
        """The value as something to be minimised."""
        value = 0.0 if self.value is None else self.value
        return value if self.minimize else -value


@dataclass(frozen=True, slots=True)
class RegionTrials:
    """A region and all of its trials, in the order of their numbers."""

    spec: RegionSpec
    rows: tuple[TrialRow, ...]
    faults: Mapping[str, str] = field(default_factory=dict)  # why a job was followed by another try of its node


@dataclass(frozen=True, slots=True)
class RunTrials:
    """The trials of a whole run, or of one of its regions. `run` is the name that its folder was made with."""

    study: str
    run: str
    regions: tuple[RegionTrials, ...]

    @property
    def rows(self) -> list[TrialRow]:
        """The rows of all regions, one region after the other."""
        return [row for region in self.regions for row in region.rows]


def find_region(regions: Mapping[str, str], name: str) -> str:
    """Return the slug of the region that is called `name`, by its name or by its slug; UsageError for none."""
    for slug, region in regions.items():
        if name in (region, slug):
            return slug
    near = get_close_matches(name, [*regions.values(), *regions], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise UsageError(f"no region {name!r} in this run{hint} There are: {', '.join(regions.values())}")


def trials_of(spec: RegionSpec, history: History) -> RegionTrials:
    """Return a row for every trial that was proposed or settled."""
    rows = tuple(_row(spec, history, n) for n in sorted(history.proposals | history.settled))
    return RegionTrials(spec, rows, {fault.job: fault.reason for fault in history.faults})


def _row(spec: RegionSpec, history: History, number: int) -> TrialRow:
    proposal = history.proposals.get(number)
    ended = history.settled.get(number)
    known = ended or Settled(number, RUNNING)
    curve = tuple(known.curve)
    return TrialRow(
        region=spec.name,
        slug=spec.slug,
        trial=number,
        status=known.status,
        metric=spec.metric.name,
        minimize=spec.metric.minimize,
        value=known.value,
        hyperparameters=dict(proposal.point) if proposal else {},
        epochs=len(curve) or known.best_epoch or None,
        best_epoch=known.best_epoch or None,
        seconds=known.seconds if ended else None,
        reason=known.reason,
        metrics=known.metrics,
        curve=curve,
        settled=history.settled_at.get(number) or None,
        won=history.won is not None and history.won[0] == number,
    )


def sort_rows(rows: Sequence[TrialRow], by: str) -> list[TrialRow]:
    """Return the rows `by` trial (as they are), value (the best first) or seconds (the longest first).

    Values of different metrics are not compared: each metric's trials stand together. Rows without what is sorted by
    come last.
    """
    if by == "trial":
        return list(rows)
    keys: dict[str, Callable[[TrialRow], tuple[Any, ...]]] = {
        "value": lambda row: (row.metric, row.minimize, not row.ok, row.cost),
        "seconds": lambda row: (row.seconds is None, -(row.seconds or 0.0)),
    }
    return sorted(rows, key=keys[by])


def summary_line(trials: RunTrials) -> str:
    """Return what the table is about, in one line."""
    rows = trials.rows
    planned = sum(region.spec.search.trials for region in trials.regions)
    running = sum(row.status == RUNNING for row in rows)
    pruned = sum(row.status == PRUNED for row in rows)
    failed = sum(row.failed for row in rows)
    only = f", {trials.regions[0].spec.name}" if len(trials.regions) == 1 else ""
    return (
        f"{trials.study}{only}: {len(rows) - running} of {planned} trials settled, {failed} failed, {pruned} pruned, "
        f"{running} waiting or running"
    )


# --- text, JSON, CSV ---------------------------------------------------------------------------------------


def headings(rows: Iterable[TrialRow]) -> list[str]:
    """Return the columns' names: a value for each metric in use, and every hyperparameter of any region."""
    rows = list(rows)
    return ["region", "trial", "status", *_metrics(rows), *hyperparameter_names(rows), "epochs", "seconds", "reason"]


def table(rows: Iterable[TrialRow]) -> list[list[str]]:
    """Return the rows as text, in the columns of `headings`."""
    rows = list(rows)
    metrics, names = _metrics(rows), hyperparameter_names(rows)
    return [
        [
            plain(row.region),
            str(row.trial),
            plain(row.status) + " (won)" * row.won,
            *(short(row.value) if metric == row.metric else "-" for metric in metrics),
            *(short(row.hyperparameters.get(name)) for name in names),
            short(row.epochs),
            "-" if row.seconds is None else f"{row.seconds:.1f}",
            plain(row.reason),
        ]
        for row in rows
    ]


def to_json(trials: RunTrials, rows: Iterable[TrialRow]) -> dict[str, Any]:
    """Return a JSON object with `rows` in it, at full precision."""
    return {"study": trials.study, "run": trials.run, "trials": [asdict(row) for row in rows]}


def to_csv(trials: RunTrials) -> str:
    """Return all rows as CSV with a heading; times as ISO 8601 in UTC, absent values as empty fields."""
    rows = trials.rows
    names = hyperparameter_names(rows)
    metrics = list(dict.fromkeys(metric for row in rows for metric in row.metrics))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    # With prefixes: a hyperparameter may be called `value`, and a metric is measured beside the one that counts.
    writer.writerow([*CSV_COLUMNS, *(f"hyperparameter.{n}" for n in names), *(f"metrics.{m}" for m in metrics)])
    for row in rows:
        known = {**asdict(row), "study": trials.study, "run": trials.run, "settled": _iso(row.settled)}
        known["reason"] = _no_formula(row.reason)
        more = [*(row.hyperparameters.get(n) for n in names), *(row.metrics.get(m) for m in metrics)]
        writer.writerow([*(known[column] for column in CSV_COLUMNS), *more])
    return text.getvalue()


def _no_formula(text: str) -> str:
    """Return what a worker wrote so that no spreadsheet takes it for a formula; the study's own names stay exact."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def hyperparameter_names(rows: Iterable[TrialRow]) -> list[str]:
    """Return the names of all hyperparameters of `rows`, each once, in the order in which they appear."""
    return list(dict.fromkeys(name for row in rows for name in row.hyperparameters))


def plain(text: str) -> str:
    """Return `text` with what could steer a terminal, or is illegal in XML, spelled out.

    >>> plain("a" + chr(27) + "[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(ascii(letter)[1:-1] if holds_control_character(letter) else letter for letter in text)


def shortened(text: str, longest: int) -> str:
    """Cut long text, and replace the two characters that XML cannot hold although they steer nothing.

    >>> shortened("Germany", 5)
    'Germ…'
    """
    text = text.replace("\ufffe", "?").replace("\uffff", "?")
    return text if len(text) <= longest else text[: longest - 1] + "…"


def short(value: Value | None) -> str:
    """Return a value in a few characters; `-` for none.

    >>> short(0.0123456), short(None), short(True)
    ('0.01235', '-', 'true')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else plain(str(value))


def _metrics(rows: Sequence[TrialRow]) -> list[str]:
    return list(dict.fromkeys(row.metric for row in rows))


def _iso(when: float | None) -> str:
    return "" if when is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
