"""The hyperparameters of study.yaml: `search.space` and the constraints between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from regiondag.config import values
from regiondag.config.keys import CHOICE, INT, REAL, SEARCH
from regiondag.study.constraints import LEGAL, Constraint, parse_constraint
from regiondag.study.model import Search
from regiondag.study.space import (
    Choice,
    Integer,
    Parameter,
    Real,
    Space,
    Value,
    When,
    count_grid_points,
    random_point,
    seed_of,
)
from regiondag.tuning.domain import Domain, domain_of
from regiondag.util import schema
from regiondag.util.schema import Layer, Section

KINDS = "{real: [low, high]}, {int: [low, high]}, {choice: [a, b]} or one fixed value"
MOST = 1000  # hyperparameters
LISTED = 1_000_000  # points of a grid that are looked at one by one
WIDEST = 1e300  # log scale: beyond, its ends' ratio is no number
SAMPLES = 20  # points on which constraints are tried before anything is proposed


def read_space(space: Section, settings: Iterable[str] | None) -> Space:
    """Read `search.space`; `settings` are the names that stand for training settings.

    Without (None) nobody needs a value of what is absent: it may have a default or not.
    """
    names = list(dict.fromkeys(name for layer in reversed(space.layers) for name in layer.value))
    if not names:
        space.problems.add(
            space.layers[-1].path,
            "empty: name at least one hyperparameter, such as learning_rate: {real: [1e-4, 1e-1], log: true}",
        )
    if len(names) > MOST:
        space.problems.add(space.layers[-1].path, f"{len(names):,} hyperparameters, legal: {MOST:,} at most")
        return ()
    found = [parameter for name in names if (parameter := _read_parameter(space, name)) is not None]
    known = {parameter.name: parameter for parameter in found}
    trained = None if settings is None else frozenset(settings)
    legal = [_with_condition(space, parameter, known, trained) for parameter in found]
    return _without_circles(space, tuple(legal))


def read_constraints(section: Section, space: Space) -> tuple[str, ...]:
    """Read `search.constraints`, and try them on points of the space."""
    texts: tuple[str, ...] = section.value("constraints", SEARCH)
    names = [parameter.name for parameter in space]
    parsed = []
    for number, text in enumerate(texts):
        try:
            constraint = parse_constraint(text, names)
            for seed in range(SAMPLES):
                constraint.check(random_point(space, seed))
            parsed.append(constraint)
        except ValueError as error:
            hint = _nearest_name(text, names) if "search.space" in str(error) else ""
            section.problems.add(
                (*section.where("constraints"), number), f"seen {text!r} ({error}{hint}), legal: {LEGAL}"
            )
    if len(parsed) < len(texts):
        return ()
    _refuse_unsatisfiable(section, space, parsed)
    return texts


def grid_trials(search: Search) -> int:
    """Return how many points the grid of a search has; ValueError when it cannot be said."""
    full = count_grid_points(search.space)
    conditional = any(parameter.when for parameter in search.space)
    if not search.constraints and not conditional:
        return full
    if full > LISTED:
        raise ValueError(f"{full:,} points before constraints and conditions are looked at, legal: at most {LISTED:,}")
    return sum(1 for _ in domain_of(search).grid())


def small_size(search: Search) -> list[int]:
    """Return the number of points of a space that is smaller than its search, alone in a list; else nothing."""
    domain = domain_of(search)
    if domain.count is None:
        return []
    points = sum(1 for _ in itertools.islice(domain.all_points(), search.trials))
    return [points] if points else []


def _refuse_unsatisfiable(section: Section, space: Space, constraints: list[Constraint]) -> None:
    where = section.where("constraints")
    alone = [c for c in constraints if Domain(space, (c,)).random(seed_of("constraint", c.text), set()) is None]
    for constraint in alone:
        text = f"seen {constraint.text!r}, which no point of search.space satisfies, as far as sampling can tell"
        section.problems.add((*where, constraints.index(constraint)), text)
    if constraints and not alone and Domain(space, tuple(constraints)).random(seed_of("constraints"), set()) is None:
        section.problems.add(where, "no point of search.space satisfies all of them, as far as sampling can tell")


def _nearest_name(text: str, names: list[str]) -> str:
    words = [word for word in text.replace("(", " ").replace(")", " ").split() if word.isidentifier()]
    unknown = [word for word in words if word not in names and word not in ("and", "or", "not", "in")]
    return schema.nearest(unknown[0], names) if unknown else ""


def _read_parameter(space: Section, name: str) -> Parameter | None:
    raw, path = space.raw(name), space.where(name)
    if not name.isidentifier() or not name.isascii():
        space.problems.add(path, "a hyperparameter's name holds letters, digits and '_' only")
        return None
    with suppress(ValueError):
        return Choice(name, (values.SCALAR.of(raw),))
    kinds = [kind for kind in ("real", "int", "choice") if isinstance(raw, dict) and kind in raw]
    if len(kinds) != 1:
        space.problems.add(path, f"seen {raw!r}, legal: {KINDS}")
        return None
    section = Section(space.problems, [Layer(raw, path)])
    parameter = _read_choice(section, name) if kinds == ["choice"] else _read_range(section, name, kinds[0])
    section.finish(("when", "default"))
    return parameter


def _read_choice(section: Section, name: str) -> Choice | None:
    options, ordered = section.value("choice", CHOICE), section.value("ordered", CHOICE)
    numbers = [option for option in options if not isinstance(option, bool | str)]
    if ordered and len(numbers) == len(options) and numbers not in (sorted(numbers), sorted(numbers, reverse=True)):
        text = f"seen {numbers}, legal with `ordered: true`: numbers that rise or fall, such as {sorted(numbers)}"
        section.problems.add(section.where("choice"), text)
    return Choice(name, options, ordered=ordered) if options else None


def _read_range(section: Section, name: str, kind: str) -> Real | Integer | None:
    log, points, numbers = (section.value(key, INT if kind == "int" else REAL) for key in ("log", "points", kind))
    step = section.read("step", 0.0, values.step(kind, numbers)) or None
    if not numbers:
        return None
    low, high = numbers
    if log and low <= 0:
        section.problems.add(section.where(kind), f"seen {[low, high]}, but a log scale starts above 0")
        return None
    if log and high / low > WIDEST:
        section.problems.add(section.where(kind), f"seen {[low, high]}, legal: at most 300 decades on a log scale")
        return None
    for key, given in (("log", log), ("points", points)):
        if step is not None and given:
            section.problems.add(section.where(key), f"stands beside `step`, which leaves no room for `{key}`")
    if kind == "int":
        return Integer(name, int(low), int(high), log, points, None if step is None else int(step))
    return Real(name, low, high, log, points, step)


# --- conditions --------------------------------------------------------------------------------------------


def _with_condition(
    space: Section, parameter: Parameter, known: dict[str, Parameter], settings: frozenset[str] | None
) -> Parameter:
    """Read `when` and `default` of a parameter."""
    raw, path = space.raw(parameter.name), space.where(parameter.name)
    if not isinstance(raw, dict) or not ("when" in raw or "default" in raw):
        return parameter
    section = Section(space.problems, [Layer(raw, path)])
    default = section.value("default", CHOICE)
    if "when" not in raw:
        space.problems.add((*path, "default"), "only a parameter with `when` can be absent and need a default")
        return parameter
    conditions = section.section("when")
    found = [_read_condition(conditions, name, parameter, known) for name in conditions.layers[0].value]
    when: When = tuple(condition for condition in found if condition is not None)
    if settings is None:
        return replace(parameter, when=when, default=default)
    setting = parameter.name in settings
    if setting and default is not None:
        text = "a training setting that is absent takes its value from `train`; remove this key"
        space.problems.add((*path, "default"), text)
    if not setting and default is None:
        text = "the network needs a value for it where `when` does not hold: add default: VALUE"
        space.problems.add(path, text)
    return replace(parameter, when=when, default=default)


def _read_condition(
    conditions: Section, name: str, parameter: Parameter, known: dict[str, Parameter]
) -> tuple[str, tuple[Value, ...]] | None:
    path = conditions.where(name)
    parent = known.get(name)
    if parent is None or name == parameter.name:
        hint = schema.nearest(name, [other for other in known if other != parameter.name])
        conditions.problems.add(path, f"{name!r} is not another hyperparameter of search.space{hint}")
        return None
    if isinstance(parent, Real):
        conditions.problems.add(path, f"{name!r} is a real number; a condition asks for values of a choice or an int")
        return None
    raw = conditions.raw(name)
    values = raw if isinstance(raw, list) else [raw]
    wanted = [_value_of(parent, value) for value in values]
    if not wanted or None in wanted:
        legal = ", ".join(map(str, parent.options)) if isinstance(parent, Choice) else f"{parent.low} to {parent.high}"
        conditions.problems.add(path, f"seen {raw!r}, legal: one or a list of the values of {name!r}: {legal}")
        return None
    return name, tuple(value for value in wanted if value is not None)


def _value_of(parent: Choice | Integer, value: Any) -> Value | None:
    """Return the parent's own value that equals `value`."""
    if isinstance(parent, Choice):
        same = [o for o in parent.options if o == value and isinstance(o, bool) == isinstance(value, bool)]
        return same[0] if same else None
    if isinstance(value, bool) or not isinstance(value, int) or not parent.low <= value <= parent.high:
        return None
    return value if (value - parent.low) % (parent.step or 1) == 0 else None


def _without_circles(space: Section, parameters: Space) -> Space:
    """Return the parameters; those whose conditions go round in a circle are reported, and lose them."""
    parents = {parameter.name: {name for name, _ in parameter.when} for parameter in parameters}
    before = None
    while parents != before:  # each round settles those whose parents are settled
        before, parents = parents, {name: {p for p in ps if parents[p]} for name, ps in parents.items()}
    for name, left in parents.items():
        if left:
            space.problems.add((*space.where(name), "when"), f"{name!r} depends on itself, by way of others")
    return tuple(replace(parameter, when=()) if parents[parameter.name] else parameter for parameter in parameters)
