"""The summary as a table and as a Markdown page."""

from __future__ import annotations

from typing import Any

from regiondag.report.summary import TEST_METRIC, Summary

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
