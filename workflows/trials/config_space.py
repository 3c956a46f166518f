"""A space as ConfigSpace has it, and back, conditions included. The only module that imports ConfigSpace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from nnlib.util.process import install_line
from regiondag.errors import RegiondagError, UsageError
from regiondag.study.space import Choice, Integer, Parameter, Space, Value, level, list_levels

if TYPE_CHECKING:
    from ConfigSpace import Condition, ConfigurationSpace
    from ConfigSpace.hyperparameters import Hyperparameter

LIBRARY = "ConfigSpace"
MOST_VALUES = 1000  # of a hyperparameter, where they are written one by one


def import_config_space(who: str) -> Any:
    """Return ConfigSpace; RegiondagError, which says `who` needs it, where it is not installed."""
    try:
        import ConfigSpace
    except ImportError as error:
        raise RegiondagError(
            f"{who} needs the package {LIBRARY}, which cannot be imported ({error}); to install it: "
            f"{install_line('configspace')}"
        ) from error
    return ConfigSpace


def is_of_config_space(value: object, kind: str) -> bool:
    """Return whether a value is a `Hyperparameter` or a `ConfigurationSpace`, without importing ConfigSpace."""
    kinds = type(value).__mro__
    return any(one.__name__ == kind and one.__module__.split(".")[0] == LIBRARY for one in kinds)


# --- from ConfigSpace --------------------------------------------------------------------------------------


def written_of_space(space: ConfigurationSpace) -> dict[str, object]:
    """Return a ConfigurationSpace as `search.space` of study.yaml has it; it is judged when that is read.

    A hyperparameter's default is left out: here that is a value for where it does not exist. UsageError for what no
    search can be told: other distributions than the uniform one, forbidden clauses, conditions on real numbers.
    """
    if space.forbidden_clauses:
        seen = ", ".join(map(str, space.forbidden_clauses))
        raise UsageError(
            f"{LIBRARY}: seen {seen:.200}, legal: no forbidden clauses; say what is allowed as `constraints`"
        )
    found: dict[str, Any] = {name: written_of_hyperparameter(one) for name, one in space.items()}
    for condition in space.conditions:
        for part in _parts_of(condition):
            child, parent, values = _read_condition(part)
            if not isinstance(found[child], dict):
                found[child] = {"choice": [found[child]]}
            when = found[child].setdefault("when", {})
            when[parent] = [one for one in values if one in when.get(parent, values)]
    return found


def written_of_hyperparameter(one: Any) -> object:
    """Return a hyperparameter of ConfigSpace as `search.space` has it; UsageError for one that none can be."""
    kind = type(one).__name__
    if kind in ("UniformFloatHyperparameter", "UniformIntegerHyperparameter"):
        ends = {"real" if kind == "UniformFloatHyperparameter" else "int": [one.lower, one.upper]}
        return {**ends, "log": True} if one.log else ends
    if kind == "OrdinalHyperparameter":
        return {"choice": list(one.sequence), "ordered": True}
    if kind == "Constant":
        return one.value
    if kind == "CategoricalHyperparameter" and len(set(one.probabilities)) == 1:
        return {"choice": list(one.choices)}
    seen = "weights" if kind == "CategoricalHyperparameter" else kind
    raise UsageError(f"{one.name}: seen {seen}, legal: uniform numbers, ordinal, constant, categorical without weights")


def _parts_of(condition: Any) -> Iterator[Any]:
    """Yield what must hold, each by itself."""
    if type(condition).__name__ == "AndConjunction":
        for one in condition.components:
            yield from _parts_of(one)
    else:
        yield condition


def _read_condition(part: Any) -> tuple[str, str, list[Any]]:
    """Return a condition as the names of child and parent, and the parent's values for which it holds."""
    literals = part.dlcs if hasattr(part, "components") else [part]
    parents = {one.parent.name: one.parent for one in literals}
    if len(parents) > 1:
        raise UsageError(
            f"{literals[0].child.name}: seen {part}, legal: conditions on one hyperparameter, or all of some"
        )
    [(name, parent)] = parents.items()
    values = _values_of(parent, str(part))
    return literals[0].child.name, name, [one for one in values if part.satisfied_by_value({name: one})]


def _values_of(parent: Any, condition: str) -> Iterable[Any]:
    kind = type(parent).__name__
    if kind == "UniformIntegerHyperparameter" and parent.upper - parent.lower < MOST_VALUES:
        return range(parent.lower, parent.upper + 1)
    if kind == "Constant":
        return [parent.value]
    known = {"CategoricalHyperparameter": "choices", "OrdinalHyperparameter": "sequence"}
    if kind not in known:
        raise UsageError(f"seen {condition}, legal: conditions on choices, or on at most {MOST_VALUES} whole numbers")
    values: Iterable[Any] = getattr(parent, known[kind])
    return values


# --- to ConfigSpace ----------------------------------------------------------------------------------------


def config_space_of(space: Space, constraints: Iterable[str] = ()) -> ConfigurationSpace:
    """Return a space as ConfigSpace has it, with its conditions; numbers in steps are ordinal there.

    What stands for a hyperparameter that does not exist, its `default`, is left out. UsageError for what cannot be
    said: constraints, more than 1000 steps, options that Python takes for equal, numbers that are rounded there.
    """
    library = import_config_space("a space as ConfigSpace has it")
    for constraint in constraints:
        raise UsageError(f"constraints: {constraint!r} cannot be said in {LIBRARY}; remove it, and tell failures")
    found = library.ConfigurationSpace()
    known = {one.name: _hyperparameter_of(library, one) for one in space}
    found.add(list(known.values()))
    for parameter in space:
        conditions: list[Condition] = [
            library.InCondition(known[parameter.name], known[name], list(values)) for name, values in parameter.when
        ]
        if conditions:
            found.add(conditions[0] if len(conditions) == 1 else library.AndConjunction(*conditions))
    return found


def _hyperparameter_of(library: Any, one: Parameter) -> Hyperparameter:
    name = one.name
    if isinstance(one, Choice):
        if len(one.options) == 1:
            return library.Constant(name, one.options[0])
        _refuse_equals(one)
        kind = library.OrdinalHyperparameter if one.ordered else library.CategoricalHyperparameter
        return kind(name, list(one.options))
    if one.step is not None:
        count = list_levels(one) or 0
        if not 1 < count <= MOST_VALUES:
            raise UsageError(f"{name}: {count} steps cannot be said in {LIBRARY}, legal: 2 to {MOST_VALUES}")
        return library.OrdinalHyperparameter(name, [level(one, number) for number in range(count)])
    kind = library.UniformIntegerHyperparameter if isinstance(one, Integer) else library.UniformFloatHyperparameter
    try:
        made = kind(name, one.low, one.high, log=one.log)
    except (ValueError, ArithmeticError):
        made = None
    if made is None or not all(map(math.isclose, (made.lower, made.upper), (one.low, one.high))):
        raise UsageError(
            f"{name}: seen {[one.low, one.high]}, which {LIBRARY} rounds or cannot hold; take another unit"
        )
    return made


def _refuse_equals(one: Choice) -> None:
    options: tuple[Value, ...] = one.options
    if len(set(options)) < len(options):
        raise UsageError(
            f"{one.name}: {LIBRARY} takes some of {list(options)} for equal, such as 1 and true; rename them"
        )
