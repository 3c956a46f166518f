"""The summary as a table and as a Markdown page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from regiondag.report.headline import SIMPLE, Verdict, judge, say_against, say_cost, say_counts
from regiondag.report.summary import TEST_METRIC, RegionSummary, Summary
from regiondag.run.region_state import list_left
from regiondag.run.trial_recipes import FLOOR
from regiondag.study.families import name_floors
from regiondag.util.intervals import FEW
from regiondag.util.text import escape_markdown, list_some, shorten

MOST_CONFUSED, LONGEST_NAME = 5, 18  # rows of a region, and characters
SERVED_BY = "served by"
COMPARED = (FLOOR, SIMPLE)  # what stands beside what serves, where it was tested

# --- text --------------------------------------------------------------------------------------------------


def headings(summary: Summary) -> list[str]:
    """Return the columns' names; each test metric stands beside what simpler models reach on the same customers."""
    if _is_compared(summary):
        words = {FLOOR: _name_floors(summary), SIMPLE: "best simple"}
        others = [words[name] for name in COMPARED if _has(summary, name)]
        judged = [summary.asked, _test(summary), "95 %", *others, "bestsellers"]
        return ["region", *judged, SERVED_BY]
    if _is_of_programs(summary):
        return ["region", "status", _test(summary), "trials run/failed/pruned", "hours", "champion"]
    figures = [text for metric in _shown_metrics(summary) for text in (f"test {metric}", f"popularity {metric}")]
    return ["region", "status", *figures, "trials run/failed/pruned", "hours", "champion"]


def table(summary: Summary) -> list[list[str]]:
    """Return the summary as rows of text, in the columns of `headings`."""
    named = not _have_one_metric(summary)
    if _is_compared(summary):
        others = [name for name in COMPARED if _has(summary, name)]
        return [_row_beside(summary, region, others, named) for region in summary.regions]
    alone = _is_of_programs(summary)
    metrics = _shown_metrics(summary)
    return [
        [
            region.region,
            region.status,
            *(
                [_own_figure(summary, region, named, _own_interval(region))]
                if alone
                else (_figure(of.get(metric)) for metric in metrics for of in (region.test, region.popularity))
            ),
            f"{region.trials['run']}/{region.trials['failed']}/{region.trials['pruned']}",
            f"{region.hours:.3f}",
            region.serves,
        ]
        for region in summary.regions
    ]


def short_table(summary: Summary) -> tuple[list[str], list[list[str]], list[str]]:
    """Return headings, rows, and in words what these leave out: regions without a figure, and what serves them all."""
    names, rows, words = headings(summary), table(summary), []
    is_one = len({row[-1] for row in rows}) == 1 < len(rows)
    if is_one and names[-1] == SERVED_BY and all(region.finished for region in summary.regions):
        words.append(f"All are served by the same: {rows[0][-1]}.")
        names, rows = names[:-1], [row[:-1] for row in rows]
    is_compared = _is_compared(summary)
    silent = [is_compared and _is_silent(summary, region) for region in summary.regions]
    left_out = [region.region for region, is_silent in zip(summary.regions, silent, strict=True) if is_silent]
    if 1 < len(left_out) < len(rows):
        rows = [row for row, is_silent in zip(rows, silent, strict=True) if not is_silent]
        words.append(
            f"{len(left_out):,} regions have no {summary.asked} to judge by, and no row: {list_some(left_out)}."
        )
    return names, rows, words


def list_reasons(summary: Summary, join: Callable[[Sequence[str]], str] = ", ".join) -> list[str]:
    """Return why regions stand where they do: one line a region, or one for all that share a reason."""
    regions: dict[str, list[str]] = {}
    for region in summary.regions:
        if region.reason:
            regions.setdefault(region.reason, []).append(region.region)
    if not _is_compared(summary):
        return [f"{region.region}: {region.reason}" for region in summary.regions if region.reason]
    return [f"{join(names)}: {reason}" for reason, names in regions.items()]


def list_what_is_left(summary: Summary) -> list[str]:
    """Return what another trial would be expected to gain, a line for each region whose model says so."""
    return list_left((region.region, region.left) for region in summary.regions)


def _is_compared(summary: Summary) -> bool:
    """Whether regions were judged by their customers, beside simpler models."""
    return any(region.customers for region in summary.regions)


def _is_silent(summary: Summary, region: RegionSummary) -> bool:
    """Whether a region is served, and a row of figures would have none."""
    if region.customers or region.stands_for_all:
        return False
    return judge(region, region.metric or summary.metric)[0] is Verdict.NO_FIGURES


def _is_of_programs(summary: Summary) -> bool:
    """Whether programs of the user's have trained, and nothing of ours that was judged by customers."""
    return any(region.of_program for region in summary.regions) and not _is_compared(summary)


def _test(summary: Summary) -> str:
    return f"test {summary.metric}" if _have_one_metric(summary) else "test"


def _have_one_metric(summary: Summary) -> bool:
    return len({region.metric for region in summary.regions if region.metric}) <= 1


def _own_figure(summary: Summary, region: RegionSummary, named: bool, interval: str = "") -> str:
    """Return what a region's own metric has come to, `named` where others have another one."""
    figure = _figure(region.test.get(region.metric or summary.metric)) + interval
    return f"{region.metric} {figure}" if named and figure != "-" else figure


def _own_interval(region: RegionSummary) -> str:
    """Return the interval of a program's metric, as it stands behind it."""
    ends = region.intervals.get(region.metric) if region.of_program else None
    return f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else ""


def _has(summary: Summary, name: str) -> bool:
    return any(name in region.compared for region in summary.regions)


def _name_floors(summary: Summary) -> str:
    return name_floors(region.floor_name for region in summary.regions if FLOOR in region.compared)


def _row_beside(summary: Summary, region: RegionSummary, others: list[str], named: bool) -> list[str]:
    metric = region.metric or summary.metric
    low, high = region.intervals.get(metric, (None, None))
    return [
        region.region,
        "-" if region.of_program and not region.customers else str(region.customers),
        _own_figure(summary, region, named),
        _interval(region, low, high),
        *(_figure(region.compared.get(name, {}).get(metric)) for name in others),
        _figure(region.popularity.get(metric)),
        region.serves if region.finished else region.status,
    ]


def _interval(region: RegionSummary, low: float | None, high: float | None) -> str:
    """Return an interval; ours are of metrics from 0 to 1, a program's may be of any."""
    if low is None or high is None:
        return "-"
    if region.of_program:
        return f"{low:.3f} to {high:.3f}"
    return "-" if region.customers < FEW else f"{max(low, 0):.3f} to {min(high, 1):.3f}"


def _shown_metrics(summary: Summary) -> list[str]:
    """P@10 always, and the metric the study was tuned by where the tests have it."""
    tuned = summary.metric
    return [TEST_METRIC] + [tuned] * (tuned != TEST_METRIC and any(tuned in region.test for region in summary.regions))


def to_markdown(summary: Summary) -> str:
    """Return the summary as a Markdown page."""
    lines = [
        f"# {summary.study}",
        "",
        *([*(f"> **Caution:** {escape_markdown(text)}" for text in summary.cautions), ""] if summary.cautions else []),
        *_headline(summary),
        f"Run `{summary.run}`. Tuned by {summary.metric} on the validation part; tested once.",
        "",
        "| " + " | ".join(headings(summary)) + " |",
        "|" + "---|" * len(headings(summary)),
    ]
    lines += ["| " + " | ".join(map(escape_markdown, row)) + " |" for row in table(summary)]
    notes = [f"- {escape_markdown(text)}" for text in (*list_reasons(summary), *list_what_is_left(summary))]
    notes += [f"- {escape_markdown(machine)}" for machine in summary.machines]
    pictures = [
        f"- {escape_markdown(r.region)}: {', '.join(map(_link, r.pictures))}" for r in summary.regions if r.pictures
    ]
    for title, items in (("Confusion", _list_confused(summary)), ("Notes", notes), ("Pictures", pictures)):
        lines += ["", f"## {title}", "", *items] if items else []
    return "\n".join(lines) + "\n"


def _list_confused(summary: Summary) -> list[str]:
    """Return a table of each region's most frequent mistakes with pictures, in 80 columns."""
    rows = []
    for region, found in ((region.region, region.confusion) for region in summary.regions if region.confusion):
        for actual, predicted, often in found.pairs[:MOST_CONFUSED]:
            names = (region, found.classes[actual], found.classes[predicted])
            cells = [escape_markdown(shorten(name, LONGEST_NAME)) for name in names]
            rows.append(f"| {' | '.join(cells)} | {often} of {found.pictures[actual]} |")
    return ["| region | class | taken for | pictures |", "|---|---|---|---|", *rows] if rows else []


def say_headline(summary: Summary) -> list[str]:
    """Return what the run came to, a sentence each; the first says most."""
    headline = summary.headline
    told = (say_counts(headline), say_against(headline, summary.asked), headline.all_customers, say_cost(headline))
    return [text for text in told if text]


def _headline(summary: Summary) -> list[str]:
    first, *more = map(escape_markdown, say_headline(summary))
    return [f"**{first}** {' '.join(more)}", ""]


def _link(picture: str) -> str:
    """Link a picture by its own name; slugs and names of pictures hold nothing that Markdown reads."""
    return f"[{picture.rpartition('/')[2].removesuffix('.svg')}]({picture})"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
