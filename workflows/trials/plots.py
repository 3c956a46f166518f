"""Pictures of a region's trials as SVG. The only module that imports Matplotlib.

The same trials give the same bytes. Names are free text: nothing in them is read as mathematics or as XML.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from nnlib.contract import Status
from nnlib.util.files import write_atomically
from nnlib.util.process import install_line
from regiondag.errors import RegiondagError
from regiondag.study.space import Choice, Parameter, value_at
from regiondag.trials.importance import measure_importance, place_on_scale
from regiondag.trials.rows import RegionTrials, TrialRow, varied_parameters
from regiondag.trials.table import format_value
from regiondag.util.text import shorten, spell_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_NAME = 60  # characters of a region's name in a title
LONGEST_LABEL = 14  # of an option at an axis
MOST_LABELS = 12  # options that are named at an axis
WIDE_RANGE = 50.0  # from here on losses are drawn on a log scale
ABSENT = -0.1  # where lines pass a hyperparameter that the trial does not have
BLUE, ORANGE, RED, GREY = "#0072b2", "#d55e00", "#b2182b", "#999999"
SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "regiondag",
    "text.parse_math": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "font.size": 9.0,
}


def draw_region(trials: RegionTrials, folder: Path) -> list[Path]:
    """Write the pictures that the region's trials are enough for into `folder`, and return them.

    A picture of an earlier state that can no longer be drawn is removed.
    """
    drawings: dict[str, Callable[[RegionTrials], Figure | None]] = {
        "history": _history,
        "parallel": _parallel,
        "slices": _slices,
        "importance": _importance,
    }
    written = []
    with _settings():
        for name, draw in drawings.items():
            path = folder / f"{name}.svg"
            figure = draw(trials)
            if figure is None:
                path.unlink(missing_ok=True)
                continue
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, _svg(figure))
            written.append(path)
    return written


@contextmanager
def _settings() -> Iterator[None]:
    """Draw with our settings alone, whatever a matplotlibrc of the user says."""
    try:
        import matplotlib
    except ImportError as error:
        raise RegiondagError(
            f"pictures need the package matplotlib, which cannot be imported ({error}); to install it: "
            f"{install_line('plots')}"
        ) from error
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # the browser's fonts have what Matplotlib's lack
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def _figure(trials: RegionTrials, title: str, width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    name = shorten(spell_out(trials.spec.name), LONGEST_NAME)
    figure.suptitle(f"{name}: {title}", x=0.02, y=1 - 0.1 / height, ha="left", va="top", fontsize=11)
    return figure


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    lines = (line.rstrip() for line in text.getvalue().splitlines())
    return "\n".join(lines) + "\n"


# --- the pictures ------------------------------------------------------------------------------------------


def _history(trials: RegionTrials) -> Figure | None:
    """Every trial's value, the best so far as a line, and failures at the foot."""
    done = _with_value(trials)
    failed = [row.trial for row in trials.rows if row.failed]
    if not done and not failed:
        return None
    from matplotlib.ticker import MaxNLocator

    metric = trials.spec.metric
    figure = _figure(trials, f"{metric.name} of {len(done)} trials, {len(failed)} failed", 7.0, 3.6)
    axes = figure.add_axes((0.11, 0.15, 0.86, 0.70))
    ok, pruned = [row for row in done if row.ok], [row for row in done if not row.ok]
    if ok:
        best = list(accumulate(ok, _better))
        reach = [*(row.trial for row in ok), trials.rows[-1].trial]
        axes.step(reach, [_value(row) for row in (*best, best[-1])], where="post", color=ORANGE, label="best so far")
        axes.plot([row.trial for row in ok], [_value(row) for row in ok], "o", ms=4, color=BLUE, label="trial")
    if pruned:
        axes.plot([r.trial for r in pruned], [_value(r) for r in pruned], "v", ms=4, color=GREY, label="pruned")
    if failed:
        foot = axes.get_xaxis_transform()
        axes.plot(failed, [0.02] * len(failed), "x", color=RED, transform=foot, clip_on=False, label="failed")
    _scale_values(axes, done, trials.spec.metric.minimize)
    axes.set_xlabel("trial")
    axes.set_ylabel(metric.name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*axes.get_legend_handles_labels(), loc="upper right", ncols=4, frameon=False, fontsize=8)
    return figure


def _parallel(trials: RegionTrials) -> Figure | None:
    """One line a trial across all hyperparameters that varied, coloured by its value; the best is on top."""
    rows = _ranked(trials)
    parameters = varied_parameters(trials, rows)
    if len(rows) < 2 or not parameters:
        return None
    from matplotlib.collections import LineCollection

    figure = _figure(trials, f"{len(rows)} trials, the best in dark violet", 2.0 + 1.5 * len(parameters), 4.2)
    axes = figure.add_axes((0.06, 0.16, 0.86, 0.66))
    last = len(parameters)
    worth = [_value(row) for row in rows]
    scale = math.log if _is_wide(worth, trials.spec.metric.minimize) else float
    low, high = _ends(worth)
    colours = _colours(len(rows))
    lines = []
    for row in rows:
        places = [place_on_scale(parameter, row.hyperparameters.get(parameter.name)) for parameter in parameters]
        heights = [ABSENT if place is None else place for place in places]
        lines.append([*enumerate(heights), (last, (scale(_value(row)) - scale(low)) / (scale(high) - scale(low)))])
    widths = [0.8] * (len(rows) - 1) + [2.2]
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=widths, alpha=0.8))
    for index, parameter in enumerate(parameters):
        _name_places(axes, index, parameter)
        if any(line[index][1] == ABSENT for line in lines):
            _write(axes, index, ABSENT, "absent")
    for place, value in ((0.0, low), (1.0, high)):
        _write(axes, last, place, format_value(value))
    axes.set_xticks(range(last + 1), [*(parameter.name for parameter in parameters), trials.spec.metric.name])
    axes.set_yticks([])
    axes.set_xlim(-0.1, last + 0.35)
    axes.set_ylim(min(height for line in lines for _, height in line) - 0.05, 1.05)
    axes.spines["left"].set_visible(False)
    return figure


def _slices(trials: RegionTrials) -> Figure | None:
    """The value against each hyperparameter that varied; darker points are later trials."""
    rows = _with_value(trials)
    parameters = varied_parameters(trials, rows)
    if len(rows) < 2 or not parameters:
        return None
    across = min(len(parameters), 4)
    down = math.ceil(len(parameters) / across)
    width, height = 2.4 * across + 0.8, 2.5 * down + 0.6
    figure = _figure(trials, "values by hyperparameter, later trials darker", width, height)
    figure.subplots_adjust(0.8 / width, 0.55 / height, 0.98, 1 - 0.45 / height, wspace=0.12, hspace=0.42)
    panels = figure.subplots(down, across, squeeze=False, sharey=True).ravel()
    for axes, parameter in zip(panels, parameters, strict=False):
        shown = [row for row in rows if parameter.name in row.hyperparameters]
        _slice(axes, parameter, shown)
    for axes in panels[len(parameters) :]:
        axes.set_visible(False)
    _scale_values(panels[0], rows, trials.spec.metric.minimize)
    for row_of_panels in range(down):
        panels[row_of_panels * across].set_ylabel(trials.spec.metric.name)
    return figure


def _importance(trials: RegionTrials) -> Figure | None:
    """Bars, the most important hyperparameter on top."""
    shares = measure_importance(trials)
    if shares is None:
        return None
    names = sorted(shares, key=lambda name: (shares[name], name))
    height = 1.1 + 0.32 * len(names)
    figure = _figure(trials, "share of the differences that a forest explains by it", 7.0, height)
    axes = figure.add_axes((0.24, 0.45 / height, 0.70, 1 - 0.95 / height))
    bars = axes.barh(names, [shares[name] for name in names], color=BLUE)
    axes.bar_label(bars, [f"{shares[name]:.2f}" for name in names], padding=3, fontsize=8)
    axes.set_xlim(0, max(shares.values()) * 1.12)
    return figure


# --- parts of pictures -------------------------------------------------------------------------------------


def _slice(axes: Axes, parameter: Parameter, rows: Sequence[TrialRow]) -> None:
    values = [row.hyperparameters[parameter.name] for row in rows]
    if isinstance(parameter, Choice):
        places = [(place_on_scale(parameter, value) or 0.0) * max(len(parameter.options) - 1, 1) for value in values]
        axes.set_xticks(range(len(parameter.options)), _option_labels(parameter), rotation=20)
        axes.set_xlim(-0.5, len(parameter.options) - 0.5)
    else:
        places = [float(value) for value in values]
        low, high = float(parameter.low), float(parameter.high)
        margin = 0.04 * (high - low)
        axes.set_xlim(low - margin, high + margin)  # all that was searched, not only where trials are
        if parameter.log:
            axes.set_xlim(low * (low / high) ** 0.04, high * (high / low) ** 0.04)
            axes.set_xscale("log")
            ticks = [value_at(parameter, 0.0), value_at(parameter, 0.5), value_at(parameter, 1.0)]
            axes.set_xticks([float(tick) for tick in ticks], [format_value(tick) for tick in ticks])
            axes.set_xticks([], minor=True)
    numbers = [row.trial for row in rows]
    paper = -0.5 * max(numbers, default=0) - 1  # what would be white: the first trials are to be seen, too
    axes.scatter(places, [_value(row) for row in rows], 14, numbers, cmap="Blues", vmin=paper)
    axes.set_xlabel(parameter.name)


def _name_places(axes: Axes, index: int, parameter: Parameter) -> None:
    axes.axvline(index, color="black", lw=0.6)
    if isinstance(parameter, Choice):
        steps = max(len(parameter.options) - 1, 1)
        labels = [(place / steps, label) for place, label in enumerate(_option_labels(parameter))]
    else:
        labels = [(0.0, format_value(parameter.low)), (1.0, format_value(parameter.high))]
    for place, label in labels:
        _write(axes, index, place, label)


def _write(axes: Axes, index: int, place: float, label: str) -> None:
    """Write beside an axis, legibly on top of many lines."""
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1.0}
    axes.annotate(label, (index, place), (4, 0), textcoords="offset points", va="center", fontsize=7, bbox=box)


def _option_labels(parameter: Choice) -> list[str]:
    labels = [shorten(format_value(option), LONGEST_LABEL) for option in parameter.options]
    every = math.ceil(len(labels) / MOST_LABELS)
    return [label if index % every == 0 else "" for index, label in enumerate(labels)]


def _scale_values(axes: Axes, rows: Sequence[TrialRow], minimize: bool) -> None:
    if _is_wide([_value(row) for row in rows], minimize):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: format_value(value))  # its own writes mathematics: $10^{-1}$
        axes.yaxis.set_minor_formatter(lambda *_: "")


def _is_wide(values: Sequence[float], minimize: bool) -> bool:
    return minimize and bool(values) and min(values) > 0 and max(values) / min(values) > WIDE_RANGE


def _with_value(trials: RegionTrials) -> list[TrialRow]:
    return [row for row in trials.rows if row.ok or (row.status == Status.PRUNED and row.value is not None)]


def _ranked(trials: RegionTrials) -> list[TrialRow]:
    """Return the successful trials, the best one last."""
    return sorted((row for row in trials.rows if row.ok), key=lambda row: (-row.cost, -row.trial))


def _value(row: TrialRow) -> float:
    assert row.value is not None  # noqa: S101 (`_with_value` and `ok` see to it)
    return row.value


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _better(old: TrialRow, new: TrialRow) -> TrialRow:
    return new if new.cost < old.cost else old


def _colours(count: int) -> list[tuple[float, float, float, float]]:
    """Return one colour a trial from the worst to the best: by rank, so that outliers do not make all others alike."""
    import matplotlib

    scale = matplotlib.colormaps["viridis_r"]
    return [scale(index / max(count - 1, 1)) for index in range(count)]
