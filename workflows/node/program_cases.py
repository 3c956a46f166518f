"""What a program's metric is the mean of, folds or customers: how sure it is, and one trial beside another."""

from __future__ import annotations

from nnlib.contract import RESULT_FILE, Result, read_result
from regiondag.run.layout import NodeName, RegionFolder
from regiondag.run.region_spec import RegionSpec
from regiondag.util.intervals import Z95, half_width


def interval_of(folder: RegionFolder, spec: RegionSpec) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of the last training's metric, by its name; nothing where its error is not known.

    Student's where the program says of how many values it is, else the normal one.
    """
    result = _result_of(folder, spec, None)
    if result is None or result.value is None or result.stderr is None:
        return {}
    half = half_width(result.stderr, len(result.cases)) if result.cases else Z95 * result.stderr
    return {} if half is None else {spec.metric.name: (result.value - half, result.value + half)}


def probability_of_pair(folder: RegionFolder, spec: RegionSpec, best: int, again: int) -> tuple[float, str] | None:
    """Return how probable it is that a trial is better than another by their values' pairs, and of what these are.

    None where they have no values, or not of the same number: they are of other cases then.
    """
    one, other = (_result_of(folder, spec, trial) for trial in (best, again))
    if one is None or other is None or len(one.cases) < 2:
        return None
    if (len(one.cases), one.folds) != (len(other.cases), other.folds):
        return None
    import numpy as np

    from regiondag.champions.chance import probability_better, probability_by_folds
    from regiondag.champions.choose import Rule

    gains = (-1.0 if spec.metric.minimize else 1.0) * (np.array(one.cases) - np.array(other.cases))
    words = f"{len(one.cases):,} {'folds' if one.folds else 'values'}"
    if one.folds:
        return probability_by_folds(gains), words
    return probability_better(gains, Rule().draws, Rule().seed), words


def _result_of(folder: RegionFolder, spec: RegionSpec, trial: int | None) -> Result | None:
    return read_result(folder.trial(NodeName(spec.slug, trial)) / RESULT_FILE)
