"""`nnlib export-onnx`: a model file as an ONNX graph for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnlib.commands._arguments import check_out
from nnlib.util.terminal import tell

HELP = "a model as an ONNX graph, for other runtimes"
DESCRIPTION = """Write the ONNX graph of a network, or of a model of a family whose scores are a product of a history
with weights (ease, knn, elsa, graph, popularity, and blends of these) or logistic. It gives what nnlib gives.

Inputs and outputs have the names of the network's layers. A network that recommends, and a family, take a dense row of
history, with a number for each item, and give scores; logistic takes a row of `inputs`, bytes over 256 less 0.5. The
names of outputs are kept under `units` of the graph's metadata. A layer or a family that cannot be written is named
with the reason."""
EPILOG = """examples:
  nnlib export-onnx model.nc --out model.onnx
  nnlib export-onnx blend.nc --region Germany --out germany.onnx"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("model", type=Path, metavar="MODEL.nc")
    parser.add_argument("--out", type=Path, required=True, metavar="MODEL.onnx")
    parser.add_argument("--region", default="", metavar="NAME", help="of the customers, for a model of a family")


def run(arguments: argparse.Namespace) -> int:
    """Write the graph; return the exit code."""
    check_out(arguments.out, (arguments.model,))
    from nnlib.onnx_files.library import require_onnx

    require_onnx()
    from nnlib.onnx_files.summary import describe_ends
    from nnlib.onnx_files.write import write_onnx

    facts = write_onnx(arguments.model, arguments.region, arguments.out)
    tell(f"{arguments.out}: {describe_ends(facts.inputs, facts.half_lives)} -> {describe_ends(facts.outputs)}")
    return 0
