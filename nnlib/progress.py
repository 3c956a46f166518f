"""What a person sees of a training, on stderr; the only module that imports rich."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from nnlib.train import Epoch


@contextmanager
def reporter(epochs: int, metric: str, stream: TextIO | None = None) -> Iterator[Callable[[Epoch], None]]:
    """Give a function to call after each epoch: a progress bar on a terminal, else one plain line each."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield lambda epoch: print(described(epoch, epochs, metric), file=stream, flush=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=stream)) as progress:
        task = progress.add_task("training", total=epochs)
        yield lambda epoch: progress.update(task, completed=epoch.epoch, description=described(epoch, epochs, metric))


def described(epoch: Epoch, epochs: int, metric: str) -> str:
    """Return one epoch as a line, such as `epoch 3/30 loss 7.1234 ndcg@20 0.0815 0.21 s`."""
    value = "" if epoch.value is None else f" {metric} {epoch.value:.5g}"
    return f"epoch {epoch.epoch}/{epochs} loss {epoch.loss:.5g}{value} {epoch.seconds:.2f} s"
