"""`nnlib predict`: the best items of every example, or all values of an output."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path

from nnlib.commands._arguments import add_data, add_device, add_exclude, add_threads, check_out, hold_threads, whole

HELP = "the best items of every example, or all values of an output"
DESCRIPTION = """Predict with a model, a network or one of a recipe. Best items are written as DSSTNE's text lines,
sample<TAB>feature,score:feature,score:...: or, into a .nc file, as items and scores; with --format values there is one
row of all outputs for each example, probabilities of classes or values of a regression, as a text table, .nc or .npy.
Samples and features have the names that the files give them, else numbers from 0. Data may be larger than memory, and
the file appears when all of it is written."""
EPILOG = """examples:
  nnlib predict model.nc data.nc -k 10
  nnlib predict model.nc data.nc -k 50 --exclude sold.nc --out recommended.nc
  nnlib predict model.nc data.nc -k 10 --exclude none --filter filter.txt --out recommended.txt
  nnlib predict classifier.nc images.nc --format values --out probabilities.npy

A filter is a text file (or a folder of them) of lines sample<TAB>feature,value:feature,value:...; as in DSSTNE the
score of each listed feature is MULTIPLIED by its value, so 0 takes it to 0, and a value left out is 0. To leave items
out use --exclude, which also takes such a file, whatever its values."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, metavar="MODEL.nc")
    add_data(parser)
    parser.add_argument("-k", type=whole(1), default=100, metavar="N", help="how many items, up to all (default: 100)")
    add_exclude(parser)
    parser.add_argument("--filter", type=Path, metavar="FILE", help="multiply scores by the values of this text file")
    parser.add_argument("--output-layer", metavar="NAME", help="an Output layer (default: the first)")
    parser.add_argument("--format", choices=("topk", "values"), default="topk", help="what to write (default: topk)")
    parser.add_argument("--out", type=Path, metavar="FILE", help=".nc, .npy (values) or text (default: text to stdout)")
    parser.add_argument("--score-format", metavar="FORMAT", help="printf format of a number in text (default: %%.3f)")
    add_threads(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> int:
    """Predict; return the exit code."""
    values = arguments.format == "values"
    given = [f"--{name}" for name in ("exclude", "filter") if getattr(arguments, name) is not None]
    if values and given:
        arguments.refuse(f"{given[0]} is for --format topk")
    if not values and arguments.out is not None and arguments.out.suffix == ".npy":
        arguments.refuse("--out .npy is for --format values; legal: .nc or text")
    excluded = None if arguments.exclude in ("input", "none") else arguments.exclude
    check_out(arguments.out, (arguments.model, *arguments.data, excluded, arguments.filter))
    threads = hold_threads(arguments.threads)
    from nnlib.families.model_file import is_recipe_model

    if is_recipe_model(arguments.model):
        from nnlib.commands import _families

        return _families.predict(arguments, threads)
    from nnlib.commands._using import Used, tell
    from nnlib.devices import AUTO, open_device
    from nnlib.prediction import results
    from nnlib.prediction.exclusion import read_listed
    from nnlib.prediction.predictor import compute_outputs, find_layer, rank
    from nnlib.spec.types import LayerKind
    from nnlib.util.terminal import show_count

    form = results.score_format(arguments.score_format or (results.VALUE if values else results.SCORE))
    used = Used(arguments.model, arguments.data)
    layer = find_layer(used.model.network.spec, arguments.output_layer, LayerKind.OUTPUT, "--output-layer")
    samples, features = used.samples, used.features(layer)
    ready = used.ready
    factors = None
    if arguments.filter is not None:
        listed = read_listed(arguments.filter, samples, features)
        tell(f"{arguments.filter}: {listed}")
        factors = listed.rows.take
    excluded = None if values else used.find_excluded(arguments.exclude, layer, used.model.repeats)
    alone = arguments.out is None and sys.stdout.isatty()  # a bar among the lines would be in the way
    counting = nullcontext(lambda _: None) if alone else show_count(samples.count, "examples")
    with open_device(arguments.device or AUTO, threads) as (backend, each), counting as watch:
        if values:
            rows = compute_outputs(ready.network, ready.examples, layer, backend, each)
            results.write_values(arguments.out, rows, samples, features, watch, form)
        else:
            some = ready.rankable(layer)
            limits = (backend, each, excluded, factors, some)
            best = rank(ready.network, ready.examples, layer, arguments.k, *limits)
            results.write_ranked(arguments.out, best, arguments.k, samples, features, watch, form)
    return 0
