"""`nnlib embed`: what a hidden layer gives for every example."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnlib.commands._arguments import add_data, add_device, add_threads, check_out, hold_threads
from nnlib.errors import NnlibError

HELP = "what a hidden layer gives for every example"
DESCRIPTION = """Write the outputs of a Hidden or Output layer, one row of float32 for each example: as .npy (rows,
units), .nc (the variable `values`, with the names of the samples) or .tsv (a header, then each sample's values)."""
EPILOG = """examples:
  nnlib embed model.nc data.nc --layer Hidden1 --out embedded.npy
  nnlib inspect model.nc      # says which layers there are"""
SUFFIXES = (".nc", ".npy", ".tsv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, metavar="MODEL.nc")
    add_data(parser)
    parser.add_argument("--layer", required=True, metavar="NAME", help="a Hidden or Output layer")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=", ".join(SUFFIXES))
    add_threads(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the outputs; return the exit code."""
    if arguments.out.suffix not in SUFFIXES:
        raise NnlibError(f"--out: {arguments.out.name!r} is not legal, legal: a name ending in {', '.join(SUFFIXES)}")
    check_out(arguments.out, (arguments.model, *arguments.data))
    threads = hold_threads(arguments.threads)
    from nnlib.commands._using import Used
    from nnlib.devices import AUTO, open_device
    from nnlib.prediction import results
    from nnlib.prediction.exclusion import Numbered
    from nnlib.prediction.predictor import compute_outputs, find_layer
    from nnlib.spec.types import LayerKind
    from nnlib.util.terminal import show_count

    used = Used(arguments.model, arguments.data)
    spec = used.model.network.spec
    layer = find_layer(spec, arguments.layer, where="--layer")
    if spec.layers[layer].kind is LayerKind.INPUT:
        raise NnlibError(f"--layer: {arguments.layer!r} is an Input, whose values are the data; legal: another layer")
    hidden = spec.layers[layer].kind is LayerKind.HIDDEN
    features = Numbered(spec.layers[layer].units or 0) if hidden else used.features(layer)
    with (
        open_device(arguments.device or AUTO, threads) as (backend, each),
        show_count(used.samples.count, "examples") as watch,
    ):
        rows = compute_outputs(used.ready.network, used.ready.examples, layer, backend, each)
        results.write_values(arguments.out, rows, used.samples, features, watch)
    return 0
