"""Exit codes, and the classes of errors behind them with what to do next, from the classes themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import nnlib.errors
import regiondag.errors
from docs._generate.comments import comments_of
from docs._generate.markdown import code, docstring, escape, table
from nnlib.contract import Exit
from regiondag.cli import BUG, INTERRUPTED

# What ends a command without a class of its own.
WITHOUT_CLASS = (
    (0, "done"),
    (BUG, "a bug; please report it with the lines above the message"),
    (INTERRUPTED, "Ctrl-C"),
)


def render_errors() -> str:
    """Return a section for each program: its error classes with exit code, meaning and what to do next."""
    parts = []
    for module, program in ((regiondag.errors, "regiondag"), (nnlib.errors, "nnlib")):
        parts.append(f"## {program}")
        for error in _errors(module):
            parts += [f"### {error.__name__}", f"Exit code {error.exit_code}.", escape(docstring(error))]
    return "\n\n".join(parts)


def render_exit_codes() -> str:
    """Return the exit codes of `regiondag`, with the classes behind them, and those of a training job."""
    rows = [*WITHOUT_CLASS, *((int(error.exit_code), _summary(error)) for error in _errors(regiondag.errors))]
    ours = table(("`regiondag`", "means"), ((code(number), text) for number, text in sorted(rows)))
    job = table(("training job", "means"), ((code(int(Exit[name])), escape(text)) for name, text in _exits()))
    return f"{ours}\n\n{job}"


def _errors(module: ModuleType) -> Iterator[Any]:
    """Yield the error classes of a module in its order."""
    for thing in vars(module).values():
        if inspect.isclass(thing) and issubclass(thing, BaseException) and thing.__module__ == module.__name__:
            yield thing


def _summary(error: type) -> str:
    return f"[{error.__name__}](errors.md#{error.__name__.lower()}): {escape(docstring(error).splitlines()[0])}"


def _exits() -> Iterator[tuple[str, str]]:
    comments = comments_of(Exit)
    for each in Exit:
        yield each.name, comments.get(each.name) or "done"
