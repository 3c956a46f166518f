"""Checkpoints: everything that a training needs to go on, in one NetCDF file and a last line with its SHA-256.

The line comes behind what HDF5 reads, and is checked before: libhdf5 loops for ever over some damaged files.

A checkpoint is written beside the one before it, which is kept until the next: a file that is torn, changed or of
another training is passed over with a warning, and the one before it is used. Whoever trains in a folder holds its lock
(see `alone`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib import __version__
from nnlib.contract import CHECKPOINT_FILE, LOG_FILE
from nnlib.errors import CheckpointedError, DataError, EvictedError
from nnlib.spec.json_section import show
from nnlib.training.loop import Position, Training
from nnlib.training.stop import Stop
from nnlib.util import netcdf
from nnlib.util.files import replacing

FORMAT = 2
LAST_LINE = b"\nsha256 %s\n"  # of all bytes before it
LAST_LINE_BYTES = len(LAST_LINE % bytes(64))
PREVIOUS_SUFFIX = ".previous.nc"
FOUND = "found_"  # begins the names of what trainings before this one found


class ForeignError(DataError):
    """A whole file, which is not of this training."""


class Checkpoints:
    """Saves a training when it is told to stop, and every so many seconds; see `loop.Keeper`."""

    def __init__(
        self,
        folder: Path,
        training: str,
        stop: Stop | None = None,
        every: float = math.inf,
        logged: int | None = None,
    ) -> None:
        """Keep `checkpoint.nc` in `folder`. `training` identifies what is trained, on what and how.

        After `every` seconds the training is saved and ended with CheckpointedError, so that HTCondor can take the
        checkpoint away and start it again. `logged`: how many epochs are in the log that came with the checkpoint.
        """
        self.path = folder / CHECKPOINT_FILE
        self.previous = self.path.with_name(self.path.stem + PREVIOUS_SUFFIX)
        self.training, self._stop, self._every, self._logged = training, stop or Stop(), every, logged
        self._started = time.monotonic()
        self._found: dict[str, NDArray[Any]] = {}  # by the trainings before this one
        self._begins = False  # right after one of these

    def go_over_to(self, training: str, found: Mapping[str, NDArray[Any]]) -> None:
        """Keep the next training of the same job. What the one before `found` goes along in every checkpoint."""
        self.training, self._found, self._begins = training, dict(found), True

    def take_up(self, training: str) -> dict[str, NDArray[Any]] | None:
        """Return what was found before `training`, if it has begun, and keep that training from now on."""
        for path in (self.path, self.previous):
            try:
                arrays, _ = load(path, training)
            except (DataError, FileNotFoundError):
                continue  # `restore` tells why
            self.training = training
            self._found = {n.removeprefix(FOUND): array for n, array in arrays.items() if n.startswith(FOUND)}
            return self._found
        return None

    def restore(self, training: Training) -> None:
        """Put `training` where the newest checkpoint that can be used left it."""
        if self._begins:
            self.save(training)  # a job that ends from here on never does again what was before
            self._begins = False
            return
        for path in (self.path, self.previous):
            if not path.exists() or not path.stat().st_size:
                continue
            try:
                arrays, numbers = load(path, self.training)
                _check_position(path, numbers)
                self._check_log(path, int(numbers["epoch"]) - 1)
                training.resume(arrays, numbers)
            except DataError as error:
                self.pass_over(error)
                continue
            if path == self.previous and self.path.exists():
                self.path.write_bytes(b"")  # else the next `save` would put it in the place of the one that is whole
            place = training.position
            print(f"nnlib: resumed from {path.name}: epoch {place.epoch}, batch {place.batch}", file=sys.stderr)
            break
        self._stop.deferred = True
        self._started = time.monotonic()

    def _check_log(self, path: Path, epochs: int) -> None:
        """Raise DataError when the epochs before a checkpoint are not all in the log: the curve would have a hole."""
        if self._logged is not None and epochs > self._logged:
            raise DataError(f"{path.name}: {epochs} epochs lie before it, {LOG_FILE} tells of {self._logged}")

    def after_batch(self, training: Training) -> None:
        """Save and raise EvictedError when a stop was requested, CheckpointedError when it is time."""
        if self._stop.requested:
            self.save(training)
            raise EvictedError
        if time.monotonic() - self._started >= self._every:
            self.when_due(training)
            self._started = time.monotonic()

    def when_due(self, training: Training) -> None:
        """Save and end the training, which is to be started again."""
        self.save(training)
        raise CheckpointedError

    def pass_over(self, error: DataError) -> None:
        """Tell why a file is not used; it is replaced later."""
        print(f"nnlib: checkpoint not used: {error}", file=sys.stderr)

    def save(self, training: Training) -> None:
        """Write a checkpoint; the one before it stays until this one is whole."""
        arrays, numbers = training.state()
        with replacing(self.path) as fresh:
            found = {FOUND + name: array for name, array in self._found.items()}
            write(fresh, {**arrays, **found}, numbers, self.training)
            if self.path.exists() and self.path.stat().st_size:
                self.path.replace(self.previous)

    def discard(self) -> None:
        """Empty the checkpoints of a training that has ended, so that they cost no transfer."""
        self._stop.deferred = False
        self.previous.unlink(missing_ok=True)
        if self.path.exists():
            self.path.write_bytes(b"")


def write(path: Path, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, float], training: str) -> None:
    """Write a checkpoint file; one that is not complete has no last line."""
    text = json.dumps(dict(numbers), sort_keys=True)
    attributes: dict[str, netcdf.Attribute] = {
        "nnlib_checkpoint": np.uint32(FORMAT),
        "nnlib_version": __version__,
        "training": training,
        "numbers": text,
    }
    variables = {name: netcdf.Variable(f"{name}_dim", array.reshape(-1)) for name, array in arrays.items()}
    netcdf.write(path, netcdf.Content(attributes, variables))
    seal(path)


def seal(path: Path) -> None:
    """Add the last line to a file."""
    with path.open("r+b") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.write(LAST_LINE % digest.encode())


def check_whole(path: Path) -> None:
    """Raise DataError when a checkpoint is not what was written, whatever training it is of."""
    _whole(path)


def load(path: Path, training: str) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
    """Return arrays (flat) and numbers of a checkpoint; DataError says why it cannot be used."""
    arrays, owner, text = _whole(path)
    if owner != training:
        raise ForeignError(f"{path.name}: of another training: other data, network, settings, backend or trial")
    try:
        numbers = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path.name}: attribute numbers: not JSON: {error}") from error
    if not isinstance(numbers, dict) or not all(type(value) in (int, float) for value in numbers.values()):
        raise DataError(f"{path.name}: attribute numbers: {show(numbers)} is not legal, legal: an object of numbers")
    return arrays, numbers


def owner_of(path: Path) -> str | None:
    """Return what identifies the training of a checkpoint, None when it cannot be read."""
    try:
        _check_bytes(path)
        with netcdf.File(path) as file:
            found = file.attributes.get("training")
    except (DataError, OSError):
        return None
    return found if isinstance(found, str) else None


def _text(path: Path, content: netcdf.Content, name: str) -> str:
    found = content.attributes.get(name)
    if not isinstance(found, str):
        raise DataError(f"{path.name}: attribute {name}: not a text; it is not as nnlib writes it")
    return found


def _check_position(path: Path, numbers: Mapping[str, float]) -> None:
    """Raise DataError when the numbers do not say how far a training has come."""
    for name, usual in asdict(Position()).items():
        value = numbers.get(name)
        if value is None or (isinstance(usual, int) and not (isinstance(value, int) and value >= 0)):
            legal = "a whole number from 0" if isinstance(usual, int) else "a number"
            raise DataError(f"{path.name}: attribute numbers: {name} is {show(value)}, legal: {legal}")


def _whole(path: Path) -> tuple[dict[str, NDArray[Any]], str, str]:
    """Return arrays, owner and numbers of a file that is as it was written."""
    _check_bytes(path)
    content = netcdf.read(path)
    form = content.attributes.get("nnlib_checkpoint")
    if not isinstance(form, int | np.integer) or int(form) != FORMAT:
        raise ForeignError(f"{path.name}: {_describe_form(form, content.attributes.get('nnlib_version'))}")
    arrays = {}
    for name, variable in content.variables.items():
        if isinstance(variable.values, tuple) or variable.values.dtype.kind not in "biuf":
            raise DataError(f"{path.name}: variable {name} is not of numbers")
        arrays[name] = variable.values
    return arrays, _text(path, content, "training"), _text(path, content, "numbers")


def _describe_form(form: object, version: object) -> str:
    """Say what a file is that this nnlib does not go on with."""
    if not isinstance(form, int | np.integer):
        return "not a checkpoint of nnlib"
    writer = f"nnlib {version[:20]}" if isinstance(version, str) else "another nnlib"
    ours = f"this one, {__version__}, reads format {FORMAT}"
    return f"a checkpoint of format {int(form)}, with which only {writer} goes on; {ours}"


def _check_bytes(path: Path) -> None:
    """Raise DataError unless a file's last line is the SHA-256 of all before it; read in blocks."""
    digest, block = hashlib.sha256(), bytearray(1 << 20)
    with path.open("rb") as file:
        left = max(os.fstat(file.fileno()).st_size - LAST_LINE_BYTES, 0)
        while left and (count := file.readinto(memoryview(block)[: min(left, len(block))])):
            digest.update(memoryview(block)[:count])
            left -= count
        if file.read() != LAST_LINE % digest.hexdigest().encode():
            raise DataError(f"{path.name}: its SHA-256 is not that of its content: torn or changed")
