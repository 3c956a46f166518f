"""The log of a training: one line of JSON for each epoch, as it ends. A killed training may leave half a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from nnlib.plain_file import read_plain

LONGEST_LOG = 64 << 20  # bytes: 100,000 epochs take a fifth of it


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one epoch gave. `loss` is the mean over the examples, `value` the validation metric."""

    epoch: int
    loss: float
    value: float | None
    seconds: float
    examples: int = 0


def read_epochs(path: Path) -> tuple[Epoch, ...]:
    """Return the epochs that a log tells of, from the first one on and without a gap; none where there is no log.

    OSError for a log that is no plain file, or has more bytes than any training writes.
    """
    epochs: list[Epoch] = []
    if path.exists():
        for line in read_plain(path, LONGEST_LOG).splitlines(keepends=True):
            epoch = _epoch(line) if line.endswith(b"\n") else None
            if epoch is None or epoch.epoch != len(epochs) + 1:
                break
            epochs.append(epoch)
    return tuple(epochs)


def _epoch(line: bytes) -> Epoch | None:
    try:
        read = json.loads(line)
        value = read["value"]
        return Epoch(
            int(read["epoch"]),
            float(read["loss"]),
            None if value is None else float(value),
            float(read["seconds"]),
            int(read["examples"]),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


@contextmanager
def open_epoch_log(path: Path) -> Iterator[Callable[[Epoch], None]]:
    """Give a function that adds an epoch to the log in `path`, which exists; the epochs before it are kept.

    Nothing is written before the first epoch ends: an attempt that fails until then leaves the log as it was.
    """
    with path.open("r+", encoding="utf-8", errors="replace") as file:
        kept = list(file)
        started = False

        def add(epoch: Epoch) -> None:
            nonlocal started
            if not started:
                file.seek(0)
                file.truncate()
                file.writelines(kept[: epoch.epoch - 1])
                started = True
            file.write(json.dumps(asdict(epoch)) + "\n")
            file.flush()

        yield add
