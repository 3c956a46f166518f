"""Summarise a run: `report/summary.json` and `report/summary.md`, one row per region."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nnlib.contract import write_atomically
from nnlib.oserror import describe
from workflows.errors import RegiondagError
from workflows.journal import History, Journal
from workflows.machines import SICK_AFTER, read_failures, sick
from workflows.names import RegionFolder, RunFolder
from workflows.regionspec import RegionSpec, hopeless, read_spec

TEST_METRIC = "p@10"
MANIFEST_KEYS = ("study", "run", "metric", "regions", "sha256")
NO_TRIALS = {"planned": 0, "run": 0, "ok": 0, "failed": 0, "pruned": 0}
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class RegionSummary:
    """One region's row. `status`: promoted, kept (the standing champion is not beaten), failed or unfinished."""

    region: str
    slug: str
    status: str
    reason: str
    hyperparameters: Mapping[str, Any]
    test: Mapping[str, float]  # of the champion, new or standing, on this run's test set
    challenger: Mapping[str, float]  # of the model that did not beat the standing champion
    popularity: Mapping[str, float]
    validation: float | None  # winning trial's metric on the validation part
    trials: Mapping[str, int]  # planned, run, ok, failed, pruned
    hours: float
    model: str
    standing: Mapping[str, float] = field(default_factory=dict)  # the standing champion's, on this run's test set
    last: Mapping[str, float] = field(default_factory=dict)  # the same champion's in the run that made it
    pictures: tuple[str, ...] = ()  # paths from the report's folder, of those that `regiondag study plot` drew

    @property
    def finished(self) -> bool:
        """Whether the region has its champion."""
        return self.status in ("promoted", "kept")


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole run."""

    study: str
    run: str
    metric: str
    regions: tuple[RegionSummary, ...] = field(default_factory=tuple)
    machines: tuple[str, ...] = ()  # those that failed too many jobs in a row, and how

    @property
    def finished(self) -> bool:
        """Whether every region has its champion."""
        return all(region.finished for region in self.regions)


def write_report(run: RunFolder) -> Summary:
    """Read all journals and write the report's files anew."""
    summary = summarise(run)
    run.report.mkdir(exist_ok=True)
    raw = asdict(summary) | {"finished": summary.finished}
    write_atomically(run.report / "summary.json", json.dumps(raw, indent=1, ensure_ascii=False) + "\n")
    write_atomically(run.report / "summary.md", to_markdown(summary))
    return summary


def summarise(run: RunFolder) -> Summary:
    """Fold the journals of all regions into one summary."""
    manifest = read_manifest(run)
    rows = [_summary_of(run, slug, name) for slug, name in manifest["regions"].items()]
    return Summary(manifest["study"], str(run.path), manifest["metric"], tuple(rows), _sick_machines(run))


def _summary_of(run: RunFolder, slug: str, name: str) -> RegionSummary:
    """Summarise one region; one whose files are damaged has failed, and hides no other."""
    pictures = _pictures(run, slug)
    try:
        return _summarise_region(run.region(slug), pictures)
    except RegiondagError as error:
        return RegionSummary(
            name, slug, "failed", str(error), {}, {}, {}, {}, None, NO_TRIALS, 0.0, "", pictures=pictures
        )


def _sick_machines(run: RunFolder) -> tuple[str, ...]:
    return tuple(
        f"{host} failed {SICK_AFTER} jobs in a row, the last of them: {last.reason}"
        for host, last in sick(read_failures(run)).items()
    )


def read_manifest(run: RunFolder) -> dict[str, Any]:
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
    missing = [key for key in MANIFEST_KEYS if not isinstance(raw, dict) or key not in raw]
    if missing:
        raise RegiondagError(
            f"{run.path} is not a run directory (its manifest.json says nothing of {', '.join(missing)}); "
            "`regiondag generate study.yaml` makes one"
        )
    return raw


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


def _pictures(run: RunFolder, slug: str) -> tuple[str, ...]:
    return tuple(path.relative_to(run.report).as_posix() for path in sorted(run.pictures(slug).glob("*.svg")))


def _summarise_region(folder: RegionFolder, pictures: tuple[str, ...]) -> RegionSummary:
    spec = read_spec(folder.spec)
    history = Journal(folder.journal).read()
    final = history.final
    champion = _champion(folder) if final and final.ok else None
    winner = history.winner(spec.metric.minimize)
    status, reason = region_status(spec, history)
    metrics = final.metrics if final else {}
    return RegionSummary(
        region=spec.name,
        slug=spec.slug,
        status=status,
        reason=reason,
        hyperparameters=champion or {},
        test=final.standing if final and status == "kept" else metrics,
        challenger=metrics if status == "kept" else {},
        popularity=final.baseline if final else {},
        validation=winner.value if winner else None,
        trials=_count(spec, history),
        hours=round(_seconds(history) / HOUR, 4),
        model="" if champion is None else str(folder.champion_model),
        standing=final.standing if final else {},
        last=_last_test(folder),
        pictures=pictures,
    )


def _champion(folder: RegionFolder) -> dict[str, Any] | None:
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


def _last_test(folder: RegionFolder) -> Mapping[str, float]:
    """Return what the standing champion's own test found; nothing where it does not say so."""
    try:
        raw = json.loads(folder.standing_metrics.read_text(encoding="utf-8"))["test"]
        return {str(name): float(value) for name, value in raw.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def region_status(spec: RegionSpec, history: History) -> tuple[str, str]:
    """Return how a region stands (promoted, kept, failed or unfinished), and why."""
    final = history.final
    if final and final.ok:
        return "promoted" if final.promoted else "kept", final.reason
    if final:
        return "failed", final.reason
    failures = [s for s in history.settled.values() if not s.ok]
    refused = [s for s in failures if s.status == "bad_input"]
    if refused:
        return "failed", refused[0].reason
    if history.stopped:
        reason = next(reversed(history.stopped.values()))
        return "failed", reason.removeprefix(f"region {spec.name!r}: ")
    if failures and len(failures) == spec.search.trials:
        reason, times = Counter(f"{s.status}: {s.reason}" for s in failures).most_common(1)[0]
        return "failed", f"all {len(failures)} trials failed, {times} of them: {reason}"
    stopped = hopeless(history, spec)
    if stopped:
        return "failed", stopped
    if spec.start.source and not history.proposals:
        return "unfinished", f"waits for the champion of the region {spec.start.source!r}, from which it starts"
    return "unfinished", "not all of its jobs have run; submit the DAG again to go on"


def _count(spec: RegionSpec, history: History) -> dict[str, int]:
    done = history.settled.values()
    pruned = sum(s.status == "pruned" for s in done)
    ok = sum(s.ok for s in done)
    return {
        "planned": spec.search.trials,
        "run": len(done),
        "ok": ok,
        "failed": len(done) - ok - pruned,
        "pruned": pruned,
    }


def _seconds(history: History) -> float:
    final = history.final.seconds if history.final else 0.0
    return sum(s.seconds for s in history.settled.values()) + final + history.attempt_seconds


# --- text --------------------------------------------------------------------------------------------------


def headings(summary: Summary) -> list[str]:
    """Return the columns' names; each test metric stands beside that of plain popularity."""
    figures = [text for metric in _shown_metrics(summary) for text in (f"test {metric}", f"popularity {metric}")]
    return ["region", "status", *figures, "trials run/failed/pruned", "hours", "champion"]


def table(summary: Summary) -> list[list[str]]:
    """Return the summary as rows of text, in the columns of `headings`."""
    metrics = _shown_metrics(summary)
    return [
        [
            region.region,
            region.status,
            *(_figure(of.get(metric)) for metric in metrics for of in (region.test, region.popularity)),
            f"{region.trials['run']}/{region.trials['failed']}/{region.trials['pruned']}",
            f"{region.hours:.3f}",
            ", ".join(f"{name} {_short(value)}" for name, value in region.hyperparameters.items()),
        ]
        for region in summary.regions
    ]


def _shown_metrics(summary: Summary) -> list[str]:
    """P@10 always, and the metric the study was tuned by where the tests have it."""
    tuned = summary.metric
    return [TEST_METRIC] + [tuned] * (tuned != TEST_METRIC and any(tuned in region.test for region in summary.regions))


def to_markdown(summary: Summary) -> str:
    """Return the summary as a Markdown page."""
    lines = [
        f"# {summary.study}",
        "",
        f"Run `{summary.run}`. Tuned by {summary.metric} on the validation part; tested once.",
        "",
        "| " + " | ".join(headings(summary)) + " |",
        "|" + "---|" * len(headings(summary)),
    ]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in table(summary)]
    notes = [f"- {_cell(r.region)}: {_cell(r.reason)}" for r in summary.regions if r.reason]
    notes += [f"- {_cell(machine)}" for machine in summary.machines]
    pictures = [f"- {_cell(r.region)}: {', '.join(map(_link, r.pictures))}" for r in summary.regions if r.pictures]
    for title, items in (("Notes", notes), ("Pictures", pictures)):
        lines += ["", f"## {title}", "", *items] if items else []
    return "\n".join(lines) + "\n"


def _link(picture: str) -> str:
    """Link a picture by its own name; slugs and names of pictures hold nothing that Markdown reads."""
    return f"[{picture.rpartition('/')[2].removesuffix('.svg')}]({picture})"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    """Keep free text from breaking out of its cell, or from becoming HTML, a link or a picture."""
    for plain, safe in (
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("<", "&lt;"),
        ("\n", " "),
        ("`", "\\`"),
        ("[", "\\["),
        ("]", "\\]"),
    ):
        text = text.replace(plain, safe)
    return text
