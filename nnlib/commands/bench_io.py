"""`nnlib bench-io`: whether data come as fast as a training takes them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from nnlib.commands._arguments import add_device, add_hyperparameters, add_threads, hold_threads, tolerance, whole
from nnlib.contract import Exit, TrainSettings

HELP = "read an epoch of data without training, and time it"
DESCRIPTION = """Read one epoch of data as a training of the network reads it, without training: in the order that is
drawn, with batches prepared as the device has them, and data that do not fit into memory left in their files. Says
MB/s, examples a second and milliseconds a batch, and what share of a training step that is; the step is measured on
this machine's device, unless --step-ms tells it."""
EPILOG = """examples:
  nnlib bench-io train.nc --network network.json --set hidden=128
  nnlib bench-io input.nc output.nc --network network.json --batch 1024 --device gpu
  nnlib bench-io train.nc --network network.json --step-ms 3.5"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    usual = TrainSettings()
    parser.add_argument("data", type=Path, nargs="+", metavar="FILE", help="data files, as of nnlib train")
    parser.add_argument("--network", type=Path, required=True, metavar="NETWORK.json", help="what would be trained")
    parser.add_argument(
        "--batch", type=whole(1), default=usual.batch, metavar="N", help=f"examples in a step (default: {usual.batch})"
    )
    parser.add_argument(
        "--step-ms", type=tolerance, metavar="N", help="how long a step takes (default: it is measured)"
    )
    add_hyperparameters(parser)
    add_threads(parser)
    add_device(parser)


def run(arguments: argparse.Namespace) -> int:
    """Read and print; return the exit code."""
    if arguments.step_ms == 0:
        arguments.refuse("--step-ms: 0 is not legal, legal: milliseconds above 0")
    threads = hold_threads(arguments.threads)
    import time

    from nnlib.data.sources import open_files
    from nnlib.devices import AUTO, choose_device, open_device
    from nnlib.model.examples import resolve
    from nnlib.training.feeding import describe_feeding, measure_feeding
    from nnlib.training.fit import read_network_with
    from nnlib.training.validation import DataPart, check_some
    from nnlib.util.terminal import width_of

    settings = TrainSettings(batch=arguments.batch)
    spec = read_network_with(arguments.network, dict(arguments.hyperparameters), settings)
    device = choose_device(arguments.device or AUTO)
    started = time.perf_counter()
    data = open_files(arguments.data)
    opened = time.perf_counter() - started, sum(path.stat().st_size for path in arguments.data)
    spec = resolve(spec, data.sets, data.file)
    part = DataPart(data.file, data.sets, data.region)
    check_some(part, spec)
    step = None if arguments.step_ms is None else arguments.step_ms / 1e3
    with open_device(device, threads) as (backend, _):
        found = measure_feeding(spec, part.examples(spec), settings, backend, device, opened, step)
    print(describe_feeding(found, width_of(sys.stdout)))
    return int(Exit.OK)
