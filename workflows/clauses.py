"""Take a requirements expression apart into the clauses that all must hold."""

from __future__ import annotations


def split_conjunction(expression: str) -> list[str]:
    """Split a ClassAd expression at every `&&` that is not inside brackets or quotes; unwrap outer brackets.

    >>> split_conjunction('((a =?= true) && (b == "x && y")) && (c || d && e)')
    ['a =?= true', 'b == "x && y"', 'c || d && e']
    """
    expression = _unwrapped(expression.strip())
    parts = _split(expression)
    if len(parts) == 1:
        return parts
    return [clause for part in parts for clause in split_conjunction(part)]


def _split(expression: str) -> list[str]:
    parts, start = [], 0
    for position in _outside(expression):
        if expression.startswith("&&", position):
            parts.append(expression[start:position].strip())
            start = position + 2
        elif expression.startswith("||", position) or (
            expression[position] == "?" and expression[position - 1] != "="  # `=?=` is a comparison
        ):
            return [expression]  # && binds tighter: `a && b || c` and `a && b ? c : d` are no conjunctions
    return [*parts, expression[start:].strip()]


def _unwrapped(expression: str) -> str:
    while expression.startswith("(") and expression.endswith(")"):
        inner = expression[1:-1]
        depth = 0
        for position in _walk(inner):
            depth += {"(": 1, ")": -1}.get(inner[position], 0)
            if depth < 0:
                return expression
        expression = inner.strip()
    return expression


def _outside(expression: str) -> list[int]:
    """Return the positions that lie outside of every bracket and quoted text."""
    positions, depth = [], 0
    for position in _walk(expression):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(expression[position], 0)
        if depth == 0:
            positions.append(position)
    return positions


def _walk(expression: str) -> list[int]:
    """Return the positions that lie outside of quoted text."""
    positions, quote, skip = [], "", False
    for position, character in enumerate(expression):
        if skip:
            skip = False
        elif quote:
            skip = character == "\\"
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        else:
            positions.append(position)
    return positions
