"""The names of metrics, such as ndcg@20."""

from __future__ import annotations

import re

from nnlib.spec.json_section import nearest

METRICS = ("p", "recall", "ndcg", "map", "mrr")  # at K, large is good; `evaluation.metrics` has the formulas


def parse_metric(name: str) -> tuple[str, int | None]:
    """Return ("ndcg", 20) for `ndcg@20`, ("p", 10) for `p@10` or `precision@10`, ("loss", None)."""
    kind, at, k = name.lower().partition("@")
    kind = "p" if kind == "precision" else kind
    if kind == "loss" and not at:
        return "loss", None
    if kind in METRICS and re.fullmatch(r"[1-9][0-9]{0,5}", k):
        return kind, int(k)
    hint = "" if kind in METRICS else nearest(kind, (*METRICS, "precision", "loss"))
    raise ValueError(f"metric {name!r} is not legal, legal: {list_metrics()} (K = 1, 2, ...), loss{hint}")


def canonical_metric(name: str) -> str:
    """Return the metric's key in a result: `p@10` for `Precision@10`, `ndcg@20`, `loss`; ValueError as above."""
    kind, k = parse_metric(name)
    return kind if k is None else f"{kind}@{k}"


def keep_in_range(name: str, value: float) -> float:
    """Return the nearest value that a metric can have: ours at K lie between 0 and 1, of a program's nothing is known.

    >>> keep_in_range("ndcg@20", -0.5), keep_in_range("loss", 7.5), keep_in_range("rmse", 7.5)
    (0.0, 7.5, 7.5)
    """
    try:
        _, k = parse_metric(name)
    except ValueError:
        return value
    return value if k is None else min(max(value, 0.0), 1.0)


def list_metrics(last: str = ",") -> str:
    """Return the metrics at K as words of a sentence, such as `p@K, recall@K or mrr@K` with " or" before the last."""
    names = [f"{kind}@K" for kind in METRICS]
    return f"{', '.join(names[:-1])}{last} {names[-1]}"
