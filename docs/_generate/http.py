"""The service's addresses: what each takes, what it answers and refuses, from the routes and the dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import get_args, get_type_hints

from docs._generate.markdown import code, escape, table
from regiondag.serve.guard import ANSWER_SECONDS, BODY_SECONDS, MOST_BODY, MOST_HEAD
from regiondag.serve.messages import Failure
from regiondag.serve.openapi import PLAIN_TYPES
from regiondag.serve.routes import NO_REGION, REFUSED, ROUTES, WRONG_TYPE, Route
from regiondag.serve.typed import ABOUT, KIND, fields


def render_http() -> str:
    """Return a section for each address, one for what is answered, and one for what is refused."""
    return "\n\n".join((*map(_section, ROUTES), *_answers(), _refused(), _limits()))


def _section(route: Route) -> str:
    parts = [f"## {route.method} {code(route.path)}", route.about]
    places = (("path", route.in_path), ("query", route.query), ("body", route.body))
    rows = [
        (code(one.name), place, escape(one.metadata[ABOUT]), escape(_legal(one)))
        for place, kind in places
        if kind
        for one in fields(kind)
    ]
    if rows:
        parts.append(table(("name", "in", "meaning", "legal"), rows))
    if route.answer not in (None, dict):
        parts.append(f"Answers [{route.answer.__name__}](#{route.answer.__name__.lower()}).")
    if route.open:
        parts.append("Needs no token.")
    return "\n\n".join(parts)


def _legal(one: dataclasses.Field[object]) -> str:
    default = one.default
    if default is dataclasses.MISSING or default in (None, (), ""):
        return str(one.metadata[KIND].legal)
    return f"{one.metadata[KIND].legal} (default: {default})"


def _answers() -> Iterator[str]:
    for kind in sorted(_kinds(), key=lambda kind: kind.__name__):
        hints = get_type_hints(kind)
        rows = [(code(one.name), escape(_type(hints[one.name]))) for one in dataclasses.fields(kind)]
        about = escape(" ".join((kind.__doc__ or "").split()))
        yield f"### {kind.__name__}\n\n{about}\n\n{table(('key', 'holds'), rows)}"


def _kinds() -> set[type]:
    found: set[type] = set()
    left: list[object] = [Failure, *(route.answer for route in ROUTES)]
    while left:
        kind = left.pop()
        left += get_args(kind)
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind not in found:
            found.add(kind)
            left += get_type_hints(kind).values()
    return found


def _type(hint: object) -> str:
    inside = get_args(hint)
    if not inside:
        return PLAIN_TYPES.get(hint) or str(getattr(hint, "__name__", hint))
    if getattr(hint, "__origin__", None) is tuple:
        return f"a list of {_type(inside[0])}"
    if len(inside) == 2 and inside[0] is str:
        return f"an object of {_type(inside[1])}"
    return " or ".join(map(_type, inside))


def _refused() -> str:
    reasons = {**REFUSED, 404: f"{NO_REGION}, or no such address", 405: "another method", 415: WRONG_TYPE}
    rows = [(code(str(status)), escape(reasons[status])) for status in sorted(reasons)]
    return f"## What is refused\n\nEvery failure is a [Failure](#failure).\n\n{table(('status', 'why'), rows)}"


def _limits() -> str:
    rows = [
        ("body", f"{MOST_BODY >> 20} MiB, within {BODY_SECONDS:.0f} seconds"),
        ("address and headers", f"{MOST_HEAD >> 10} KiB"),
        ("an answer", f"{ANSWER_SECONDS:.0f} seconds"),
    ]
    return f"## Limits\n\n{table(('of', 'at most'), rows)}"
