"""Templates of what HTCondor and machines read: strict, and every value quoted for its place."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from regiondag.condor import quoting, versions
from regiondag.util.templates import Environment, NothingError, make_environment


def _refuse_silent_values(value: Any) -> Any:
    """No expression may print None, or a line break that would start a command of its own."""
    if value is None:
        raise NothingError("a template printed None")
    if isinstance(value, str) and ("\n" in value or "\r" in value):
        raise quoting.QuotingError(f"{value!r} holds a line break")
    return value


def _json_text(value: Any) -> str:
    """Return JSON in printable ASCII on one line; so written, it is YAML as well."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True).replace("\x7f", "\\u007f")


@cache
def template_environment() -> Environment:
    """Return what renders files for HTCondor and for machines, with a filter for each kind of place."""
    quotes = (
        quoting.path,
        quoting.url,
        quoting.name,
        quoting.arguments,
        quoting.submit_value,
        quoting.submit_expression,
        quoting.submit_command,
        quoting.classad_string,
    )
    filters = {quote.__name__: quote for quote in quotes}
    return make_environment({**filters, "supports": versions.supports, "json_text": _json_text}, _refuse_silent_values)
