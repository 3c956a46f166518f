"""`nnlib import-onnx`: an ONNX graph becomes a model file, and a network file that goes on training it."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from nnlib.commands._arguments import check_out
from nnlib.errors import NnlibError
from nnlib.util.terminal import tell

HELP = "an ONNX graph, such as PyTorch's, becomes a network with its weights"
DESCRIPTION = """Read a feed-forward ONNX graph, such as a convolutional network that was trained in PyTorch, and write
a model file, and beside it (BODY.json) the network to train on from there.

An operator that has no layer here is named, with those that have one; so is an attribute. Files of weights beside the
graph are read where they lie in its folder. With --mean and --std the first layer turns bytes into what the body was
trained on, and is left as it is by training."""
EPILOG = """examples:
  nnlib import-onnx resnet18.onnx --out body.nc
  nnlib import-onnx resnet18.onnx --out body.nc --replace-head \\
    --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
  nnlib train body.json cats.nc --init body.nc --out cats-model.nc"""
MOST_CHANNELS = 4096


def numbers(text: str) -> tuple[float, ...]:
    """Read numbers separated by commas."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or len(found) > MOST_CHANNELS or not all(abs(one) < 1e30 for one in found):
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: numbers such as 0.485,0.456,0.406")
    return found


def deviations(text: str) -> tuple[float, ...]:
    """Read numbers above 0."""
    found = numbers(text)
    if min(found) < 1e-6:
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: numbers above 0")
    return found


def sizes(text: str) -> tuple[int, ...]:
    """Read one to three sizes, such as 224x224."""
    if not re.fullmatch(r"[1-9][0-9]{0,5}(x[1-9][0-9]{0,5}){0,2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: one to three sizes, such as 224x224")
    return tuple(map(int, text.split("x")))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "graph", type=Path, metavar="BODY.onnx", help="a graph for evaluation, exported by model.eval()"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="BODY.nc", help="the model file; BODY.json is beside"
    )
    parser.add_argument(
        "--replace-head",
        action="store_true",
        help='BODY.json has a new last layer, a SoftMax as wide as the data set "output"; all others are frozen',
    )
    parser.add_argument("--force", action="store_true", help="replace a BODY.json that is there and says other things")
    parser.add_argument(
        "--mean", type=numbers, default=(), metavar="N,N,N", help="of each channel, in parts of 255, as in torchvision"
    )
    parser.add_argument("--std", type=deviations, default=(), metavar="N,N,N", help="standard deviations, the same")
    parser.add_argument(
        "--size", type=sizes, default=(), metavar="HEIGHTxWIDTH", help="of the images, where the graph takes any"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write both files; return the exit code."""
    network_file = arguments.out.with_suffix(".json")
    if network_file == arguments.out:
        raise NnlibError(f"--out: {arguments.out} would be the network file, too, legal: a name such as body.nc")
    for path in (arguments.out, network_file):
        check_out(path, (arguments.graph,))
    from nnlib.onnx_files.library import require_onnx

    require_onnx()
    from nnlib.model.file import Model, write_model
    from nnlib.onnx_files.read import ImportOptions, import_network
    from nnlib.onnx_files.summary import summarize
    from nnlib.spec.write_json import network_text
    from nnlib.util.files import write_atomically

    options = ImportOptions(arguments.size, arguments.mean, arguments.std, arguments.replace_head)
    imported = import_network(arguments.graph, options)
    text = network_text(imported.tuned)
    if not arguments.force and network_file.exists() and network_file.read_bytes() != text.encode():
        raise NnlibError(
            f"{network_file}: is there and says other things, perhaps yours; give --out another name, or add "
            "--force to replace it"
        )
    write_model(arguments.out, Model(imported.network))
    write_atomically(network_file, text)
    for note in imported.notes:
        tell(f"nnlib: {note}")
    tell(f"{arguments.out}: {summarize(imported.network)}")
    tell(f"{network_file}: to train on: nnlib train {network_file} DATA.nc --init {arguments.out} --out MODEL.nc")
    return 0
