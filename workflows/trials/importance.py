"""How much each hyperparameter mattered in one region, by a forest. The only module that imports scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnlib.util.process import install_line
from regiondag.errors import RegiondagError
from regiondag.study.space import Choice, Parameter, Value
from regiondag.trials.rows import LEAST_TRIALS, RegionTrials, TrialRow, choose_rows, identify, varied_parameters

TREES = 200
LEAF = 3  # trials in a leaf at least: fully grown trees would explain the noise, too
ABSENT = -1.0  # below every position: a hyperparameter whose condition does not hold


def measure_importance(trials: RegionTrials, seed: int = 0) -> dict[str, float] | None:
    """Return each hyperparameter's share of what explains the successful trials' values; the shares add up to 1.

    Mean decrease in impurity of an ExtraTrees forest with a fixed seed, fitted to the ranks of the values, so that
    neither a log scale nor one very bad trial decides. Hyperparameters enter on their own (log) scale, options without
    an order one by one. Such shares are relative: noise is shared out as well, so small ones mean nothing; and what
    made trials fail does not show. None when there are too few trials, or all are alike.
    """
    rows = choose_rows(trials)
    varied = varied_parameters(trials, rows)
    if len(rows) < LEAST_TRIALS or not varied or len({row.value for row in rows}) < 2:
        return None
    import numpy as np

    try:
        from sklearn.ensemble import ExtraTreesRegressor
    except ImportError as error:
        raise RegiondagError(
            f"importance needs the package scikit-learn, which cannot be imported ({error}); to install it: "
            f"{install_line('plots')}"
        ) from error

    columns: list[list[float]] = []
    owners: list[str] = []
    for parameter in varied:
        for column in _columns(parameter, rows):
            columns.append(column)
            owners.append(parameter.name)
    ranks = np.unique([row.cost for row in rows], return_inverse=True)[1]
    forest = ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, random_state=seed, n_jobs=1)
    forest.fit(np.array(columns).T, ranks)
    shares = dict.fromkeys((parameter.name for parameter in varied), 0.0)
    for owner, share in zip(owners, forest.feature_importances_, strict=True):
        shares[owner] += float(share)
    return shares if sum(shares.values()) > 0 else None


def place_on_scale(parameter: Parameter, value: Value | None) -> float | None:
    """Return where a value lies between the parameter's ends (0 to 1), on its own scale; None when it is absent.

    >>> from regiondag.study.space import Real
    >>> place_on_scale(Real("rate", 0.001, 0.1, log=True), 0.01)
    0.5
    """
    if value is None:
        return None
    if isinstance(parameter, Choice):
        options = [identify(option) for option in parameter.options]
        known = identify(value) in options
        return options.index(identify(value)) / max(len(options) - 1, 1) if known else None
    number, low, high = float(value), float(parameter.low), float(parameter.high)
    if parameter.log:
        number, low, high = math.log(number), math.log(low), math.log(high)
    return round((number - low) / (high - low), 12) if high > low else 0.5


def _columns(parameter: Parameter, rows: Sequence[TrialRow]) -> list[list[float]]:
    values = [row.hyperparameters.get(parameter.name) for row in rows]
    if isinstance(parameter, Choice) and not parameter.ordered:
        return [[float(identify(v) == identify(option)) for v in values] for option in parameter.options]
    positions = (place_on_scale(parameter, value) for value in values)
    return [[ABSENT if where is None else where for where in positions]]
