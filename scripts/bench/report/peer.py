"""The page that one writes first: `peer RUN PAGE`, with plotly.io.to_html once for each picture.

The same figures as in our page: history, learning curves and parallel coordinates of each region, the slots' bars, and
a table of all regions; plotly.js once. No picker, no tables of trials, no CSV.
"""

from __future__ import annotations

import sys
from pathlib import Path

import plotly.graph_objects as go
import plotly.io

from regiondag.condor.events.log import read_attempts
from regiondag.report.markdown import headings, table
from regiondag.report.summary import summarise
from regiondag.run.journal import Journal
from regiondag.run.layout import RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.run.region_spec import read_spec
from regiondag.study.space import Choice
from regiondag.trials.rows import RegionTrials, trials_of


def main() -> int:
    """Write the page."""
    run, page = RunFolder(Path(sys.argv[1])), Path(sys.argv[2])
    summary = summarise(run)
    columns = list(zip(*table(summary), strict=True))
    figures = [go.Figure(go.Table(header={"values": headings(summary)}, cells={"values": columns})), _slots(run)]
    for slug in read_manifest(run).regions:
        folder = run.region(slug)
        trials = trials_of(read_spec(folder.spec), Journal(folder.journal).read())
        figures += [_history(trials), _curves(trials), _parallel(trials)]
    parts = [
        plotly.io.to_html(figure, full_html=False, include_plotlyjs=number == 0)
        for number, figure in enumerate(figures)
    ]
    page.write_text("<!doctype html><meta charset=utf-8>" + "\n".join(parts), encoding="utf-8")
    return 0


def _slots(run: RunFolder) -> go.Figure:
    legs = [(attempt.node, leg) for attempt in read_attempts(run) for leg in attempt.legs]
    names = [str(node) for node, _ in legs]
    slots = [leg.slot for _, leg in legs]
    figure = go.Figure(layout={"barmode": "overlay", "title": "slots"})
    for kind in ("transfer_in", "running", "transfer_out"):
        spans = [getattr(leg, kind) for _, leg in legs]
        starts = [span.start if span else None for span in spans]
        lengths = [span.seconds(0) if span and span.end else None for span in spans]
        figure.add_bar(x=lengths, base=starts, y=slots, text=names, orientation="h", name=kind, textposition="none")
    return figure


def _history(trials: RegionTrials) -> go.Figure:
    rows = trials.rows
    values = go.Scatter(x=[row.trial for row in rows], y=[row.value for row in rows], mode="markers")
    return go.Figure(values, layout={"title": f"{trials.spec.name}: history"})


def _curves(trials: RegionTrials) -> go.Figure:
    lines = [go.Scatter(y=row.curve, mode="lines", name=f"trial {row.trial}") for row in trials.rows if row.curve]
    return go.Figure(lines, layout={"title": f"{trials.spec.name}: learning curves", "showlegend": False})


def _parallel(trials: RegionTrials) -> go.Figure:
    rows = [row for row in trials.rows if row.ok]
    dimensions = [{"label": trials.spec.metric.name, "values": [row.value for row in rows]}]
    for parameter in trials.spec.search.space:
        values = [row.hyperparameters.get(parameter.name) for row in rows]
        if isinstance(parameter, Choice):
            values = [parameter.options.index(value) if value is not None else None for value in values]
        dimensions.append({"label": parameter.name, "values": values})
    return go.Figure(go.Parcoords(dimensions=dimensions), layout={"title": f"{trials.spec.name}: parallel coordinates"})


if __name__ == "__main__":
    sys.exit(main())
