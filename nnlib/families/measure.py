"""How good a fitted model is for each customer of a window: what decisions are made on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnlib.data.blockwise import Lookup, Watch, run_in_order
from nnlib.data.events import Window
from nnlib.evaluation.metrics import hits_of, values_at
from nnlib.families.family import Fitted
from nnlib.ops.ranking import top
from nnlib.spec.metric_names import parse_metric
from nnlib.util.arrays import Floats, Longs
from nnlib.util.threads import Each, map_in_turn


def measure(
    model: Fitted,
    window: Window,
    names: Sequence[str] = ("ndcg@20", "p@10"),
    each: Each = map_in_turn,
    watch: Watch | None = None,
    excluded: Lookup | None = None,
) -> dict[str, Floats]:
    """Return each metric (customers,), float32, NaN of customers without targets.

    What a customer has has no rank, unless the window says `repeats`, or else what `excluded` gives for him. Customers
    are taken a block at a time, those of a region together, and `each` may use several threads: the bits do not depend
    on it. `watch` is called with how many more are done. ValueError for a name that is no metric at K.
    """
    keys = [_key_of(name) for name in names]
    ks = sorted({k for _, k in keys})
    order = np.argsort(window.asked.region, kind="stable")
    order = order[np.diff(window.wanted.indptr)[order] > 0]

    def block(places: Longs) -> dict[str, Floats]:
        rows = order[places]
        wanted, unranked = window.wanted.take(rows), (excluded or window.asked.unranked)(rows)
        hits = hits_of(top(model.scores(window.asked, rows), ks[-1], unranked)[0], wanted)
        return dict(values_at(hits, np.diff(wanted.indptr), ks))

    found = {f"{kind}@{k}": np.full(window.asked.customers, np.nan, np.float32) for kind, k in keys}
    done = 0
    for values in run_in_order(block, len(order), window.asked.bought.width, each, watch):
        count = len(next(iter(values.values())))
        for name, into in found.items():
            into[order[done : done + count]] = values[name]
        done += count
    return found


def _key_of(name: str) -> tuple[str, int]:
    kind, k = parse_metric(name)
    if k is None:
        raise ValueError(f"metric {name!r} is not legal, legal: one at K, such as ndcg@20: {kind} is no ranking metric")
    return kind, k
