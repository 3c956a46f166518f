"""`nnlib train`: a network from data, by hand or as one training job."""

from __future__ import annotations

import argparse
import dataclasses
import math
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from nnlib.commands._arguments import (
    add_device,
    add_hyperparameters,
    add_threads,
    check_folder,
    check_out,
    hold_threads,
    seconds,
)
from nnlib.contract import OPTIMIZERS, SCALES, SCHEDULES, Exit, Metric, TrainSettings
from nnlib.epoch_log import Epoch, open_epoch_log
from nnlib.errors import EvictedError, MachineError
from nnlib.shards.tree import RANKS
from nnlib.spec.metric_names import list_metrics
from nnlib.util.os_errors import describe

HELP = "train a network, or run one training job"
DESCRIPTION = "Train a network and write the model file; with --trial run the job that the file describes."
EPILOG = """examples:
  nnlib train network.json train.nc --out model.nc
  nnlib train network.json train.nc --valid valid.nc --metric ndcg@20 --out model.nc --set hidden=128
  nnlib train network.json input.nc output.nc --out model.nc --optimizer nesterov --learning-rate 0.02
  nnlib train network.json today.nc --out new.nc --init model.nc
  nnlib train network.json train.nc --out model.nc --checkpoint work --checkpoint-every 10m
  nnlib train --trial trial.json

With --checkpoint the training is saved in that folder, at Ctrl-C and SIGTERM too (exit code 143), and the same command
goes on from there. Without, Ctrl-C ends with exit code 130 and nothing is kept.

A job (--trial) leaves with exit code 85 after --checkpoint-every, to be started again; all its files lie beside
trial.json."""
MEANINGS = {
    "epochs": "passes over the examples",
    "batch": "examples in a step",
    "accumulate": "batches whose mean gradient makes one update",
    "stop_after": "epochs without a better metric before training ends; 0: never",
    "stop_after_examples": "the same in examples, if above 0 in place of --stop-after",
    "optimizer": "one of " + ", ".join(OPTIMIZERS),
    "learning_rate": "step size",
    "momentum": "decay of the mean gradient (mu of DSSTNE)",
    "beta2": "decay of the mean square gradient of adam (mu1 of DSSTNE)",
    "l2": "l2 / 2 w^2 of every weight w is added to the loss (lambda of DSSTNE)",
    "l1": "l1 |w| of every weight w is added to the loss (lambda1 of DSSTNE)",
    "schedule": "one of " + ", ".join(SCHEDULES),
    "warmup": "epochs in which the learning rate rises to its value",
    "decay_rate": "by which step and plateau multiply the learning rate",
    "decay_epochs": "epochs after which step does so, or epochs without a better metric after which plateau does",
    "scale_rate": "the learning rate times batch / base batch, or times its root: one of " + ", ".join(SCALES),
    "base_batch": "examples of the update for which the learning rate is given, with --scale-rate",
    "ema": "decay per update of a mean of the weights, which is measured and kept; 0: the weights are",
    "clip": "largest norm of a batch's gradient; 0: any",
    "compat": "dsstne reproduces its oddities, not its defects",
    "precision": "of the factors of products: tf32, 10 bits, on a GPU; bf16, 7 bits; auto: what is fast here",
    "parallel": "how a training is cut into shards: items, none; auto: wide layers by items; examples: batches",
    "seed": "of all random numbers; the same seed gives the same model",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("network", type=Path, nargs="?", metavar="NETWORK.json", help="DSSTNE's network file")
    parser.add_argument("data", type=Path, nargs="*", metavar="DATA.nc", help="inputs and targets to learn from")
    parser.add_argument("--out", type=Path, metavar="MODEL.nc", help="the model file to write")
    parser.add_argument("--init", type=Path, metavar="MODEL.nc", help="start from its weights, units found by name")
    parser.add_argument("--valid", type=Path, nargs="+", metavar="DATA.nc", help="measure the metric on these")
    parser.add_argument("--metric", help=f"{list_metrics()}, loss (default: {Metric().name})")
    settings = parser.add_argument_group("settings")
    for field in dataclasses.fields(TrainSettings):
        kind = type(field.default)
        default = field.default if field.default != "" else "none"
        settings.add_argument(
            "--" + field.name.replace("_", "-"),
            type=kind,
            metavar="NAME" if kind is str else "N",
            help=f"{MEANINGS[field.name]} (default: {default})",
        )
    add_hyperparameters(settings)
    run = parser.add_argument_group("the run")
    run.add_argument("--checkpoint", type=Path, metavar="DIR", help="save the training in this folder, and go on there")
    run.add_argument("--checkpoint-every", type=seconds, metavar="TIME", help="such as 90s, 5m or 2h (default: 5m)")
    run.add_argument("--log", type=Path, metavar="FILE", help="a line of JSON there for each epoch, as it ends")
    add_threads(run)
    add_device(run)
    run.add_argument(
        "--ranks",
        type=int,
        choices=RANKS,
        help="processes that share the network and the threads; the model's bits do not depend on it (default: 1)",
    )
    run.add_argument("--trial", type=Path, metavar="FILE", help="run the job of trial.json; its inputs lie beside it")


def run(arguments: argparse.Namespace) -> int:
    """Train; return the exit code."""
    if arguments.trial is not None:
        return _run_trial(arguments)
    missing = [name for name in ("network", "data", "out") if not getattr(arguments, name)]
    if missing:
        arguments.refuse(f"missing: {', '.join(missing)}; legal: NETWORK.json DATA.nc --out MODEL.nc, or --trial FILE")
    if arguments.metric and not arguments.valid:
        arguments.refuse("--metric is measured on --valid DATA.nc")
    if arguments.log and arguments.log.resolve() == arguments.out.resolve():
        arguments.refuse(f"--log: seen {str(arguments.log)!r}, which is --out; legal: the name of another file")
    if arguments.checkpoint_every and not arguments.checkpoint:
        arguments.refuse("--checkpoint-every needs --checkpoint DIR")
    return _train(arguments)


def _run_trial(arguments: argparse.Namespace) -> int:
    ours = ("trial", "checkpoint_every", "device", "quiet", "verbose", "run", "refuse", "subcommand")
    others = [name for name, value in vars(arguments).items() if value and name not in ours]
    if others:
        arguments.refuse(f"--trial says all of {others[0]}; legal beside it: --checkpoint-every and --device")
    from nnlib.worker import main

    every = arguments.checkpoint_every
    try:
        return main.train(arguments.trial, math.inf if every is None else every, arguments.device or "auto")
    except OSError as error:  # not even result.json could be written
        raise MachineError(describe(error)) from error


def _train(arguments: argparse.Namespace) -> int:
    inputs = (arguments.network, *arguments.data, *(arguments.valid or ()), arguments.init)
    check_out(arguments.out, inputs)
    check_out(arguments.log, inputs, "--log")
    check_folder(arguments.checkpoint, "--checkpoint")
    threads = hold_threads(arguments.threads)
    from nnlib.data.sources import open_files
    from nnlib.devices import AUTO, backend_of, precision_note
    from nnlib.inspection.compute_plan import describe_compute_plan
    from nnlib.model.file import model_of, write_model
    from nnlib.model.warm_start import read_init
    from nnlib.training import fit
    from nnlib.training.stop import Stop
    from nnlib.training.validation import DataPart
    from nnlib.util.terminal import is_verbose, show_training, tell

    names = [field.name for field in dataclasses.fields(TrainSettings)]
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    settings = TrainSettings(**given)
    spec = fit.read_network_with(arguments.network, dict(arguments.hyperparameters), settings)
    parts = [open_files(files) for files in (arguments.data, arguments.valid) if files]
    learned, held_out = (*(DataPart(part.file, part.sets, part.region, part.repeats) for part in parts), None)[:2]
    assert learned is not None, "there are data, which was checked"
    metric = arguments.metric or Metric().name
    init = read_init(arguments.init) if arguments.init else None
    device, ranks = arguments.device or AUTO, arguments.ranks or 1
    task = fit.task_of(spec, learned, held_out, settings, metric, "option ", device, init, ranks)
    if init is not None:
        tell(f"starts from {arguments.init}: {task.start}")
    if note := precision_note(task.device, settings.precision):
        tell(note)
    if is_verbose():
        backend, batch = backend_of(task.device), task.settings.batch
        print(describe_compute_plan(task.network, task.examples, threads, backend, batch), file=sys.stderr)
    stop, every = Stop(), arguments.checkpoint_every or fit.SAVE_EVERY
    signals = (signal.SIGINT, signal.SIGTERM) if arguments.checkpoint else ()
    try:
        with (
            fit.stop_at(stop, signals),
            show_training(settings.epochs, metric) as shown,
            _open_log(arguments.log) as add_to_log,
        ):

            def report(epoch: Epoch) -> None:
                add_to_log(epoch)
                shown.epoch(epoch)

            keeper = fit.keeper_of(task, arguments.checkpoint, stop, every)
            found = fit.run(task, threads, report, keeper, shown.batch)
    except EvictedError:
        kept = fit.can_resume(arguments.checkpoint)
        then = (
            f"; the same command goes on from what is saved in {arguments.checkpoint}" if kept else ", nothing is saved"
        )
        print(f"nnlib: stopped{then}", file=sys.stderr)
        return int(Exit.EVICTED)
    write_model(arguments.out, model_of(found.network, learned.sets, learned.region, learned.repeats))
    fit.forget_checkpoints(keeper)
    best = f", the best epoch is {found.best_epoch}" if held_out else ""
    tell(f"{arguments.out}: {found.network.parameters} parameters after {found.epochs} epochs{best}")
    return int(Exit.OK)


def _open_log(path: Path | None) -> AbstractContextManager[Callable[[Epoch], None]]:
    """Give what adds an epoch to a log; one that goes on keeps the epochs before it."""
    if path is None:
        return nullcontext(lambda _: None)
    path.touch()
    return open_epoch_log(path)
