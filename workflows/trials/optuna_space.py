"""A space as Optuna's distributions, and back. The only module that imports Optuna."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnlib.util.process import install_line
from regiondag.errors import RegiondagError
from regiondag.study.space import Choice, Parameter, Real, Space, Value

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def import_optuna(who: str, otherwise: str = "") -> Any:
    """Return Optuna; RegiondagError, which says `who` needs it and what does `otherwise`, where it is not installed."""
    try:
        import optuna
    except ImportError as error:
        raise RegiondagError(
            f"{who} needs the package optuna, which cannot be imported ({error}); to install it: "
            f"{install_line('optuna')}{otherwise}"
        ) from error
    return optuna


def distributions_of(space: Space) -> dict[str, BaseDistribution]:
    """Return a space as Optuna has it, by name.

    Optuna knows neither conditions and order of options, nor steps on a log scale: these are left out.
    """
    import_optuna("a space as Optuna has it")
    return {parameter.name: distribution_of(parameter) for parameter in space}


def distribution_of(parameter: Parameter) -> BaseDistribution:
    """Return one hyperparameter as Optuna has it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(parameter, Choice):
        return CategoricalDistribution([option_of(parameter, option) for option in parameter.options])
    step = None if parameter.log else parameter.step
    if isinstance(parameter, Real):
        return FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=step)
    return IntDistribution(parameter.low, parameter.high, log=parameter.log, step=int(step or 1))


def option_of(parameter: Choice, option: Value) -> Value:
    """Return an option as Optuna can tell it from the others: 1, 1.0 and true are one thing to it."""
    return option if len(set(parameter.options)) == len(parameter.options) else f"{type(option).__name__} {option}"


def is_distribution(value: object) -> bool:
    """Return whether a value is one of Optuna's distributions, without importing Optuna."""
    return any(kind.__name__ == "BaseDistribution" for kind in type(value).__mro__)


def written_of(distribution: Any) -> object:
    """Return one of Optuna's distributions as `search.space` of study.yaml has it; it is judged when that is read."""
    if hasattr(distribution, "choices"):
        return {"choice": list(distribution.choices)}
    low, high = distribution.low, distribution.high
    if low == high:
        return low
    if isinstance(low, int):
        kind, step = "int", None if distribution.step == 1 else distribution.step
    else:
        kind, step = "real", distribution.step
    more = {"log": True} if distribution.log else {} if step is None else {"step": step}
    return {kind: [low, high], **more}
