"""Completion in shells: the one module that imports argcomplete, which does so only where a shell asks."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping

ASKED = "_ARGCOMPLETE"  # set by a shell that wants to know what may come next
Completer = Callable[[str, argparse.Namespace], Iterable[str]]  # of what was typed so far, and of what stands before it


def script_for(shell: str) -> str:
    """Return what a shell has to read."""
    import argcomplete

    text: str = argcomplete.shellcode(["regiondag"], shell=shell)
    return text


def answer_shell(
    parsers: Iterable[argparse.ArgumentParser], root: argparse.ArgumentParser, completers: Mapping[str, Completer]
) -> None:
    """Print what may come next and end the process, where a shell asks; `completers` by what stands for a value."""
    if ASKED not in os.environ:
        return
    import argcomplete

    for parser in parsers:
        for action in parser._actions:
            names = action.metavar if isinstance(action.metavar, str) else ""
            if names in completers:
                action.completer = _guarded(completers[names])  # type: ignore[attr-defined]
    argcomplete.autocomplete(root, always_complete_options="long", append_space=False)


def _guarded(complete: Completer) -> Callable[..., list[str]]:
    """Return a completer that says nothing where something is wrong: the command itself will say what."""

    def answer(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        try:
            return [text for text in complete(prefix, parsed_args) if text.startswith(prefix)]
        except Exception:
            return []

    return answer
