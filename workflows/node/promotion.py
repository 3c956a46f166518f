"""Is a region's new model better than its standing champion? Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nnlib.contract import Metric


def why_kept(
    metric: Metric,
    *,
    test: Mapping[str, float],
    incumbent_test: Mapping[str, float],
    valid: float | None,
    incumbent_valid: Mapping[str, float],
) -> str:
    """Return why the standing champion is kept, or an empty text when the new model takes its place.

    The new model must beat the standing one on the test part, and the winning trial of its run must not have been
    worse on the validation part. A part on which the standing champion could not be scored by the study's metric is no
    bar.
    """
    name = metric.name
    if name in incumbent_valid and valid is not None and _better(incumbent_valid[name], valid, metric.minimize):
        return (
            f"kept: on the validation data the standing champion reaches {name} {incumbent_valid[name]:.4f}, "
            f"the winning trial {valid:.4f}"
        )
    if name in incumbent_test and not _better(test[name], incumbent_test[name], metric.minimize):
        return (
            f"kept: on the test data the standing champion reaches {name} {incumbent_test[name]:.4f}, "
            f"the new model {test[name]:.4f}"
        )
    return ""


def _better(one: float, other: float, minimize: bool) -> bool:
    return one < other if minimize else one > other
