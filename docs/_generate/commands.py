"""Every command, option, default and example, from the parsers of `regiondag` and `nnlib`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docs._generate.markdown import code, escape, table

WIDTH = 100


def render_commands(parser: argparse.ArgumentParser, level: int = 2) -> str:
    """Return one section for a parser and one for each of its subcommands."""
    return "\n\n".join(_sections(parser, level))


def _sections(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}"
    yield from _description(parser)
    yield f"```text\n{_usage(parser)}\n```"
    yield from _options(parser)
    if parser.epilog:
        yield f"```text\n{parser.epilog.rstrip()}\n```"
    for each in subparsers_of(parser).values():
        yield from _sections(each, level + 1)


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's subcommands by their names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _description(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the description: indented lines and lists of the terminal as they stand, the rest as running text."""
    for paragraph in (parser.description or "").strip().split("\n\n"):
        if "\n  " in paragraph:
            yield f"```text\n{paragraph}\n```"
        elif paragraph:
            yield escape(paragraph)


def _usage(parser: argparse.ArgumentParser) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=WIDTH)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, "")
    return formatter.format_help().strip()


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    actions = [action for action in parser._actions if not isinstance(action, argparse._SubParsersAction)]
    shown = [action for action in actions if action.help != argparse.SUPPRESS and action.dest != "help"]
    if shown:
        yield table(("argument", "meaning"), ((code(_name(action)), _meaning(parser, action)) for action in shown))


def _name(action: argparse.Action) -> str:
    values = _values(action)
    return f"{', '.join(action.option_strings)} {values}".strip()


def _values(action: argparse.Action) -> str:
    """Return what stands for the values of an argument, as `--help` writes it."""
    if action.nargs == 0:
        return ""
    names = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    name = " ".join(names) if isinstance(names, tuple) else names
    match action.nargs:
        case "?":
            return f"[{name}]"
        case "*":
            return f"[{name} ...]"
        case "+":
            return f"{name} ..."
    return name


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """Return the help of an argument, and its default where the text does not name it."""
    text = escape((action.help or "") % {"prog": parser.prog, "default": action.default})
    silent = action.default in (None, False, argparse.SUPPRESS) or action.default == [] or "default" in text
    return text if silent or action.nargs == 0 else f"{text} (default: {code(action.default)})".strip()
