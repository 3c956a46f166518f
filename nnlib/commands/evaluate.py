"""`nnlib evaluate`: how good a model is on data that it has not seen."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnlib.commands._arguments import (
    add_data,
    add_device,
    add_exclude,
    add_threads,
    check_out,
    hold_threads,
    whole,
    wholes,
)
from nnlib.util.files import write_atomically

if TYPE_CHECKING:
    from nnlib.evaluation.evaluate import Evaluation, Measured

HELP = "how good a model is on data it has not seen"
DESCRIPTION = """Measure a model, a network or one of a recipe. Sparse targets are ranked: precision (p), recall, NDCG,
MAP and MRR at every k, averaged over the examples that have a target. Dense targets have the accuracy (SoftMax, or a
single 1) or the root mean squared error. Both have the loss, where the model is a network. Every metric but the loss
has the middle 95 %% of its values in resamples of the examples."""
EPILOG = """examples:
  nnlib evaluate model.nc test.nc
  nnlib evaluate model.nc test.nc --at 10,100 --baseline popularity=train.nc --json metrics.json"""
POPULARITY = "popularity="


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, metavar="MODEL.nc")
    add_data(parser)
    parser.add_argument("--at", type=wholes, default=(1, 5, 10, 20, 100), metavar="K,K", help="default: 1,5,10,20,100")
    parser.add_argument(
        "--bootstrap", type=whole(0), default=1000, metavar="N", help="resamples; 0: no intervals (default: 1000)"
    )
    parser.add_argument("--seed", type=whole(0), default=1, metavar="N", help="of the resamples (default: 1)")
    add_exclude(parser)
    parser.add_argument("--output-layer", metavar="NAME", help="an Output layer (default: the first)")
    parser.add_argument(
        "--baseline", type=_baseline, metavar="popularity=DATA.nc", help="rank by frequency in these targets as well"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same numbers to this file")
    add_threads(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure and print; return the exit code."""
    excluded = None if arguments.exclude in ("input", "none") else arguments.exclude
    check_out(arguments.json, (arguments.model, *arguments.data, excluded, arguments.baseline), "--json")
    threads = hold_threads(arguments.threads)
    from nnlib.families.model_file import is_recipe_model
    from nnlib.util.terminal import print_table

    if is_recipe_model(arguments.model):
        from nnlib.commands import _families

        found = _families.evaluate(arguments, threads)
    else:
        found = _evaluate_network(arguments, threads)
    rows = [[name, *_cells(one), *_cells(found.baseline.get(name))] for name, one in found.metrics.items()]
    columns = ["metric", "model", "low", "high", "popularity", "low", "high"][: 7 if found.baseline else 4]
    print(f"{found.with_targets} examples with targets, {found.without_targets} without")
    print_table(columns, [row[: len(columns)] for row in rows])
    if arguments.json is not None:
        write_atomically(arguments.json, json.dumps(_json(arguments, found), indent=1) + "\n")
    return 0


def _evaluate_network(arguments: argparse.Namespace, threads: int) -> Evaluation:
    from nnlib.commands._using import Used, tell, tell_mixed
    from nnlib.devices import AUTO, open_device
    from nnlib.evaluation.evaluate import EvaluationOptions, evaluate, rank_popular_targets
    from nnlib.prediction.predictor import find_layer
    from nnlib.spec.types import LayerKind
    from nnlib.util.terminal import show_count

    used = Used(arguments.model, arguments.data, supervised=True)
    layer = find_layer(used.model.network.spec, arguments.output_layer, LayerKind.OUTPUT, "--output-layer")
    examples, ready = used.ready.examples, used.ready
    popular = rank_popular_targets(arguments.baseline, examples.sets[layer]) if arguments.baseline else None
    unscored = {n: ready.change.find_unscored(n, examples.sets[n].rows) for n in ready.change.known}
    unknown = sum(len(units) for units in unscored.values())
    if unknown:
        tell(f"no loss: {unknown} of the targets' units are unknown to the model")
    plan = EvaluationOptions(arguments.at, arguments.bootstrap, arguments.seed, loss=not unknown)
    repeats = used.data.repeats
    tell_mixed(arguments.exclude, used.model.repeats, repeats)
    excluded = used.find_excluded(arguments.exclude, layer, repeats) if examples.sets[layer].sparse else None
    with (
        open_device(arguments.device or AUTO, threads) as (backend, each),
        show_count(examples.count, "examples") as watch,
    ):
        some = ready.rankable(layer)
        return evaluate(ready.network, examples, layer, plan, backend, excluded, popular, each, some, watch)


def _baseline(text: str) -> Path:
    if not text.startswith(POPULARITY) or text == POPULARITY:
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: popularity=DATA.nc")
    return Path(text.removeprefix(POPULARITY))


def _cells(measured: Measured | None) -> list[str]:
    if measured is None:
        return ["", "", ""]
    return ["" if n is None else f"{n:.5g}" for n in (measured.value, measured.low, measured.high)]


def _json(arguments: argparse.Namespace, found: Evaluation) -> dict[str, Any]:
    def as_json(metrics: Any) -> dict[str, Any]:
        return {name: {"value": m.value, "low": m.low, "high": m.high} for name, m in metrics.items()}

    return {
        "model": str(arguments.model),
        "data": [str(path) for path in arguments.data],
        "examples": found.examples,
        "with_targets": found.with_targets,
        "without_targets": found.without_targets,
        "exclude": arguments.exclude,
        "bootstrap": arguments.bootstrap,
        "seed": arguments.seed,
        "metrics": as_json(found.metrics),
        "popularity": as_json(found.baseline),
    }
