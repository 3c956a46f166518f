"""What Python's users give, as files hold it: Python's own kinds of values, finite numbers, reasons."""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, SupportsFloat

from regiondag.errors import ConfigError, UsageError
from regiondag.study.space import Choice, Parameter, Real, Space
from regiondag.trials.config_space import is_of_config_space, written_of_hyperparameter, written_of_space
from regiondag.trials.optuna_space import is_distribution, written_of

DEEPEST = 8  # lists and mappings in each other
MOST_REASON = 2000  # characters


def to_plain(value: object, depth: int = 0) -> Any:
    """Return Python's own kinds for what others are like: tuples and arrays are lists, numbers Python's."""
    if depth > DEEPEST:
        raise ConfigError(["Search: nested too deeply; a space is a mapping of names to ranges or choices"])
    if is_distribution(value):
        return written_of(value)
    if is_of_config_space(value, "Hyperparameter"):
        return to_plain(written_of_hyperparameter(value), depth + 1)
    if is_of_config_space(value, "ConfigurationSpace"):
        return to_plain(written_of_space(value), depth + 1)
    if isinstance(value, Mapping):
        return {
            to_plain(key) if isinstance(key, str) else repr(key): to_plain(one, depth + 1) for key, one in value.items()
        }
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or value is True or value is False:
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, list | tuple | range):
        return [to_plain(one, depth + 1) for one in value]
    if hasattr(value, "tolist"):  # of NumPy
        return to_plain(value.tolist(), depth + 1)
    return value


def to_yaml(value: Mapping[str, object], before: str = "") -> str:
    """Return a mapping of plain values, which were read as a study, as lines of YAML.

    >>> print(to_yaml({"a": {"b": {"c": [1, "x y"]}}}), end="")
    a:
      b: {c: [1, "x y"]}
    """
    lines = []
    for key, one in value.items():
        if isinstance(one, Mapping) and any(isinstance(below, Mapping) for below in one.values()):
            lines.append(f"{before}{_flow(key)}:\n{to_yaml(one, before + '  ')}")
        else:
            lines.append(f"{before}{_flow(key)}: {_flow(one)}\n")
    return "".join(lines)


def _flow(value: object) -> str:
    from regiondag.newstudy.write import quote_yaml

    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_flow(key)}: {_flow(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, str) and value.strip():
        return quote_yaml(value)
    return json.dumps(value, allow_nan=False)


def written_space(space: Space) -> dict[str, object]:
    """Return a space as `search.space` of study.yaml has it."""
    return {one.name: _written_parameter(one) for one in space}


def _written_parameter(one: Parameter) -> dict[str, object]:
    more: dict[str, object] = {"when": {name: list(values) for name, values in one.when}, "default": one.default}
    kind: dict[str, object]
    if isinstance(one, Choice):
        kind = {"choice": list(one.options), "ordered": one.ordered}
    else:
        kind = {"real" if isinstance(one, Real) else "int": [one.low, one.high], "log": one.log}
        more |= {"points": one.points, "step": one.step}
    return kind | {key: value for key, value in more.items() if value not in (None, {})}


def to_number(name: str, value: SupportsFloat, least: float | None = None) -> float:
    """Return a number of any kind as Python's; UsageError for what is none, or below `least`."""
    legal = "a number" if least is None else f"a finite number from {least:g}"
    with suppress(TypeError, ValueError, OverflowError):
        found = float(value)
        if not isinstance(value, str | bytes | bool) and (least is None or least <= found < math.inf):
            return found
    raise UsageError(f"{name}: seen {value!r:.60}, legal: {legal}")


def to_reason(failed: str | BaseException | None) -> str:
    """Return a reason as a file can hold it, never empty."""
    text = f"{type(failed).__name__}: {failed}" if isinstance(failed, BaseException) else str(failed)
    return text.encode("utf-8", "replace").decode()[:MOST_REASON] or "failed"
