"""The one place where values become HTCondor syntax. Whatever it cannot quote safely it refuses.

Names and values come from YAML and are hostile until they have passed through here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from regiondag.errors import RegiondagError
from regiondag.study.program import URL
from regiondag.study.submit_commands import ATTRIBUTE, EXPRESSION, NAME
from regiondag.util.text import holds_control_character

_PATH = re.compile(r"[\w./:@+=~-]+")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# What stands behind a $ is read once more when $(DOLLAR) has become one: functions, defaults, and what is not closed
# then hide the next $(DOLLAR), or are expanded. Names in parentheses are left alone.
_READ_AGAIN = re.compile(r"\$(?!\((?!DOLLAR\))\w+\))\w*\(", re.IGNORECASE)


class QuotingError(RegiondagError):
    """A value that cannot be written into a DAG or a submit file."""


def path(value: object) -> str:
    """Return a path as one word of a DAG or submit file; DAGMan splits at spaces and knows no quotes.

    >>> path("/data/run-retail")
    '/data/run-retail'
    """
    text = str(value)
    check_path(text, "choose another folder (--out FOLDER)")
    return text


def is_path(text: str) -> bool:
    """Return whether a path can stand in a DAG as a word."""
    return _PATH.fullmatch(text) is not None


def check_path(value: object, advice: str) -> None:
    """Raise QuotingError that ends with `advice` for a path that cannot stand in a DAG."""
    text = str(value)
    if is_path(text):
        return
    strange = dict.fromkeys(character for character in text if not _PATH.fullmatch(character))
    seen = ", ".join("a space" if character == " " else repr(character) for character in strange)
    raise QuotingError(
        f"the path {text!r} cannot stand in a DAG: {f'it holds {seen}' if seen else 'it is empty'}; "
        f"legal: letters, digits and . _ / : @ + = ~ -; {advice}"
    )


def url(value: object) -> str:
    """Return a URL as one entry of a list of files, which HTCondor splits at commas and expands macros in.

    >>> url("https://host/North%2C%20east.csv")
    'https://host/North%2C%20east.csv'
    """
    text = str(value)
    if not re.fullmatch(URL, text):
        raise QuotingError(f"the URL {text!r} cannot stand in a list of files: percent-encode all but -._~:/?@!&=+")
    return text


def name(value: object) -> str:
    """Return the name of a node or category: letters, digits, '-' and '_'.

    >>> name("united-kingdom_t0007")
    'united-kingdom_t0007'
    """
    text = str(value)
    if not _NAME.fullmatch(text):
        raise QuotingError(f"{text!r} cannot name anything in a DAG; legal are letters, digits, '-' and '_'")
    return text


def submit_value(value: object) -> str:
    """Return `value` as the right side of a submit command that holds a label, `$` kept from being a macro.

    Of several `$` in a row one stays: two are a macro of the machine's attributes, over which jobs go on hold.

    >>> submit_value("cost $(HOME) $$(HOME)")
    'cost $(DOLLAR)(HOME) $(DOLLAR)(HOME)'
    """
    text = _without_macros(value)
    if text.rstrip().endswith("\\"):
        raise QuotingError(f"{value!r} ends with a backslash, with which HTCondor reads on in the next line")
    return text


def submit_expression(value: object) -> str:
    """Return a ClassAd expression of the user on one line, as it is; HTCondor checks it at the dry run."""
    return _one_line(value)


def submit_command(name: str, value: object) -> str:
    """Return a command of the user's with its value: true or false, a number, a text or {"expression": TEXT}.

    The text of an attribute of the job's ad becomes a string of it; that of a command is read as HTCondor does.

    >>> submit_command("MY.ProjectName", "Bird 1"), submit_command("accounting_group", "physics.it")
    ('MY.ProjectName = "Bird 1"', 'accounting_group = physics.it')
    >>> submit_command("MY.WantGlideIn", True), submit_command("MY.Sites", {"expression": "MY.Slow ?: 1"})
    ('MY.WantGlideIn = true', 'MY.Sites = MY.Slow ?: 1')
    """
    if not re.fullmatch(NAME, name):
        raise QuotingError(f"{name!r} is no submit command")
    return f"{name} = {_command_value(value, attribute=name.startswith((ATTRIBUTE, '+')))}"


def _command_value(value: object, *, attribute: bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) and math.isfinite(value):
        return repr(value)
    if isinstance(value, str):
        return classad_string(value) if attribute else submit_value(value)
    if attribute and isinstance(value, Mapping) and set(value) == {EXPRESSION}:
        expression = submit_expression(value[EXPRESSION])
        if "$" in expression or expression.rstrip().endswith("\\"):
            raise QuotingError(f"{expression!r} holds a $, or ends with a backslash, which HTCondor expands or goes on")
        return expression
    raise QuotingError(f"{value!r} is neither text, a finite number nor true or false")


def arguments(words: list[str]) -> str:
    """Return words as the `arguments` command in HTCondor's new syntax: single quotes, doubled inside.

    >>> arguments(["train", "it's", 'a "b"'])
    '"train \\'it\\'\\'s\\' \\'a ""b""\\'"'
    """
    quoted = []
    for word in words:
        if "$$" in word:
            raise QuotingError(f"{word!r} holds $$, which HTCondor expands on the machine")
        text = _without_macros(word).replace('"', '""')
        plain = text and not re.search(r"[\s']", text) and '"' not in text
        quoted.append(text if plain else "'" + text.replace("'", "''") + "'")
    return '"' + " ".join(quoted) + '"'


def classad_string(value: object) -> str:
    r"""Return `value` as a ClassAd string literal for a submit file, in which a backslash stands for itself.

    >>> print(classad_string(r'a "b" \ c'))
    "a \"b\" \ c"
    """
    text = _without_macros(value)
    if text.endswith("\\"):
        raise QuotingError(f"{text!r} ends with a backslash, which would keep the quote behind it from ending it")
    return '"' + text.replace('"', '\\"') + '"'


def _without_macros(value: object) -> str:
    text = re.sub(r"\$+", "$", _one_line(value))
    if _READ_AGAIN.search(text):
        raise QuotingError(f"{text!r} holds a macro that HTCondor reads even where it is quoted; legal: $ and $(NAME)")
    return text.replace("$", "$(DOLLAR)")


def _one_line(value: object) -> str:
    text = str(value)
    if holds_control_character(text):
        raise QuotingError(f"{text!r} holds a line break or another control character")
    return text
