"""Match jobs with machines: what a job's requirements are made of, which slots meet each part, and what others lack."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regiondag.condor.classads import ClassAd, list_nested, number_of, parse_expression
from regiondag.util.text import bound

_OF_EACH_GPU = "MY.RequireGPUs"  # what HTCondor counts a machine's GPUs by
_NAME_OF_GPU = "DeviceName"
LONGEST = 150  # characters of a slot's name
_NO_ATTRIBUTES = ("true", "false", "undefined", "error", "is", "isnt")


def split_conjunction(expression: str) -> list[str]:
    """Split a ClassAd expression at every `&&` that is not inside brackets or quotes; unwrap outer brackets.

    >>> split_conjunction('((a =?= true) && (b == "x && y")) && (c || d && e)')
    ['a =?= true', 'b == "x && y"', 'c || d && e']
    """
    expression = _unwrap(expression.strip())
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


def _unwrap(expression: str) -> str:
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


@dataclass(frozen=True, slots=True)
class Clause:
    """One part of a job's requirements, and how many slots meet it; of one on GPUs, what theirs lack."""

    text: str
    met_by: int
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Slots that do not meet the same parts of a job's requirements."""

    slots: tuple[str, ...]
    unmet: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """What a job finds in a pool."""

    slots: int
    matching: tuple[str, ...]  # names of the slots where job and machine accept each other
    clauses: tuple[Clause, ...]
    refused_by_slot: tuple[str, ...]  # slots the job accepts, but whose own START expression says no
    excluded: tuple[Exclusion, ...] = ()  # the others, the most common reasons first


def offers_gpus(slot: ClassAd) -> bool:
    """Return whether a slot says HAS_GPU of itself."""
    return "HAS_GPU" in slot and slot.eval("HAS_GPU") is True


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of one machine: how many, and their name, empty where they are of several kinds."""

    count: int
    name: str


def most_gpus(slots: Sequence[ClassAd]) -> Gpus | None:
    """Return the GPUs of the slot that has the most; None where none has any."""
    counts = ((number_of(slot, "GPUs"), slot) for slot in slots)
    found = [Gpus(count, bound(slot.get("GPUs_DeviceName", ""))) for count, slot in counts if count > 0]
    return max(found, key=lambda gpus: (gpus.count, gpus.name), default=None)


def match(job: ClassAd, slots: Sequence[ClassAd]) -> Match:
    """Match one job against all slots, as the negotiator would, and count each clause by itself."""
    accepted = [slot for slot in slots if _holds(job.lookup("Requirements"), job, slot)]
    agreed = [job.symmetricMatch(slot) for slot in accepted]  # ads are compared by all that is in them: slowly
    clauses = []
    unmet: list[list[str]] = [[] for _ in slots]
    for text in split_conjunction(str(job.lookup("Requirements"))):
        expression = parse_expression(text)
        lacking: dict[str, None] = {}
        met_by = 0
        for slot, of_slot in zip(slots, unmet, strict=True):
            if _holds(expression, job, slot):
                met_by += 1
                continue
            found = _find_lacking(job, slot) if _OF_EACH_GPU in text else ""
            of_slot.append(found or text)
            lacking |= {found: None} if found else {}
        clauses.append(Clause(text, met_by, tuple(lacking)))
    matching = itertools.compress(accepted, agreed)
    refused = itertools.compress(accepted, (not agrees for agrees in agreed))
    return Match(len(slots), _names(matching), tuple(clauses), _names(refused), _group(slots, unmet))


def _group(slots: Sequence[ClassAd], unmet: Sequence[Sequence[str]]) -> tuple[Exclusion, ...]:
    groups: dict[tuple[str, ...], list[ClassAd]] = {}
    for slot, clauses in zip(slots, unmet, strict=True):
        if clauses:
            groups.setdefault(tuple(clauses), []).append(slot)
    found = [Exclusion(_names(alike), clauses) for clauses, alike in groups.items()]
    return tuple(sorted(found, key=lambda group: -len(group.slots)))


def _find_lacking(job: ClassAd, slot: ClassAd) -> str:
    """Say which part of a job's RequireGPUs the GPUs of a slot do not meet, and what they have; empty for too few."""
    gpus = list_nested(slot, "AvailableGPUs")
    if not gpus:
        return "a GPU (it has none)"
    if "RequireGPUs" not in job:
        return ""
    lacking: dict[str, None] = {}
    for text in split_conjunction(str(job.lookup("RequireGPUs"))):
        expression = parse_expression(text)
        for gpu in gpus:
            if expression.eval(gpu) is not True:
                has = [_show(gpu, name) for name in _attributes(text) if name != _NAME_OF_GPU]
                lacking[
                    f"{_plain(text)} of each GPU ({bound(gpu.get(_NAME_OF_GPU, '?'))}: {', '.join(has) or 'it is not'})"
                ] = None
    return " and ".join(lacking)


def _attributes(expression: str) -> list[str]:
    """Return the names of attributes in an expression, as it spells them.

    >>> _attributes('Capability >= 8.0 && regexp("A100", DeviceName) =!= true')
    ['Capability', 'DeviceName']
    """
    code = "".join(expression[position] for position in _walk(expression))
    words = re.findall(r"\b[A-Za-z_]\w*\b(?!\s*\()", code)
    return [word for word in dict.fromkeys(words) if word.lower() not in _NO_ATTRIBUTES]


def _plain(expression: str) -> str:
    """Return an expression with its numbers as people write them: ClassAds have 16 digits of each."""
    return re.sub(r"\b\d\.\d{15}E[+-]\d+", lambda number: repr(float(number[0])), expression)


def _show(ad: ClassAd, name: str) -> str:
    return f"{name} {bound(_plain(str(ad.lookup(name))))}" if name in ad else f"no {name}"


def _holds(expression: Any, job: ClassAd, slot: ClassAd) -> bool:
    return expression.eval(job, slot) is True


def _names(slots: Iterable[ClassAd]) -> tuple[str, ...]:
    return tuple(bound(slot.get("Name", "?"), LONGEST) for slot in slots)
