"""What a job has brought back, looked at before any of it is read or kept: nobody vouches for workers.

A node's folder holds plain files, and the folder `start`, which is PRE's. Whatever else stands there afterwards (links,
pipes, devices, folders), more than any training writes, and a file that is not what its name says, is removed or not
taken, and that try counts as its machine's fault.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

from nnlib.contract import (
    LOG_FILE,
    LONGEST_RESULT,
    RESULT_FILE,
    SCORES_FILE,
    TRIAL_FILE,
    ContractError,
    Exit,
    Outputs,
    Result,
    Trial,
    load_result,
    scored_metrics,
    trial_from_json,
)
from nnlib.epoch_log import LONGEST_LOG
from nnlib.plain_file import read_plain
from regiondag.run.layout import ATTEMPT_SUBMIT, JOB_LOG, START_FOLDER, NodeName
from regiondag.run.manager_log import say
from regiondag.util.text import bound, list_some

MOST_FILES = 1000  # in a node's folder; a job brings ten
LONGEST_TRIAL = 16 << 20  # bytes
LONGEST_HEADER = 4096  # bytes of scores.npy before its numbers
# The header as NumPy writes it, up to 18 digits a number.
AS_WRITTEN = (
    r"\{'descr': '<f4', 'fortran_order': False, 'shape': \(([1-9]\d{0,17}), ([1-9]\d{0,17}), ([1-9]\d{0,17})\), \}"
)
MOST_MODELS = 64  # of which scores.npy has the metrics
READER = "nnlib.inspection.brought_models"
PATIENCE = 120  # seconds that it may take, and one more for each SPEED bytes
SPEED = 10_000_000
# By these a library ends its process; by others somebody else does, who says nothing of a model.
CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
OURS = frozenset({TRIAL_FILE, ATTEMPT_SUBMIT, JOB_LOG, START_FOLDER})  # in a node's folder, of no job
KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
    stat.S_IFDIR: "a folder",
}


def refuse_odd(place: Path, brings: Outputs, most: int) -> str:
    """Remove what no job may leave in a node's folder; return what that was, and nothing where all is well.

    `most` bytes are what a job may bring back (`job.max_output`): HTCondor holds one that brings more, unless its files
    came another way. Where there was anything of the kind, nothing that the job has brought is kept.
    """
    if not place.exists():  # nothing has prepared it
        return ""
    odd = remove_odd(place, hard_links=True)
    names = {path.name for path in place.iterdir()}
    if len(names) > MOST_FILES:
        odd.append(f"{len(names):,} files (legal: {MOST_FILES:,} at most)")
        for name in names - OURS:
            (place / name).unlink()
    sizes = {name: (place / name).stat().st_size for name in brings.of_final if (place / name).exists()}
    bounds = {LOG_FILE: LONGEST_LOG, RESULT_FILE: LONGEST_RESULT}
    odd += [
        f"{name} of {sizes[name]:,} bytes (legal: {longest:,} at most)"
        for name, longest in bounds.items()
        if sizes.get(name, 0) > longest
    ]
    if not odd and sum(sizes.values()) > most:
        odd = [f"{sum(sizes.values()):,} bytes (legal: {most:,} at most, job.max_output)"]
    if not odd:
        return ""
    for name in sizes:
        (place / name).unlink(missing_ok=True)
    return f"it brought back {list_some(odd)}, so nothing of it was taken"


def remove_odd(place: Path, *, hard_links: bool = False) -> list[str]:
    """Remove what is neither a plain file nor PRE's folder; return what that was, in words.

    `hard_links` are odd while a job is settled; later the registry has some of what it brought under a second name.
    """
    odd = []
    with os.scandir(place) as entries:
        for entry in entries:
            what = _say_odd(entry, hard_links)
            if what:
                odd.append(f"{bound(entry.name)!r} as {what}")
                with suppress(OSError, RecursionError):  # what stays is seen again next time
                    _remove(Path(entry.path))
    return odd


def _say_odd(entry: os.DirEntry[str], hard_links: bool) -> str:
    status = entry.stat(follow_symlinks=False)
    kind = stat.S_IFMT(status.st_mode)
    if entry.name == START_FOLDER:
        return "" if kind == stat.S_IFDIR else KINDS.get(kind, "a file")
    if kind != stat.S_IFREG:
        return KINDS.get(kind, "no file")
    return "a second name of another file" if hard_links and status.st_nlink > 1 else ""


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil  # most POSTs need none of it

        shutil.rmtree(path)
    else:
        path.unlink()


def read_brought(place: Path, node: NodeName) -> tuple[Result | None, str]:
    """Return the result that a job has brought, or None and why there is none: torn, another's, or out of bounds."""
    try:
        result = load_result(place / RESULT_FILE)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"{RESULT_FILE}: {error.strerror}"
    except ContractError as error:
        empty = (place / RESULT_FILE).stat().st_size == 0
        return None, "" if empty else bound(error, 400)
    if result.node != str(node):
        return None, f"{RESULT_FILE}: of the node {bound(result.node)!r}"
    return result, ""


def digest_of_result(place: Path) -> str:
    """Return the SHA-256 of a node's result.json; nothing where there is none, or one that is not taken."""
    try:
        said = read_plain(place / RESULT_FILE, LONGEST_RESULT)
    except OSError:
        return ""
    return hashlib.sha256(said).hexdigest() if said else ""


def find_contradiction(place: Path, result: Result) -> str:
    """Return in what a result cannot be of the trial in its folder; nothing where it can."""
    try:
        trial = trial_from_json(read_plain(place / TRIAL_FILE, LONGEST_TRIAL).decode())
    except FileNotFoundError:  # no worker takes it away: `verify` tells
        return ""
    except (OSError, UnicodeDecodeError, ContractError) as error:
        return f"{TRIAL_FILE} is not as it was given: {bound(error, 200)}"
    longest = max(result.best_epoch, len(result.curve))
    if trial.network and longest > trial.train.epochs:
        return f"{RESULT_FILE} tells of {longest:,} epochs, legal: {trial.train.epochs:,} at most"
    return _misfit(place / SCORES_FILE, result, trial) if result.scores else ""


def _misfit(path: Path, result: Result, trial: Trial) -> str:
    try:
        models, metrics, customers = read_shape(path)
    except (OSError, ValueError) as error:
        return f"{SCORES_FILE}: {bound(error, 200)}"
    # A network stands alone where nothing could be measured beside it, as of several files to learn from.
    alone = trial.recipe is None and not result.compared
    least, legal = 1 if alone else 1 + len(trial.compare), len(scored_metrics(trial.metric))
    if not least <= models <= MOST_MODELS or metrics != legal:
        return f"{SCORES_FILE}: {models} models x {metrics} metrics, legal: {least} x {legal}"
    if result.customers > customers:
        return f"{SCORES_FILE}: {customers:,} customers, {RESULT_FILE} says {result.customers:,}"
    return ""


def read_shape(path: Path) -> tuple[int, int, int]:
    """Return how many models, metrics and customers scores.npy is of, by its header, which must fit its size.

    https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, read without NumPy: POST starts without.
    Raises OSError, and ValueError for what is no such file of float32.
    """
    import struct  # as PRE needs none of it

    with path.open("rb") as file:
        size, head = os.fstat(file.fileno()).st_size, file.read(LONGEST_HEADER)
    if not head.startswith(b"\x93NUMPY\x01\x00"):
        raise ValueError("no file of NumPy's")
    begin = 10 + struct.unpack_from("<H", head, 8)[0] if len(head) >= 10 else 0
    if not 10 <= begin <= len(head):
        raise ValueError("its header is torn")
    models, metrics, customers = _read_header(head[10:begin].decode("latin-1").strip())
    if begin + 4 * models * metrics * customers != size:
        raise ValueError(f"{models} x {metrics} x {customers} numbers do not take its {size:,} bytes")
    return models, metrics, customers


def _read_header(text: str) -> tuple[int, int, int]:
    known = re.fullmatch(AS_WRITTEN, text)
    if known:
        models, metrics, customers = map(int, known.groups())
        return models, metrics, customers
    import ast  # which takes longer than all the rest

    try:
        said = ast.literal_eval(text)
        shape = said["shape"]
    except (SyntaxError, ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise ValueError("its header is damaged") from error
    whole = isinstance(shape, tuple) and len(shape) == 3 and all(type(one) is int and one >= 0 for one in shape)
    if not whole or said.get("descr") != "<f4" or said.get("fortran_order") is not False:
        raise ValueError("legal: float32 of three dimensions")
    models, metrics, customers = shape
    return models, metrics, customers


def find_misfit(place: Path, inputs: Path, archive: Path) -> str:
    """Return in what the models in a node's folder are not those of its trial; nothing where they are.

    The run's `archive` of nnlib reads them in a process that may crash; `inputs` has the trial's network and data.
    Where that cannot be said, as without netCDF4 on this machine, manager.log says why, and they are taken as they are.
    """
    import signal  # scripts of trials start without
    import subprocess

    words = [sys.executable, "-P", "-m", READER, str(place), str(inputs)]
    path = os.pathsep.join(filter(None, (str(archive), os.environ.get("PYTHONPATH"))))
    seconds = PATIENCE + sum(file.stat().st_size for file in place.glob("*.nc")) // SPEED
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=seconds,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return f"models that were not read within {seconds} s"
    except OSError as error:  # no room for another process
        done = subprocess.CompletedProcess(words, Exit.MACHINE, str(error).encode(), b"")
    if done.returncode in {-getattr(signal, name) for name in CRASHES}:
        return f"models that crash what reads them, by signal {-done.returncode}"
    if done.returncode == 0:
        return ""
    said, why = (text.decode(errors="replace").strip() for text in (done.stdout, done.stderr))
    if done.returncode == Exit.BAD_INPUT and said:
        return bound(said, 400)
    why = bound(said or why.rpartition("\n")[2] or f"exit code {done.returncode}", 400)
    say(f"{place.parent.parent.name}: the models of the last training are not looked into: {why}")
    return ""
