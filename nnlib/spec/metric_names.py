"""The names of metrics, such as ndcg@20."""

from __future__ import annotations

import re

from nnlib.spec.json_section import nearest

METRICS = ("p", "recall", "ndcg", "map", "mrr")


def parse_metric(name: str) -> tuple[str, int | None]:
    """Return ("ndcg", 20) for `ndcg@20`, ("p", 10) for `p@10` or `precision@10`, ("loss", None)."""
    kind, at, k = name.lower().partition("@")
    kind = "p" if kind == "precision" else kind
    if kind == "loss" and not at:
        return "loss", None
    if kind in METRICS and re.fullmatch(r"[1-9][0-9]{0,5}", k):
        return kind, int(k)
    hint = "" if kind in METRICS else nearest(kind, (*METRICS, "precision", "loss"))
    raise ValueError(
        f"metric {name!r} is not legal, legal: p@K, recall@K, ndcg@K, map@K, mrr@K (K = 1, 2, ...), loss{hint}"
    )


def canonical_metric(name: str) -> str:
    """Return the metric's key in a result: `p@10` for `Precision@10`, `ndcg@20`, `loss`; ValueError as above."""
    kind, k = parse_metric(name)
    return kind if k is None else f"{kind}@{k}"
