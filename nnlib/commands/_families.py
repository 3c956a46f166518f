"""`nnlib predict` and `nnlib evaluate` with a model file of a family, where the others take that of a network."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from nnlib.commands._using import INPUT, NONE, tell, tell_mixed
from nnlib.data.blockwise import Lookup
from nnlib.data.events import Events
from nnlib.data.file_header import shape_of_names
from nnlib.data.read_events import read_asked, read_window
from nnlib.data.rows import Csr
from nnlib.errors import NnlibError
from nnlib.evaluation.evaluate import Evaluation, EvaluationOptions, summarize
from nnlib.families.fit import reads_inputs
from nnlib.families.measure import measure
from nnlib.families.model_file import read_recipe_model
from nnlib.prediction import results
from nnlib.prediction.by_recipe import compute_scores, rank_by_recipe
from nnlib.prediction.exclusion import Numbered, exclude_by_file, read_listed
from nnlib.prediction.match_items import in_order_of, match_history
from nnlib.spec.metric_names import METRICS
from nnlib.util import netcdf
from nnlib.util.terminal import show_count
from nnlib.util.threads import workers


def predict(arguments: argparse.Namespace, threads: int) -> int:
    """Write the best items of each customer, or all scores; return the exit code."""
    data = _check(arguments)
    values = arguments.format == "values"
    form = results.score_format(arguments.score_format or (results.VALUE if values else results.SCORE))
    model = read_recipe_model(arguments.model)
    asked = match_history(read_asked(data, reads_inputs(model.recipe)), model.items)
    samples, features = Numbered(asked.customers, _samples(data)), Numbered(len(model.items), model.items)
    factors = None
    if arguments.filter is not None:
        listed = read_listed(arguments.filter, samples, features)
        tell(f"{arguments.filter}: {listed}")
        factors = listed.rows.take
    alone = arguments.out is None and sys.stdout.isatty()
    counting = nullcontext(lambda _: None) if alone else show_count(samples.count, "examples")
    with workers(threads) as each, counting as watch:
        if values:
            scores = compute_scores(model, asked, each)
            results.write_values(arguments.out, scores, samples, features, watch, form)
        else:
            excluded = _excluded(arguments.exclude, asked, model.repeats, samples, features)
            best = rank_by_recipe(model, asked, arguments.k, each, excluded, factors)
            results.write_ranked(arguments.out, best, arguments.k, samples, features, watch, form)
    return 0


def evaluate(arguments: argparse.Namespace, threads: int) -> Evaluation:
    """Return the metrics at every K of a window's customers."""
    data = _check(arguments)
    if arguments.baseline is not None:
        raise NnlibError("--baseline: for networks, legal here: none; fit a model of popularity and evaluate it too")
    model = read_recipe_model(arguments.model)
    window = read_window(data, reads_inputs(model.recipe))
    items = window.asked.items
    samples, features = Numbered(window.asked.customers, _samples(data)), Numbered(len(items), items)
    repeats = window.asked.repeats
    tell_mixed(arguments.exclude, model.repeats, repeats)
    excluded = _excluded(arguments.exclude, window.asked, repeats, samples, features)
    names = [f"{kind}@{k}" for k in sorted(set(arguments.at)) for kind in METRICS]
    with workers(threads) as each, show_count(samples.count, "examples") as watch:
        found = measure(in_order_of(model, items), window, names, each, watch, excluded or _nothing(len(items)))
    there = np.diff(window.wanted.indptr) > 0
    if not there.any():
        raise NnlibError(f"{data}: no example has a target, so nothing can be measured")
    options = EvaluationOptions(arguments.at, arguments.bootstrap, arguments.seed)
    per_customer = {name: values[there].astype(np.float64) for name, values in found.items()}
    return Evaluation(len(there), int(there.sum()), summarize(per_customer, options), {})


def _check(arguments: argparse.Namespace) -> Path:
    """Return the one data file; NnlibError for what has no meaning without a network."""
    if arguments.output_layer is not None:
        raise NnlibError("--output-layer: this model is no network and has no layers; leave it out")
    if arguments.device == "gpu":
        raise NnlibError("--device gpu: this model is no network and runs on the CPU, legal: auto, cpu")
    if len(arguments.data) != 1:
        raise NnlibError(f"{len(arguments.data)} data files, legal for a model that is no network: one")
    return Path(arguments.data[0])


def _samples(data: Path) -> tuple[str, ...]:
    with netcdf.File(data) as file:
        return file.strings("samples") if shape_of_names(file, "samples") else ()


def _excluded(text: str | None, asked: Events, repeats: bool, samples: Numbered, features: Numbered) -> Lookup | None:
    """Return what an argument (None: was not given) leaves out of the ranking: where buying again counts, nothing."""
    if text == NONE or (text is None and repeats):
        return None
    return asked.bought.take if text in (None, INPUT) else exclude_by_file(Path(text), samples, features)


def _nothing(width: int) -> Lookup:
    return lambda rows: Csr(np.zeros(len(rows) + 1, np.int64), np.empty(0, np.int32), width)
