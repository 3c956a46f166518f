"""What a person sees of a run in progress: a headline, a line for each region that moves, the rest summed up. Pure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nnlib.util.columns import Narrow, cut_text, fit_columns
from nnlib.util.terminal import WHOLE_WIDTH, measure
from regiondag.monitor.pace import Pace, Progress, RunPace, seconds_left
from regiondag.monitor.status import RegionStatus, RunStatus
from regiondag.run.live import Live
from regiondag.run.region_state import FINISHED, RegionOutcome
from regiondag.study.model import POOLED
from regiondag.util.intervals import show_figure
from regiondag.util.text import make_printable, show_duration

BAR = 16
STILL = 30.0  # seconds after which a region that did not move is no news
COLUMNS = ("region", "bar", "done", "jobs", "figure", "left")
NARROW = Narrow(("bar", "left", "jobs", "figure"), {"region": 11})


@dataclass(slots=True)
class Watched:
    """What was seen so far of a run, from one look to the next."""

    pace: RunPace | None = None
    whole: Progress | None = None
    regions: dict[str, Progress] = field(default_factory=dict)

    def look(self, status: RunStatus, now: float) -> None:
        """Take in another look."""
        new = status.started is not None and all(_done(region) == 0 for region in status.regions)
        began = status.started if new and status.started is not None else now
        totals = {region.slug: (region.planned + 1, _done(region)) for region in status.regions}
        for slug, (total, done) in totals.items():
            before = self.regions.get(slug) or Progress(total, began, done, began, done)
            self.regions[slug] = before.moved(total, done, now)
        total, done = (sum(counts) for counts in zip(*totals.values(), strict=True))
        self.whole = (self.whole or Progress(total, began, done, began, done)).moved(total, done, now)

    def left(self, status: RunStatus, now: float) -> float | None:
        """Return in how many seconds the run is expected to end."""
        found = seconds_left(self.whole, now, self.pace.whole if self.pace else None) if self.whole else None
        ends = [region.expected_end for region in status.regions if region.expected_end is not None]
        return max(ends) - now if found is None and ends else found

    def left_of(self, region: RegionStatus, now: float) -> float | None:
        """Return in how many seconds a region is expected to have its champion."""
        pace: Pace | None = self.pace.regions.get(region.slug) if self.pace else None
        if region.final in FINISHED or region.final == RegionOutcome.FAILED:
            return None
        progress = self.regions.get(region.slug)
        found = seconds_left(progress, now, pace) if progress else None
        return region.expected_end - now if found is None and region.expected_end else found

    def is_still(self, region: RegionStatus, now: float) -> bool:
        """Whether nothing has happened to a region for a while."""
        progress = self.regions.get(region.slug)
        return progress is None or progress.done == progress.first or now - progress.last > STILL


def headline(status: RunStatus, watched: Watched, now: float, width: int = WHOLE_WIDTH) -> str:
    """Return the run in one line of at most `width` columns; what matters less is left out first."""
    counts = {key: sum(getattr(region, key) for region in status.regions) for key in ("done", "planned", "failed")}
    jobs = Counter({key: sum(getattr(region, key) for region in status.regions) for key in ("running", "held")})
    own = [region for region in status.regions if region.slug != POOLED]
    champions = sum(region.final in FINISHED for region in own)
    left = None if status.over else watched.left(status, now)
    parts = [
        (0, f"{champions}/{len(own)} champions"),
        (1, f"{counts['done']}/{counts['planned']} trials"),
        (5, f"{jobs['running']} running" if jobs["running"] else ""),
        (3, f"{counts['failed']} failed" if counts["failed"] else ""),
        (2, f"{jobs['held']} held" if jobs["held"] else ""),
        (0, "" if status.dag in ("running", "ended") else f"DAGMan is {status.dag}"),
        (4, f"about {show_duration(left)} left" if left is not None else ""),
        (6, f"until {time.strftime('%H:%M', time.localtime(now + left))}" if left is not None else ""),
    ]
    text = ""
    for level in range(6, -1, -1):
        text = f"{status.study}: " + ", ".join(part for rank, part in parts if part and rank <= level)
        if measure(text) <= width:
            break
    return cut_text(make_printable(text), width)


def draw(status: RunStatus, watched: Watched, now: float, width: int, height: int) -> list[str]:
    """Return the lines for a terminal of that size; no line is wider, and there are fewer than `height`."""
    room = max(3, height - 3)
    spoken = _order_live(status.live)
    chosen = _choose(status, spoken, watched, now, room)
    lines = [headline(status, watched, now, width)]
    lines += _region_lines(chosen, status, spoken, watched, now, width, room)
    rest = [region for region in status.regions if region not in chosen]
    if rest:
        lines.append(cut_text(_sum_up(rest, bool(chosen)), width))
    return lines


def _done(region: RegionStatus) -> int:
    return region.done + (region.final in FINISHED or region.final == RegionOutcome.FAILED)


def _order_live(live: Sequence[Live]) -> dict[str, list[Live]]:
    """Return what trials say by region, the newest word first."""
    found: dict[str, list[Live]] = {}
    for one in sorted(live, key=lambda one: (-one.at, str(one.node))):
        found.setdefault(one.node.slug, []).append(one)
    return found


def _moves(region: RegionStatus) -> bool:
    return bool(region.running or region.idle or region.held)


def _choose(
    status: RunStatus, spoken: Mapping[str, Sequence[Live]], watched: Watched, now: float, room: int
) -> list[RegionStatus]:
    """Return the regions that are shown, in the study's order: all that there is room for, those that move first."""

    def rank(region: RegionStatus) -> tuple[int, float]:
        if region.running:
            return 0, 0.0 if region.slug in spoken else 1.0
        if _moves(region):
            return 1, 0.0
        if not watched.is_still(region, now):
            return 2, -watched.regions[region.slug].last
        return (3, 0.0) if region.final == RegionOutcome.FAILED else (4, 0.0)

    ranked = sorted(status.regions, key=rank)
    if len(status.regions) <= room:
        return list(status.regions)
    first = [region for region in ranked if rank(region)[0] < 4][: room - 1]
    return [region for region in status.regions if region in first]


def _region_lines(
    chosen: Sequence[RegionStatus],
    status: RunStatus,
    spoken: Mapping[str, Sequence[Live]],
    watched: Watched,
    now: float,
    width: int,
    room: int,
) -> list[str]:
    """Return a line for each region and, as far as there is room, one for each of its trials that says something."""
    rows = [_cells(region, status, watched, now) for region in chosen]
    columns: Sequence[Sequence[str]] = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    used = [n for n in range(len(COLUMNS)) if any(columns[n])]
    heads = [COLUMNS[n] for n in used]
    widths = fit_columns(heads, [columns[n] for n in used], NARROW, width, framed=False, headed=False)
    lines, spare = [], room - len(chosen)
    for region, row in zip(chosen, rows, strict=True):
        cells = (_pad(row[used[n]], wide, heads[n] in ("done", "left")) for n, wide in widths.items())
        lines.append(cut_text("  ".join(cells).rstrip(), width))
        said = spoken.get(region.slug, ())[: max(0, spare)]
        lines += [cut_text(f"  {_describe(one, region.metric)}", width) for one in said]
        spare -= len(said)
    return lines


def _cells(region: RegionStatus, status: RunStatus, watched: Watched, now: float) -> tuple[str, ...]:
    """Return a region in the columns of `COLUMNS`."""
    figure = region.test or region.validation
    word = "test" if region.test else "best"
    shown = f"{word} {show_figure(figure.value, figure.half_width, figure.customers)}" if figure else ""
    filled = BAR * region.done // max(region.planned, 1)
    bar = "█" * filled + "░" * (BAR - filled) if region.planned else ""
    left = None if status.over else watched.left_of(region, now)
    return (
        make_printable(region.region),
        bar,
        f"{region.done}/{region.planned}" if region.planned else "",
        _describe_jobs(region),
        shown,
        show_duration(left) if left is not None else "",
    )


def _describe_jobs(region: RegionStatus) -> str:
    if region.final in FINISHED or region.final == RegionOutcome.FAILED:
        return region.final
    counts = [f"{count} {word}" for word in ("running", "held") if (count := getattr(region, word))]
    return ", ".join(counts) or (f"{region.idle} idle" if region.idle else "waits")


def _describe(live: Live, metric: str) -> str:
    """Return what a trial said last, such as `t0003 epoch 4/30, ndcg@20 0.0812, 12 s left`."""
    parts = [f"epoch {live.epoch}/{live.epochs}"] if live.epochs else []
    parts += [live.doing] if live.doing else []
    parts += [f"{metric} {live.value:.4g}"] if live.value is not None else []
    parts += [f"loss {live.loss:.4g}"] if live.value is None and live.loss is not None else []
    parts += [f"{show_duration(live.seconds_left)} left"] if live.seconds_left is not None else []
    return f"{live.node.label} {', '.join(parts) or 'runs'}"


def _sum_up(rest: Sequence[RegionStatus], more: bool) -> str:
    """Return the regions that have no line of their own, counted."""

    def word(region: RegionStatus) -> str:
        if region.final in FINISHED:
            return "with champion"
        if region.final == RegionOutcome.FAILED:
            return "failed"
        return "with jobs" if _moves(region) else "waiting"

    counts = Counter(map(word, rest))
    told = ", ".join(
        f"{counts[key]:,} {key}" for key in ("with jobs", "with champion", "failed", "waiting") if counts[key]
    )
    return f"{'and ' if more else ''}{len(rest):,} {'more' if more else 'regions'}: {told}"


def _pad(text: str, width: int, right: bool) -> str:
    text = cut_text(text, width)
    pad = " " * (width - measure(text))
    return pad + text if right else text + pad
