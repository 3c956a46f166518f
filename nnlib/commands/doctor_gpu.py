"""`nnlib doctor-gpu`: what this machine's GPUs are, and whether the kernels compute on one what NumPy computes."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from nnlib.commands._arguments import check_out, hold_threads
from nnlib.errors import MachineError

HELP = "say what a GPU is like, and whether the kernels are right on it"
DESCRIPTION = """Say what there is for a training on a GPU: driver, CUDA, CuPy, each GPU with its memory, PCI link,
clocks, power cap, ECC, MIG and persistence mode, errors of the driver in the kernel's log, and variables that matter;
and of what is missing or slow, what to do. Then run each kernel once on the first GPU beside its reference in NumPy,
and say which differ and by how much. All of it takes less than a minute, compiling included. CUDA_VISIBLE_DEVICES=1
chooses another GPU."""
EPILOG = """examples:
  nnlib doctor-gpu
  nnlib doctor-gpu --json gpu.json

exit codes: 0 all kernels agree; 1 some differ: the GPU is faulty, or there is a bug; 75 no GPU can be used, it failed,
or the time was too short"""
SECONDS = 45.0  # for the kernels; what is asked before has time limits of its own


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything to this file, too")


def run(arguments: argparse.Namespace) -> int:
    """Look, run the kernels, and say what was found; return the exit code."""
    check_out(arguments.json, option="--json")
    hold_threads(None)
    from nnlib.devices import check_gpu
    from nnlib.inspection.gpu_machine import look
    from nnlib.inspection.gpu_report import describe, exit_code, to_json
    from nnlib.util.files import write_atomically
    from nnlib.util.terminal import width_of

    machine = look(os.environ)
    check, missing = None, ""
    try:
        check = check_gpu(SECONDS)
    except MachineError as error:
        missing = str(error)
    print(describe(machine, check, missing, width_of(sys.stdout)))
    if arguments.json is not None:
        write_atomically(arguments.json, to_json(machine, check, missing).encode())
    return int(exit_code(check))
