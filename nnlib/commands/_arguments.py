"""Arguments that several commands take, and how their texts are read."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from nnlib.errors import NnlibError
from nnlib.util.threads import THREADS, count_processors, take_over_blas

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}

Value = bool | int | float | str
Taker = argparse.ArgumentParser | argparse._ArgumentGroup


def whole(low: int) -> Callable[[str], int]:
    """Return what reads a whole number from `low`."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: a whole number from {low}")
        return int(text)

    return read


def wholes(text: str) -> tuple[int, ...]:
    """Read whole numbers from 1, separated by commas."""
    return tuple(whole(1)(part.strip()) for part in text.split(","))


def tolerance(text: str) -> float:
    """Read a number from 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: a number from 0")
    return value


def seconds(text: str) -> float:
    """Read a time such as 90s, 5m or 2h."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: a number with its unit, such as 90s, 5m, 2h")
    return float(found[1]) * UNITS[found[2]]


def hyperparameter(text: str) -> tuple[str, Value]:
    """Read name=value: a number, true, false or any other text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not legal, legal: name=value, such as hidden=128")
    if value in ("true", "false"):
        return name, value == "true"
    for kind in (int, float):  # also .5 and 1e-3
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def add_data(parser: argparse.ArgumentParser) -> None:
    """Take one data file or more."""
    parser.add_argument(
        "data",
        type=Path,
        nargs="+",
        metavar="DATA.nc",
        help="data files: with the same data sets they follow one another, with others they are of the same examples",
    )


def add_hyperparameters(parser: Taker) -> None:
    """Take values of "$name" placeholders."""
    parser.add_argument(
        "--set",
        type=hyperparameter,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="hyperparameters",
        help='a value for "$NAME" in the network; may come several times',
    )


def add_exclude(parser: argparse.ArgumentParser) -> None:
    """Take what is left out of rankings."""
    parser.add_argument(
        "--exclude",
        metavar="input|FILE|none",
        help="items that have no rank: those of each example's own input (the default where input and output have the "
        "same items, but not where buying again counts, as the model says to predict and the data to evaluate, nor to "
        "measure targets that are the inputs), those that a data file or a text file has for it, or none",
    )


def add_threads(parser: Taker) -> None:
    """Take a number of threads."""
    parser.add_argument(
        "--threads",
        type=whole(1),
        metavar="N",
        help=f"threads to use (default: {THREADS}, else all processors); the results do not depend on it",
    )


def add_device(parser: Taker) -> None:
    """Take what to compute on."""
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "gpu"),
        help="what to compute on; gpu without one: exit code 75 (default: auto, which is what NNLIB_DEVICE says, else "
        "a GPU where CuPy finds one)",
    )


def hold_threads(count: int | None) -> int:
    """Return how many threads to use, with BLAS held to one; call it before NumPy is imported."""
    if count is not None:
        os.environ[THREADS] = str(count)
    elif THREADS not in os.environ:
        os.environ[THREADS] = str(count_processors())
    return take_over_blas()


def check_out(path: Path | None, inputs: Iterable[Path | str | None] = (), option: str = "--out") -> None:
    """Raise NnlibError when a file cannot be made at `path`, or is an input: before the work, not after it."""
    if path is None:
        return
    for read in inputs:
        if read is not None and _same_file(path, Path(read)):
            raise NnlibError(f"{option}: {path} is an input of this command, legal: the name of another file")
    if path.is_dir():
        raise NnlibError(f"{option}: {path} is a folder, legal: the name of a file in it")
    if path.parent.exists() and not path.parent.is_dir():
        raise NnlibError(f"{option}: {path.parent} is a file, not a folder; legal: the name of a file in a folder")
    if not path.parent.is_dir():
        raise NnlibError(f"{path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise NnlibError(f"{path}: the folder {path.parent} may not be written; name a file in a folder of yours")


def check_folder(path: Path | None, option: str) -> None:
    """Raise NnlibError when files cannot be made in the folder `path`, or it cannot be made: before the work."""
    if path is None:
        return
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise NnlibError(f"{option}: {there} is a file, legal: a folder, or a name that is still free")
    if not os.access(there, os.W_OK):
        raise NnlibError(f"{option}: the folder {there} may not be written; name a folder of yours")


def _same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file."""
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return one.resolve() == other.resolve()
