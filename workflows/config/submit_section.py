"""`job.submit`: submit commands that a study adds to its jobs, checked so that none can change another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from nnlib.spec.checks import Check, Schema
from regiondag.config.values import SCALAR, SCALARS
from regiondag.study.submit_commands import ATTRIBUTE, EXPRESSION, NAME, Submit, canonical_name, why_reserved
from regiondag.util.schema import TEXT, Key, Keys, Section, object_of

LARGEST = 2**63 - 1  # of a whole number in a ClassAd

LEGAL = "a mapping of submit commands to text, numbers or true/false"
LEGAL_NAME = "a submit command such as accounting_group, or +NAME for an attribute of the job's ad"
FORM: Keys = {EXPRESSION: Key("", TEXT, "A ClassAd expression on one line, which HTCondor evaluates.")}
SUBMIT: Schema = {
    "type": "object",
    "propertyNames": {"pattern": f"^{NAME}$"},
    "additionalProperties": {"anyOf": [SCALARS, object_of(FORM, FORM)]},
}


def _plain(value: Any) -> str:
    """Return a text that HTCondor takes as it is: not a macro of it, and not going on in the next line."""
    text = TEXT.of(value)
    if "$" in text:
        raise ValueError("HTCondor reads $ as the beginning of a macro")
    if text.rstrip().endswith("\\"):
        raise ValueError("after a backslash at its end HTCondor would read on in the next line")
    return text


def _value(value: Any) -> Any:
    if isinstance(value, str):
        text = _plain(value)
        if text[0] == text[-1] == '"':
            raise ValueError("it is quoted where that is needed: write it without quotes of its own")
        return text
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError(f"the largest whole number is {LARGEST}")
    return SCALAR.of(value)


def _attribute(value: Any) -> Any:
    if isinstance(value, Mapping):
        if set(value) != {EXPRESSION}:
            raise ValueError
        return {EXPRESSION: _plain(value[EXPRESSION])}
    return _value(value)


COMMAND = Check(_value, "text on one line, a number or true/false")
OF_ATTRIBUTE = Check(_attribute, f"{COMMAND.legal}, or {{{EXPRESSION}: ...}} with a ClassAd expression")


def read_submit(section: Section) -> Submit:
    """Read `submit`, name by name: what stands in an inner layer counts for all spellings of the same name."""
    found: dict[str, tuple[str, Any]] = {}
    for layer in reversed(section.layers):
        for name in layer.value:
            command = _read(Section(section.problems, [layer]), name, layer.value)
            if command is not None:
                found[command[0].lower()] = command
    return dict(found.values())


def _read(section: Section, name: Any, beside: Iterable[Any]) -> tuple[str, Any] | None:
    """Return a command's canonical name and value; None after noting what is wrong with it."""
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        section.problems.add(section.where(name), f"seen the name {name!r}, legal: {LEGAL_NAME}")
        return None
    canonical = canonical_name(name)
    why = why_reserved(canonical)
    if why:
        section.problems.add(section.where(name), f"cannot be given here: {why}")
        return None
    if [canonical_name(str(other)).lower() for other in beside].count(canonical.lower()) > 1:
        section.problems.add(section.where(name), f"stands twice: {canonical} in any case, `+` and `MY.` are one name")
        return None
    check: Check[Any] = OF_ATTRIBUTE if canonical.startswith(ATTRIBUTE) else COMMAND
    missing = object()
    read = section.read(name, missing, check)
    return None if read is missing else (canonical, read)
