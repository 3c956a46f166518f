"""Values that only study.yaml has, one at a time: metrics, bounds and steps of hyperparameters, names."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from nnlib.spec import metric_names
from nnlib.spec.checks import Check, Schema, matching, real, whole
from regiondag.study.families import FAMILIES
from regiondag.study.gpus import BOUNDS, GpuWish, require_capability, require_memory, require_runtime
from regiondag.study.model import DAY, GPU_COUNTS, MAX_TRIALS
from regiondag.study.space import Value
from regiondag.util.schema import DURATION, TEXT, Key, Keys, nearest, object_of, size

MAX_NAME = 200
MOST_OPTIONS = 1000  # of a choice: each is tried in the network before anything runs
LARGEST = 1e300  # of a real hyperparameter's bounds
SCALARS: Schema = {"type": ["boolean", "number", "string"]}
SOME_SCALARS: Schema = {"anyOf": [SCALARS, {"type": "array", "items": SCALARS}]}


INITS = ("random", "champion", "neighbour", "pooled")
MODEL = "model"


def _start(value: Any) -> str | tuple[str, str]:
    """Return one of INITS, or MODEL and a path."""
    if isinstance(value, Mapping) and set(value) == {MODEL}:
        return MODEL, TEXT.of(value[MODEL])
    if not isinstance(value, str) or value not in INITS:
        raise ValueError(nearest(str(value), INITS).removeprefix("; "))
    return value


MODEL_FILE: Keys = {MODEL: Key("", TEXT, "Path of a model file, from study.yaml's folder.")}
START: Check[str | tuple[str, str]] = Check(
    _start,
    f"{', '.join(INITS)}, or {{{MODEL}: FILE}}",
    {"anyOf": [{"enum": list(INITS)}, {**object_of(MODEL_FILE), "minProperties": 1}]},
)


def _study_name(value: Any) -> str:
    name = TEXT.of(value)
    if not re.fullmatch("[A-Za-z0-9_-]{1,60}", name):
        raise ValueError
    return name


def _region_name(value: Any) -> str:
    name = TEXT.of(value)
    if len(name) > MAX_NAME:
        raise ValueError(f"it has {len(name)} characters")
    if not any(letter.isprintable() and not letter.isspace() for letter in name):
        raise ValueError("nothing of it shows")
    return name


def _ranking_metric(value: Any) -> str:
    """Return the metric as results spell it: `P@10` and `precision@10` are `p@10`."""
    try:
        name = metric_names.canonical_metric(TEXT.of(value))
    except ValueError:
        raise ValueError from None  # what is legal here is said by the check
    if name == "loss":
        raise ValueError
    return name


def _requirements(value: Any) -> str:
    expression = TEXT.of(value)
    resource = re.search(r"\b(GPUs|Cpus|Memory|Disk)\b", expression, re.IGNORECASE)
    if resource:  # HTCondor drops its own clause `TARGET.GPUs >= RequestGPUs` when it sees one of ours
        raise ValueError(f"it mentions {resource[0]}; say how much a job needs with gpus, cpus, memory and disk")
    return expression


def _gpus(value: Any) -> GpuWish:
    counts: tuple[int, ...] = (0, *GPU_COUNTS)
    wanted: dict[str, Any] = value if isinstance(value, dict) else {"count": value}
    for key in wanted:
        if key not in GPU_KEYS:
            raise ValueError(f"unknown key {key!r}{nearest(str(key), GPU_KEYS)}")
    if isinstance(value, dict):
        if not value:
            raise ValueError
        if ("min" in value) != ("max" in value):
            raise ValueError("give both, min and max")
        if {"count", "min"} <= set(value):
            raise ValueError("give count, or min and max")
        counts = GPU_COUNTS
    fewest, most = wanted.get("min", wanted.get("count", 1)), wanted.get("max", wanted.get("count", 1))
    if any(type(count) is not int or count not in counts for count in (fewest, most)):
        raise ValueError
    if fewest > most:
        raise ValueError("min is larger than max")
    return GpuWish(fewest, most, " && ".join(_each_gpu(wanted)))


def _each_gpu(wanted: Mapping[str, Any]) -> Iterator[str]:
    """Yield what each GPU must be, clause by clause."""
    for key, each in OF_EACH_GPU.items():
        if key in wanted:
            try:
                yield each.check.of(wanted[key])
            except ValueError:
                raise ValueError(f"{key}: seen {wanted[key]!r}, legal: {each.check.legal}") from None


def _capability(value: Any) -> str:
    return require_capability(str(value) if isinstance(value, int | float) and value is not True else TEXT.of(value))


def _require_gpus(value: Any) -> str:
    expression = TEXT.of(value)
    if re.search(r"\b(TARGET|MY)\s*\.", expression, re.IGNORECASE):  # it is asked of each GPU by itself
        raise ValueError("it is asked of each GPU by itself: name its properties alone; a machine's are `requirements`")
    return expression


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(map(TEXT.of, value))


def _scalar(value: Any) -> Value:
    if isinstance(value, str):
        value.encode()  # UnicodeEncodeError, a ValueError, for half of a character
        return value
    if isinstance(value, bool | int | float) and abs(value) <= sys.float_info.max:
        return value
    raise ValueError


def _options(value: Any) -> tuple[Value, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    if len(value) > MOST_OPTIONS:
        raise ValueError(f"it has {len(value):,}")
    options = tuple(map(_scalar, value))
    if len({(type(option), option) for option in options}) < len(options):
        raise ValueError("one stands twice")
    return options


_METRICS = "|".join("".join(f"[{c}{c.upper()}]" for c in name) for name in (*metric_names.METRICS, "precision"))
STUDY_NAME = Check(
    _study_name,
    "letters, digits, '-' and '_', at most 60",
    {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,60}$"},
)
REGION_NAME = Check(
    _region_name,
    f"text of at most {MAX_NAME} characters on one line",
    {**TEXT.schema, "maxLength": MAX_NAME},
)
RANKING_METRIC = Check(
    _ranking_metric,
    f"{metric_names.list_metrics(' or')}; the loss is better when small: minimize: loss",
    {"type": "string", "pattern": f"^({_METRICS})@[1-9][0-9]{{0,5}}$"},
)
LOSS = matching("loss", f"loss; {metric_names.list_metrics(' and')} are better when large: metric: ndcg@20")
REQUIREMENTS = Check(
    _requirements,
    "a ClassAd expression on one line, such as TARGET.HAS_GPU =?= True",
    TEXT.schema,
)
_COUNT: Check[int] = Check(int, "1, 2, 4 or 8", {"enum": list(GPU_COUNTS)})
GPU_NUMBERS: Keys = {
    "count": Key(1, _COUNT, "GPUs of a training."),
    "min": Key(None, _COUNT, "In the place of `count`: the fewest GPUs with which a training makes do."),
    "max": Key(None, _COUNT, "The most that it takes."),
}
_GPU_MEMORY = size(1 << 20)
OF_EACH_GPU: Keys = {
    "capability": Key(
        None,
        Check(
            _capability,
            'a compute capability such as 8.0, at least, or bounds such as ">= 7.5, < 10"',
            {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{BOUNDS}$"}]},
        ),
        "The compute capability of each.",
    ),
    "memory": Key(
        None,
        Check(lambda value: require_memory(_GPU_MEMORY.of(value)), _GPU_MEMORY.legal, _GPU_MEMORY.schema),
        "The memory of each at least, as HTCondor knows it: somewhat less than its name says.",
    ),
    "runtime": Key(
        None,
        Check(
            lambda value: require_runtime(TEXT.of(value)),
            'a version of CUDA in quotes, such as "12.4"',
            {"type": "string", "pattern": r"^[0-9]{1,2}\.[0-9]{1,2}$"},
        ),
        "The version of CUDA that the driver of each knows at least.",
    ),
}
GPU_KEYS: Keys = {**GPU_NUMBERS, **OF_EACH_GPU}
GPUS = Check(
    _gpus,
    '0, 1, 2, 4 or 8, or {min: 2, max: 8}, or {count: 1, capability: ">= 8.0", memory: 40GB, runtime: "12.4"}',
    {
        "anyOf": [
            {"enum": [0, *GPU_COUNTS]},
            {
                **object_of(GPU_KEYS),
                "minProperties": 1,
                "dependentRequired": {"min": ["max"], "max": ["min"]},
                "not": {"required": ["count", "min"]},
            },
        ]
    },
    lambda wish: wish.most if wish.fewest == wish.most else {"min": wish.fewest, "max": wish.most},
)
REQUIRE_GPUS = Check(
    _require_gpus,
    "a ClassAd expression on one line, such as Capability >= 8.0 && GlobalMemoryMb >= 40000",
    TEXT.schema,
)
CONSTRAINTS = Check(
    _texts,
    'a list of texts such as "hidden * layers <= 4096"',
    {"type": "array", "items": TEXT.schema},
)
SCALAR = Check(_scalar, "a text, a number or true/false", SCALARS)
OPTIONS = Check(
    _options,
    f"a list of different texts, numbers or true/false, {MOST_OPTIONS:,} at most",
    {"type": "array", "items": SCALARS, "minItems": 1, "maxItems": MOST_OPTIONS},
)


def _families(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError
    for name in value:
        if name not in FAMILIES:
            raise ValueError(f"{name!r} is none{nearest(str(name), FAMILIES)}")
    if len(set(value)) < len(value):
        raise ValueError("one stands twice")
    return tuple(value)


FAMILY_NAMES = Check(
    _families,
    f"a list of some of {', '.join(FAMILIES)}",
    {"type": "array", "items": {"enum": list(FAMILIES)}, "minItems": 1, "uniqueItems": True},
)


def _days(value: Any) -> int:
    seconds = DURATION.of(value)
    if seconds % DAY or not 1 <= seconds // DAY <= MOST_DAYS:
        raise ValueError
    return seconds // DAY


MOST_DAYS = 3660
DAYS = Check(
    _days,
    f"whole days such as 28d, at most {MOST_DAYS}d",
    {"type": "string", "pattern": "^[0-9]{1,6}[smhd]$"},
    lambda days: f"{days}d",
)


def bounds(kind: str) -> Check[tuple[float, ...]]:
    """Return the check of the ends of a range of `real` or `int` numbers."""
    number: Check[Any] = whole(-(2**53), 2**53) if kind == "int" else real(-LARGEST, LARGEST)

    def of(value: Any) -> tuple[float, ...]:
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError
        low, high = map(number.of, value)
        if low >= high:
            raise ValueError("low must be smaller than high")
        return low, high

    legal = f"[low, high] with low < high, both finite {'whole ' if kind == 'int' else ''}numbers"
    return Check(of, legal, {"type": "array", "items": number.schema, "minItems": 2, "maxItems": 2})


def step(kind: str, ends: tuple[float, ...]) -> Check[float]:
    """Return the check of a step that leads from one of the `ends` to the other, where they are known."""
    number: Check[Any] = whole(1, 2**53) if kind == "int" else real(1 / LARGEST, LARGEST)

    def of(value: Any) -> float:
        size: float = number.of(value)
        if ends:
            low, high = ends
            count = (high - low) / size
            if count > MAX_TRIALS:
                raise ValueError(f"{count:.0f} steps, legal: at most {MAX_TRIALS}")
            if count < 0.5 or abs(count - round(count)) > 1e-6:
                below = low + math.floor(count + 1e-6) * size
                raise ValueError(
                    f"no whole number of steps leads from {low:g} to {high:g}; {below:g} is the last one below"
                )
        return size

    return Check(of, "a number such as 0.1, above 0", number.schema)
