"""`nnlib inspect`: what a data or model file holds, the data of all regions, or what a network's training takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from nnlib.commands._arguments import add_device, add_hyperparameters, add_threads, hold_threads, whole
from nnlib.contract import OPTIMIZERS, PARALLELS, TrainSettings
from nnlib.errors import NnlibError

HELP = "say what a file or the data of all regions hold, or what a network's training would take"
DESCRIPTION = """Read a whole data or model file, check it, and say what it holds.

Of a folder that `nnlib import` wrote, say for each region from when to when its purchases are, how many customers,
items and pairs of both there are, and how many customers are asked to validate and to test; warn of what makes figures
doubtful.

Of a network with --data, say what training it on these data takes, without training: for each layer its units,
parameters, memory, FLOPs and bytes of a batch, how it is computed, and an estimate of the milliseconds, from a product,
a copy and an exp that are measured on this machine in about half a second. And how several GPUs would share it: which
layers are cut, why others are not, and what efficiency a model predicts for 2, 4 and 8."""
EPILOG = """examples:
  nnlib inspect data
  nnlib inspect data/germany.test.nc
  nnlib inspect model.nc
  nnlib inspect network.json --data train.nc --set hidden=128"""
OF_NETWORKS = ("batch", "accumulate", "optimizer", "parallel", "hyperparameters", "threads", "device")
WIDTH = 80  # columns of what is said about a network, at most


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", type=Path, metavar="PATH")
    usual = TrainSettings()
    of = parser.add_argument_group("of a network")
    of.add_argument("--data", type=Path, nargs="+", metavar="FILE", help="PATH is a network, to be trained on these")
    of.add_argument("--batch", type=whole(1), metavar="N", help=f"examples in a step (default: {usual.batch})")
    of.add_argument("--accumulate", type=whole(1), metavar="N", help="batches that make an update (default: 1)")
    of.add_argument(
        "--optimizer",
        choices=OPTIMIZERS,
        metavar="NAME",
        help=f"one of {', '.join(OPTIMIZERS)} (default: {usual.optimizer})",
    )
    of.add_argument(
        "--parallel",
        choices=PARALLELS,
        metavar="NAME",
        help=f"how several GPUs would share it: one of {', '.join(PARALLELS)} (default: {usual.parallel})",
    )
    add_hyperparameters(of)
    add_threads(of)
    add_device(of)


def run(arguments: argparse.Namespace) -> int:
    """Print what the file or the folder holds, or what a network takes; return the exit code."""
    if arguments.data:
        return _network(arguments)
    for name in OF_NETWORKS:
        if getattr(arguments, name):
            option = "--set" if name == "hyperparameters" else f"--{name}"
            arguments.refuse(f"{option} is of a network: legal with --data FILE")
    if arguments.file.is_dir():
        return _folder(arguments.file)
    if arguments.file.suffix == ".json" and arguments.file.is_file():
        raise NnlibError(
            f"{arguments.file}: a network, whose cost depends on data; legal: nnlib inspect {arguments.file} --data "
            "FILE, with --set NAME=VALUE for its placeholders"
        )
    return _file(arguments.file)


def _file(path: Path) -> int:
    import sys

    from nnlib.inspection import contents
    from nnlib.util.terminal import spell_out, width_of

    print(spell_out(contents.describe_file(path, min(width_of(sys.stdout), WIDTH))))
    return 0


def _network(arguments: argparse.Namespace) -> int:
    import sys

    threads = hold_threads(arguments.threads)
    from nnlib.data.sources import open_files
    from nnlib.devices import AUTO, choose_device
    from nnlib.inspection.network_plan import describe_network_plan, plan_network
    from nnlib.model.examples import examples_of, resolve
    from nnlib.training.fit import read_network_with
    from nnlib.util.terminal import width_of

    given = {
        name: getattr(arguments, name)
        for name in ("batch", "accumulate", "optimizer", "parallel")
        if getattr(arguments, name)
    }
    settings = TrainSettings(**given)
    spec = read_network_with(arguments.file, dict(arguments.hyperparameters), settings)
    data = open_files(arguments.data)
    spec = resolve(spec, data.sets, data.file)
    examples = examples_of(spec, data.sets, data.file)
    plan = plan_network(spec, examples, settings, threads, choose_device(arguments.device or AUTO))
    print(describe_network_plan(plan, min(width_of(sys.stdout), WIDTH)))
    return 0


def _folder(path: Path) -> int:
    import datetime
    import sys

    from nnlib.inspection.folder import describe_folder
    from nnlib.util.columns import print_folded
    from nnlib.util.days import day_of
    from nnlib.util.terminal import width_of

    table, warnings = describe_folder(path, day_of(datetime.datetime.now(datetime.UTC).date()), width_of(sys.stdout))
    print(table)
    for line in warnings:
        print_folded(f"warning: {line}", sys.stderr)
    return 0
