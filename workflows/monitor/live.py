"""What all running trials of a run are doing: one query of HTCondor's queue, and how to show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from regiondag.condor import client
from regiondag.condor.classads import ClassAd
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.pool.pool import Pool
from regiondag.run.layout import NodeName, RunFolder, dagman_log, parse_node
from regiondag.run.live import Live, parse_live
from regiondag.run.manifest import read_manifest
from regiondag.util.terminal import Narrow
from regiondag.util.text import show_duration

RUNNING = 2  # JobStatus
HEADINGS = ("trial", "doing", "loss", "metric", "left", "age")
NARROW = Narrow(("loss",), {"trial": 11, "doing": 14})


def read_live(pool: Pool, run: RunFolder) -> dict[NodeName, Live]:
    """Return what the running trials of a run said last; PoolError where the pool does not answer."""
    dags = map(read_dag_log, map(dagman_log, run.dags(read_manifest(run).regions)))
    _, ads = client.query_dags(pool, {dag.cluster: dag.log for dag in dags if dag and dag.ended is None})
    return live_of(ads)


def live_of(ads: Iterable[ClassAd]) -> dict[NodeName, Live]:
    """Return what running jobs of a study say in their ads; the ads of others, and of silent ones, are passed over."""
    found: dict[NodeName, Live] = {}
    for ad in ads:
        if ad.get("JobStatus") != RUNNING:
            continue
        try:
            node = parse_node(str(ad.get("DAGNodeName", "")))
        except ValueError:
            continue
        live = parse_live(node, ad)
        if live is not None:
            found[node] = live
    return found


def tabulate_live(live: Iterable[Live], names: Mapping[str, str], now: float) -> list[tuple[str, ...]]:
    """Return a row in the columns of HEADINGS for each trial; `names` are those of regions by slug."""
    return [
        (
            f"{names.get(one.node.slug, one.node.slug)} {one.node.label}",
            describe_progress(one),
            _figure(one.loss),
            _figure(one.value),
            "-" if one.seconds_left is None else show_duration(one.seconds_left),
            show_duration(one.age(now)),
        )
        for one in live
    ]


def describe_progress(live: Live) -> str:
    """Return what a trial is doing in a few words.

    >>> describe_progress(Live(NodeName("germany", 7), 12, 30, None, None, (), None, 0.0))
    'epoch 12 of 30'
    """
    epochs = f"epoch {live.epoch} of {live.epochs}" if live.epochs else ""
    return ", ".join(filter(None, (epochs, live.doing))) or "-"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
