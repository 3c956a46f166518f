"""The one flag between a signal and a training; standard library only, because the worker sets it up first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Stop:
    """Whether somebody asked the training to end: SIGTERM or Ctrl-C, which a signal handler notes here."""

    requested: bool = False
    deferred: bool = False  # the training looks at `requested` after every batch; till then nothing may be torn
