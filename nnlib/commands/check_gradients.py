"""`nnlib check-gradients`: what training follows against finite differences of the loss."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnlib.commands._arguments import add_data, add_hyperparameters, hold_threads, tolerance, whole
from nnlib.contract import Exit, TrainSettings

HELP = "compare gradients with finite differences of the loss"
DESCRIPTION = """Compare the gradients of a new network with central finite differences of its loss on the first
examples of the data, all in double precision, with masks of dropout and noise held fixed. Shows for each array of
parameters the worst relative difference and where it is. A network that uses DeltaNorm is refused: its training follows
no gradient."""
EPILOG = """examples:
  nnlib check-gradients network.json data.nc
  nnlib check-gradients network.json data.nc --examples 32 --parameters 200 --set hidden=64

exit codes: 0 all within the tolerance; 1 one is not, which is a bug of nnlib; 4 wrong input"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("network", type=Path, metavar="NETWORK.json")
    add_data(parser)
    parser.add_argument("--examples", type=whole(1), default=8, metavar="N", help="of the data (default: 8)")
    parser.add_argument("--parameters", type=whole(1), default=50, metavar="N", help="of each array (default: 50)")
    parser.add_argument("--seed", type=whole(0), default=1, metavar="N", help="default: 1")
    parser.add_argument("--tolerance", type=tolerance, default=1e-5, metavar="X", help="relative (default: 1e-5)")
    add_hyperparameters(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check and print; return the exit code."""
    hold_threads(1)
    import numpy as np

    from nnlib.data.sources import open_files
    from nnlib.model.examples import examples_of, resolve
    from nnlib.training import fit
    from nnlib.training.gradient_check import check_gradients
    from nnlib.util.terminal import print_table

    spec = fit.read_network_with(arguments.network, dict(arguments.hyperparameters), TrainSettings())
    data = open_files(arguments.data)
    spec = resolve(spec, data.sets, arguments.network.name)
    examples = examples_of(spec, data.sets, data.file)
    some = examples.take(np.arange(min(arguments.examples, examples.count)))
    checked = check_gradients(spec, some, arguments.parameters, arguments.seed, arguments.tolerance)
    columns = ["parameters", "checked", "worst", "at", "gradient", "difference", "within"]
    rows = [
        [
            found.name,
            str(found.parameters),
            f"{found.difference:.2e}",
            ",".join(map(str, found.place)),
            f"{found.gradient:.6g}",
            f"{found.numeric:.6g}",
            "yes" if found.difference <= arguments.tolerance else "NO",
        ]
        for found in checked
    ]
    print_table(columns, rows)
    good = all(found.difference <= arguments.tolerance for found in checked)
    return int(Exit.OK if good else Exit.BUG)
