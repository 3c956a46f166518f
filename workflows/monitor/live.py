"""What all running trials of a run are doing: one query of HTCondor's queue."""

from __future__ import annotations

from collections.abc import Iterable

from regiondag.condor import client
from regiondag.condor.classads import ClassAd
from regiondag.condor.events.dag_log import read_dag_log
from regiondag.pool.pool import Pool
from regiondag.run.layout import NodeName, RunFolder, dagman_log, parse_node
from regiondag.run.live import Live, parse_live
from regiondag.run.manifest import read_manifest

RUNNING = 2  # JobStatus


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
